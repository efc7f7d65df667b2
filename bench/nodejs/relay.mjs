// The relay a hand-written Node.js node begins as: `ws`, one process, one JSON.parse a frame, a Map.
//
//     node bench/nodejs/relay.mjs 9000
//
// `open` and `subscribe` frames enter an address, so that it is driven by the same load as the node.
import { createRequire } from "node:module";

const { WebSocketServer } = createRequire(process.env.WS_FROM || import.meta.url)("ws");

const listeners = new Map();

function enter(message, socket) {
  let addresses = [];
  if (message.type === "open") addresses = [message.from];
  else if (message.type === "subscribe") addresses = message.body.resources;
  for (const address of addresses) {
    if (!listeners.has(address)) listeners.set(address, []);
    listeners.get(address).push(socket);
  }
}

const server = new WebSocketServer({
  host: "127.0.0.1",
  port: Number(process.argv[2]),
  perMessageDeflate: false,
  backlog: 4096,
});
server.on("connection", (socket) => {
  socket.on("message", (data) => {
    const text = data.toString();
    const message = JSON.parse(text);
    const found = listeners.get(message.to);
    if (found !== undefined) {
      for (const listener of found) listener.send(text);
      return;
    }
    enter(message, socket);
    socket.send(JSON.stringify({ id: message.id, type: "response", body: { code: 200 } }));
  });
});
