// An ES module whose default export is a class: the newest form in the field.
export default class FixtureStub {
  _start(stubURL, bus, config) {
    Object.assign(this, { stubURL, bus, config, ids: 0 });
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
    this.status("in-progress");
    this.socket = new WebSocket(this.config.url);
    this.socket.onopen = () => this.send({ id: "open", type: "open", from: this.config.runtimeURL, to: "mn:/session" });
    this.socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.from === "mn:/session") this.status(message.body.code === 200 ? "live" : "failed");
      else this.bus.postMessage({ ...message, body: { ...message.body, via: this.stubURL } });
    };
    this.socket.onclose = () => this.status("disconnected");
  }

  disconnect() {
    this.socket?.close();
  }
}
