/**
 * Who may say what to a runtime, for every way in: the cases of ways-in.json, which Python runs too (test_ways_in.py).
 *
 *   stub       of the domain f               channel    to the runtime runtime://f/2, which has hyperty://f/x
 *   node       the home domain's stub        catalogue  the same with the P2P stubs of the catalogue
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { settled } from "./fake-clock.mjs";
import { Net, newCatalogueStubs } from "./p2p-runtimes.mjs";
import { R, STUB, endWorld, newWorld, until } from "./world.mjs";

const CASES = globalThis.process
  ? JSON.parse(
      (await import("node:fs")).readFileSync(new URL("ways-in.json", import.meta.url), "utf8"),
    )
  : await (await fetch("/tests/ways-in.json")).json();

const [A, FAR, OTHER, ID] = ["hyperty://d/a", "hyperty://f/x", "hyperty://g/y", "77"];
const HEARD_AT = [
  A,
  `${R}/status`,
  `hyperty-${R}/status`,
  "runtime://g/protostub/1/status",
  "comm://f/room/children/",
];

/** What a case brings, and what the application asks before it; `said` collects what listeners here hear of it. */
function scene(bus, { asked, subscribed, brings }, node) {
  const said = [];
  bus.addListener("hyperty://d/silent", () => {});
  for (const each of HEARD_AT)
    bus.addListener(each, (message) => message.body?.value === "said" && said.push(message));
  if (subscribed)
    bus.postMessage({
      id: 1,
      type: "subscribe",
      from: A,
      to: node,
      body: { resources: [subscribed] },
    });
  if (asked) bus.postMessage({ id: ID, type: "create", from: A, to: asked, body: {} });
  return { said, message: { id: ID, to: A, body: { value: "said" }, ...brings } };
}

function judge(
  { name, then, body = { value: "said" }, marks = {}, isAgain },
  way,
  { said, told, via },
) {
  const outcome = said.length ? "heard" : told ? "refused" : "dropped";
  assert.equal(outcome, then[way], name);
  if (!said.length) return;
  assert.equal(said.length, isAgain ? 2 : 1);
  assert.deepEqual(said[0].body, { ...body, ...(way === "node" ? marks : {}), via });
}

const isRefusal = ({ type, id, body }) => type === "response" && id === ID && body.code === 403;

async function byStub(each, way) {
  const world = newWorld();
  const { bus, catalogues } = world;
  for (const domain of ["d", "f", "g"])
    await catalogues.add(domain, STUB, {}, `https://${domain}/.well-known/protocolstub/default`);
  for (const to of ["hyperty://d/elsewhere", "hyperty://f/elsewhere", OTHER])
    bus.postMessage({ type: "update", from: A, to });
  await until(() => world.world.started.length === 3, "the stubs");
  await settled();
  const home = way === "node" ? "d" : "f";
  const stub = world.world.started.find(({ url }) => url.startsWith(`runtime://${home}/`));
  const { said, message } = scene(bus, each, `domain://msg-node.${home}/sm`);
  await settled();
  for (let n = 0; n < (each.isAgain ? 2 : 1); n += 1) stub.bring(message);
  await settled();
  judge(each, way, { said, told: stub.sent.some(isRefusal), via: stub.url });
  await endWorld(world);
}

async function byChannel(each, way) {
  const net = new Net();
  const newP2P = (resolver, options, platform) =>
    newCatalogueStubs(resolver, options, platform, net);
  const victim = net.talker({ url: R, ...(way === "catalogue" ? { newP2P } : {}) });
  const liar = net.talker({ url: "runtime://f/2" });
  net.registered[FAR] = { runtime: liar.url, ...liar.p2p.registration };
  liar.bus.addListener(FAR, () => {});
  for (const { p2p } of [victim, liar]) p2p.start();
  await net.turn();
  await net.asked(victim.want(liar));
  await net.turn();
  assert.equal(victim.p2p.connections[0].way, "channel");
  const named = { p2p: true, p2pHandler: liar.p2p.handler };
  victim.bus.postMessage({ type: "update", from: A, to: FAR, body: named }); // what follows takes the channel
  await net.turn();
  const { said, message } = scene(victim.bus, each, "domain://msg-node.d/sm");
  await net.turn();
  const [link, before] = [liar.peerOf(victim).link, net.frames.length];
  for (let n = 0; n < (each.isAgain ? 2 : 1); n += 1) link.send(message, 100, net.clock.now());
  await net.turn();
  const told = net.frames.slice(before).some((frame) => frame.includes('"code":403'));
  judge(each, way, {
    said,
    told,
    via: way === "catalogue" ? said[0]?.body.via : victim.peerOf(liar).via,
  });
  await net.end();
}

for (const [way, run] of Object.entries({
  stub: byStub,
  node: byStub,
  channel: byChannel,
  catalogue: byChannel,
})) {
  for (const each of CASES.filter(({ then }) => way in then)) {
    test(`R43 R74 P48 ${way}: ${each.name} is ${each.then[way]}`, () => run(each, way));
  }
}
