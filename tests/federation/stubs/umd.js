// Packed as browserify packs for all module systems; the words import and export stand in a comment.
(function (factory) {
  if (typeof exports === "object" && typeof module !== "undefined") module.exports = factory();
  else (typeof window === "undefined" ? this : window).activate = factory();
})(function () {
  function Stub(url, bus, config) {
    var self = this;
    self.url = url;
    self.bus = bus;
    self.config = config;
    bus.addListener("*", function (message) {
      if (self.socket && self.socket.readyState === 1) self.socket.send(JSON.stringify(message));
    });
    self.tell("created");
  }
  Stub.prototype.tell = function (value) {
    this.bus.postMessage({ type: "update", from: this.url, to: this.url + "/status", body: { value: value } });
  };
  Stub.prototype.connect = function () {
    var self = this;
    var socket = (self.socket = new WebSocket(self.config.url));
    socket.onopen = function () {
      socket.send(JSON.stringify({ id: 7, type: "open", from: self.config.runtimeURL, to: "mn:/session" }));
    };
    socket.onmessage = function (event) {
      var message = JSON.parse(event.data);
      if (message.from === "mn:/session") self.tell("live");
      else self.bus.postMessage(message);
    };
    socket.onclose = function () {
      self.tell("disconnected");
    };
  };
  Stub.prototype.disconnect = function () {
    this.socket.close();
  };
  return function (url, bus, config) {
    return { name: "FixtureStub", instance: new Stub(url, bus, config) };
  };
});
