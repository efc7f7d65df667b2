// The relay a hand-written Node.js node begins as: `ws`, one process, one JSON.parse a frame, a Map.
//
//     node bench/nodejs/relay.mjs 9000           sends the text to each listener
//     node bench/nodejs/relay.mjs 9000 buffer    sends one buffer to all, as it came
//     node bench/nodejs/relay.mjs 9000 frame     writes one frame, header and all, to each socket
//
// `open` and `subscribe` frames enter an address, so that it is driven by the same load as the node.
import { createRequire } from "node:module";

const { Sender, WebSocketServer } = createRequire(process.env.WS_FROM || import.meta.url)("ws");
const [port, how = "text"] = process.argv.slice(2);

const ways = {
  text(found, data, text) {
    for (const listener of found) listener.send(text);
  },
  buffer(found, data) {
    for (const listener of found) listener.send(data, { binary: false });
  },
  frame(found, data) {
    const settings = { fin: true, rsv1: false, opcode: 1, mask: false, readOnly: true };
    const frame = Buffer.concat(Sender.frame(data, settings));
    for (const listener of found) listener._socket.write(frame);
  },
};
const deliver = ways[how];
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
  port: Number(port),
  perMessageDeflate: false,
  backlog: 4096,
});
server.on("connection", (socket) => {
  socket.on("message", (data) => {
    const text = data.toString();
    const message = JSON.parse(text);
    const found = listeners.get(message.to);
    if (found !== undefined) {
      deliver(found, data, text);
      return;
    }
    enter(message, socket);
    socket.send(JSON.stringify({ id: message.id, type: "response", body: { code: 200 } }));
  });
});
