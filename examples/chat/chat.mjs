/** Takes part in the chat: node chat.mjs NAME [http://127.0.0.1:8000] */

import { createInterface } from "node:readline";
import { Runtime } from "msgnode-runtime";
import { Syncher } from "msgnode-runtime/syncher";

const [name = "Somebody", node = "http://127.0.0.1:8000"] = process.argv.slice(2);
const runtime = new Runtime({ domain: "localhost", catalogues: { localhost: node } });
await runtime.logIn();

const me = await runtime.hyperty("chat", { register: false });
const [address] = await runtime.find({ user: "room" });
if (!address) throw new Error("There is no room: start room.mjs.");
const url = await me.request(address, undefined, { type: "read" });
const room = await new Syncher(me).subscribe(url);

const show = ({ who, text }) => console.log(`${who}: ${text}`);
for (const { value } of room.children) show(value);
room.onChild(({ type, value }) => type === "create" && show(value));
room.onStatus((status) => status !== "live" && console.log(`(the room is ${status})`));

for await (const text of createInterface({ input: process.stdin }))
  if (text.trim()) await room.addChild({ who: name, text: text.trim() });
await runtime.close();
