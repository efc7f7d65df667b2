/** Keeps the room: node room.mjs [http://127.0.0.1:8000] */

import { Runtime } from "msgnode-runtime";
import { Syncher } from "msgnode-runtime/syncher";

const [node = "http://127.0.0.1:8000"] = process.argv.slice(2);
const runtime = new Runtime({ domain: "localhost", catalogues: { localhost: node } });
await runtime.logIn();

const hyperty = await runtime.hyperty("room", { register: "room" });
const room = await new Syncher(hyperty).create({ topic: "Anything" }, { name: "room" });
hyperty.on("read", () => room.url);
console.log("The room is open.");
