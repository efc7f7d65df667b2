// Connects when it is given a message, and sends that one behind those that came meanwhile: so the
// stub of 2017, at first and after each loss of its socket. Told to connect, it does so at once.
const activate = (stubURL, bus, config) => {
  let socket = null;
  let first = [];
  let later = [];
  const tell = (value) =>
    bus.postMessage({ type: "update", from: stubURL, to: `${stubURL}/status`, body: { value } });
  const isOpen = () => socket?.readyState === 1;
  const write = (message) => socket.send(JSON.stringify(message));
  const dial = () => {
    if (socket) return;
    socket = new WebSocket(config.url);
    socket.onopen = () => write({ id: 1, type: "open", from: config.runtimeURL, to: "mn:/session" });
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.from !== "mn:/session") return bus.postMessage(message);
      for (const each of [...later, ...first]) write(each);
      [first, later] = [[], []];
      tell("live");
    };
    socket.onclose = () => {
      socket = null;
      tell("disconnected");
    };
  };
  bus.addListener("*", (message) => {
    if (isOpen() && !first.length) return write(message);
    (first.length ? later : first).push(message);
    dial();
  });
  tell("created");
  return { name: "Reorders", instance: { connect: dial, disconnect: () => socket?.close() } };
};
export default activate;
