/* Packed as System.register wants it: the export is told by a call, the class has no name. */
System.register([], function (tell) {
  return {
    setters: [],
    execute: function () {
      tell({
        default: class {
          _start(stubURL, bus, config) {
            this.say = (value) =>
              bus.postMessage({ type: "update", from: stubURL, to: stubURL + "/status", body: { value: value } });
            this.open = () => {
              const socket = (this.socket = new WebSocket(config.url));
              socket.onopen = () =>
                socket.send(JSON.stringify({ id: "o", type: "open", from: config.runtimeURL, to: "mn:/session" }));
              socket.onmessage = (event) => {
                const message = JSON.parse(event.data);
                if (message.from === "mn:/session") this.say("live");
                else bus.postMessage(message);
              };
              socket.onclose = () => this.say("disconnected");
            };
            bus.addListener("*", (message) => this.socket.send(JSON.stringify(message)));
            this.say("created");
          }
          connect() {
            this.open();
          }
          disconnect() {
            this.socket.close();
          }
        },
      });
    },
  };
});
