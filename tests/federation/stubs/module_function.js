// An ES module whose default export is activate(); it calls the live state "connected", and comes
// back at once, without a pause, whenever its socket is closed.
const start = (stubURL, bus, config) => {
  let socket;
  const tell = (value) =>
    bus.postMessage({ type: "update", from: stubURL, to: `${stubURL}/status`, body: { value } });
  const write = (message) => socket.send(JSON.stringify(message));
  const dial = () => {
    socket = new WebSocket(config.url);
    socket.addEventListener("open", () =>
      write({ id: 1, type: "open", from: config.runtimeURL, to: "mn:/session" }));
    socket.addEventListener("message", (event) => {
      const message = JSON.parse(event.data);
      if (message.from !== "mn:/session") bus.postMessage(message);
      else tell("connected");
    });
    socket.addEventListener("close", () => {
      tell("disconnected");
      dial();
    });
  };
  bus.addListener("*", write);
  tell("created");
  return { name: "FixtureStub", instance: { connect: dial, disconnect: () => socket.close() } };
};

export default start;
