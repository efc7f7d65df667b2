/** A runtime with direct connections in a page: it asks, says numbers, and tells how they came. */

import { Runtime as PageRuntime } from "../../msgnode/runtime/js/src/index.js";

const { RTCPeerConnection: InPage = null } = globalThis;

/**
 * @param options for the Runtime; `webrtc: false` for a platform without it, `identity` to log in with
 * @param platform {Runtime, RTCPeerConnection} where it is no page
 */
export async function talker(
  { webrtc = true, identity, ...options },
  { Runtime = PageRuntime, RTCPeerConnection = InPage } = {},
) {
  const channels = new Set();
  class Watched extends (RTCPeerConnection ?? Object) {
    constructor(configuration) {
      super(configuration);
      this.addEventListener?.("datachannel", ({ channel }) => channels.add(channel));
    }

    createDataChannel(...words) {
      const channel = super.createDataChannel(...words);
      channels.add(channel);
      return channel;
    }
  }
  if (options.p2p?.stubs === "catalogue" && InPage) globalThis.RTCPeerConnection = Watched; // stubs take the page's
  const runtime = new Runtime({
    ...options,
    RTCPeerConnection: webrtc && RTCPeerConnection ? Watched : null,
  });
  const { bus } = runtime;
  const url = `${runtime.url}/app`;
  const [numbers, states, faults] = [[], [], []];
  let [byChannel, said, saying] = [0, 0, null];
  bus.onError(({ reason, error }) => faults.push(`${reason}: ${error}`));
  bus.addListener(
    `${runtime.url}/status`,
    ({ body }) => body.peer && states.push([body.peer, body.value, performance.now()]),
  );
  bus.addListener(url, ({ id, type, from, to, body }) => {
    if (type === "response") return;
    if (body.via.includes("/p2prequester/")) byChannel += 1;
    if (type === "update") numbers.push(body.value);
    else
      bus.postMessage({
        id,
        type: "response",
        from: to,
        to: from,
        body: { code: 200, value: body.value, cameBy: body.via },
      });
  });
  const slow = { asked: [], answers: [] };
  bus.addListener(`${runtime.url}/slow`, (message) => slow.asked.push(message));
  await runtime.logIn(identity);

  const peerOf = (other) => runtime.p2p?.known.of(other);
  return {
    url,
    runtimeURL: runtime.url,
    handler: runtime.p2p?.handler ?? "",
    registration: runtime.p2p?.registration ?? null,
    ask: async (to, value, named = {}) => {
      const began = performance.now();
      const answer = await bus.request({
        type: "create",
        from: url,
        to,
        body: { value, ...named },
      });
      return { value: answer.value, cameBy: answer.cameBy, took: performance.now() - began };
    },
    /** A hyperty that answers with its name. */
    hyperty: async (name) =>
      (await runtime.hyperty(name, { handlers: (value) => [name, value] })).url,
    /** Ask several in turn, so many times within so many seconds: who answered otherwise, and the ways. */
    askInTurn: async (all, count, seconds, register = true) => {
      const me = await runtime.hyperty("asker", { register, p2p: register });
      const [wrong, ways] = [[], {}];
      const began = performance.now();
      for (let n = 0; n < count; n += 1) {
        const [name, address] = all[n % all.length];
        const due = began + (1000 * seconds * n) / count - performance.now();
        if (due > 0) await new Promise((resolve) => setTimeout(resolve, due));
        const { way } = runtime.explain(address, me.url);
        ways[way] = (ways[way] ?? 0) + 1;
        const said = await me.request(address, n).catch(String);
        if (said[0] !== name || said[1] !== n) wrong.push([n, name, said]);
      }
      return { wrong, ways, took: performance.now() - began };
    },
    /** Ask an address of the other's that answers later. */
    askSlowly: (other) => {
      bus.postMessage({ type: "create", from: url, to: `${other}/slow`, body: {} }, ({ body }) =>
        slow.answers.push(body),
      );
    },
    slow: () => ({ cameBy: slow.asked.map(({ body }) => body.via), answers: slow.answers }),
    /** Close the channels, and answer what was asked slowly once that is told. */
    closeAndAnswer: async () => {
      const count = states.length;
      for (const channel of channels) channel.close();
      while (states.length === count) await new Promise((resolve) => setTimeout(resolve, 1));
      for (const { id, from, to } of slow.asked)
        bus.postMessage({
          id,
          type: "response",
          from: to,
          to: from,
          body: { code: 200, value: "late" },
        });
      return states.at(-1)[1];
    },
    /** Say so many numbers at once. */
    tell: (to, count) => {
      for (let n = 0; n < count; n += 1)
        bus.postMessage({ type: "update", from: url, to, body: { value: n } });
    },
    /** Say numbers without a pause, until stop(). */
    start: (to) => {
      saying = setInterval(() => {
        for (let n = 0; n < 5; n += 1)
          bus.postMessage({ type: "update", from: url, to, body: { value: (said += 1) - 1 } });
      }, 10);
    },
    stop: () => {
      clearInterval(saying);
      return said;
    },
    heard: () => ({
      count: numbers.length,
      isInOrder: numbers.every((value, index) => value === index),
      byChannel,
    }),
    states: () => states,
    faults: () => faults,
    way: (other) => peerOf(other)?.link.way ?? "node",
    resent: (other) => peerOf(other)?.link.resent ?? 0,
    bye: (other, reason) => peerOf(other).bye(reason),
    /** Every frame vanishes from now on, in both directions, and nobody is told. */
    cut: () => {
      for (const channel of channels) {
        channel.send = () => {};
        channel.onmessage = null;
      }
      channels.clear();
    },
    close: () => runtime.close(),
  };
}

/** Pairs whose ends invite each other at once, all in this page: what became of each. */
export async function glare(options, count) {
  const pairs = await Promise.all(
    Array.from({ length: count }, () => Promise.all([talker(options), talker(options)])),
  );
  const invite = (one, other) =>
    one.ask(other.url, 1, { p2p: true, p2pHandler: other.handler, p2pRequester: "x" });
  const isOpen = ([one, other]) =>
    one.way(other.runtimeURL) === "channel" && other.way(one.runtimeURL) === "channel";
  await Promise.all(pairs.flatMap(([one, other]) => [invite(one, other), invite(other, one)]));
  for (const [one, other] of pairs) {
    one.tell(other.url, 10);
    other.tell(one.url, 10);
  }
  const end = performance.now() + 60_000;
  const isDone = (pair) => isOpen(pair) && pair.every((each) => each.heard().count === 10);
  while (!pairs.every(isDone) && performance.now() < end)
    await new Promise((resolve) => setTimeout(resolve, 20));
  const found = pairs.map((pair) => ({
    isOpen: isOpen(pair),
    heard: pair
      .map((each) => each.heard())
      .every(({ count, isInOrder }) => count === 10 && isInOrder),
    words: pair.flatMap((each) => each.states().map(([, word]) => word)),
    faults: pair.flatMap((each) => each.faults()),
  }));
  await Promise.all(pairs.flat().map((each) => each.close()));
  return found;
}
