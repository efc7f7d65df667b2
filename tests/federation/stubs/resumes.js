// An ES module with a class that takes up its session again when its socket was lost.
export default class Resuming {
  _start(stubURL, bus, config) {
    Object.assign(this, { stubURL, bus, config, token: "" });
    bus.addListener("*", (message) => this.socket?.readyState === 1 && this.send(message));
    this.status("created");
  }

  status(value) {
    this.bus.postMessage({ type: "update", from: this.stubURL, to: `${this.stubURL}/status`, body: { value } });
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  connect() {
    this.socket = new WebSocket(this.config.url);
    const type = this.token ? "re-open" : "open";
    const body = this.token ? { runtimeToken: this.token } : {};
    this.socket.onopen = () => this.send({ id: "o", type, from: this.config.runtimeURL, to: "mn:/session", body });
    this.socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.from !== "mn:/session") return this.bus.postMessage(message);
      this.token = message.body.runtimeToken;
      this.status("live");
    };
    this.socket.onclose = () => this.status("disconnected");
  }

  disconnect() {
    this.socket.close();
  }
}
