/**
 * Which messages take a channel, in which runtime an address is, and so who may say what on a channel.
 *
 * It follows docs/reference/p2p.md, rows 34-38.
 */

import {
  domainOf,
  isBelow,
  isEvent,
  isP2P,
  resourceOf,
  runtimeOf,
  schemeOf,
  stubFor,
} from "../addresses.js";
import { limited } from "../clock.js";
import { isPrivateStatus } from "../inbound.js";
import { answerTo, errorBody, without } from "../messages.js";
import { contentOf } from "./frames.js";
import { keepNewest, plain, runtimeOfHandler } from "./states.js";

const KNOWN_TIME = 600_000;
const ASK_TIME = 10_000;
const MAX_FORGED = 10;
const MAX_WAITING = 1_000; // senders that have their receiver dialled after one look-up
const ON_THE_WAY = 60_000; // ms after which what went through the node has arrived
const MAX_SENT = 1_000; // addresses that are remembered; of more than that, those sent to last
const BACK_ENDS = new Set(["domain", "global", "domain-idp", "mn"]);

/** The addresses that a message says to come from. */
export function namesOf({ from, body }) {
  return [from, body?.source, body?.subscriber].filter((each) => typeof each === "string");
}

/** The message without what names its receiver's runtime: that is for the sender's alone. */
export function withoutPeer(message) {
  return without(message, ["peer"]);
}

/** Whether no registry says that the sender is in this runtime: the other side of a channel would not believe it. */
export function isUnregistered(message, bus) {
  return bus.unregistered.size > 0 && namesOf(message).some((each) => bus.unregistered.has(each));
}

/** Whether a message takes no channel: it has many readers, is for a back-end, or signals. */
export function isForNode(message) {
  const { to } = message;
  if (BACK_ENDS.has(schemeOf(to)) || isEvent(to)) return true;
  return [to, ...namesOf(message)].some(isP2P) || to.startsWith("connection:");
}

export const NO_BYTES = "There is no channel, and JSON cannot carry bytes.";

/** What takes the place of an answer whose content is bytes, where there is no channel. */
export function withoutBytes({ id, from, to }) {
  return answerTo({ id, from: to, to: from }, errorBody(503, NO_BYTES));
}

/** The way through the node, which nothing on a channel may overtake. */
export class NodePath {
  #resolver;
  #sentAt = new Map();

  constructor(resolver) {
    this.#resolver = resolver;
  }

  /** Send a message through the node; bytes, which JSON cannot carry, are refused. */
  send(message, via) {
    const { bus } = this.#resolver;
    const hasBytes = contentOf(message) !== null;
    if (hasBytes && message.type !== "response") {
      bus.refuse(message, 503, NO_BYTES);
      return;
    }
    const said = hasBytes ? withoutBytes(message) : message;
    const stub = this.#resolver.routeByNode(said, via);
    if (stub !== undefined) bus.forward(stub, said);
  }

  /** Whether what is sent to an address goes the way of the signalling with another runtime, which its fence takes. */
  isShared(to, signalling) {
    const { homeDomain, names } = this.#resolver;
    const key = stubFor(to, homeDomain, names)?.key;
    return Boolean(key) && key === stubFor(signalling, homeDomain, names)?.key;
  }

  /** A message went there through the node while a channel was in use. */
  sent(to, now) {
    keepNewest(this.#sentAt, to, now, MAX_SENT);
  }

  /** Whether one may still be on the way there; only the first who asks is told so. */
  takeSent(to, now) {
    const at = this.#sentAt.get(to);
    this.#sentAt.delete(to);
    return at !== undefined && now - at < ON_THE_WAY;
  }
}

/** What an address is looked up by: its runtime's URL, or the object that it is a part of. */
function placed(address) {
  return runtimeOf(address) || resourceOf(address);
}

/** In which runtime an address is, as the registry of its domain says. */
export class Whereabouts {
  #bus;
  #known = new Map(); // url -> {record, until}
  #said = new Map(); // sender and url -> {record, until}
  #asked = new Map(); // url -> who waits -> what is called for him
  #forged = new Map(); // runtime -> when it spoke for others

  constructor(bus) {
    this.#bus = bus;
  }

  /**
   * What a message is that a channel of `runtime` brought: {verdict: "good", "bad", "unknown" or "forged", about: the
   * address to be looked up first, or what is wrong}.
   */
  judge(message, runtime) {
    const { type, from, to } = message;
    if (![type, from, to].every((each) => typeof each === "string" && each))
      return { verdict: "bad" };
    for (const name of namesOf(message)) {
      if (isBelow(plain(name), plain(runtime))) continue;
      const record = runtimeOf(name) ? {} : this.of(name);
      if (record === null) return { verdict: "unknown", about: name };
      if (typeof record.runtime !== "string" || plain(record.runtime) !== plain(runtime))
        return { verdict: "forged", about: `${name} is not known to be in ${runtime}.` };
    }
    if (isP2P(to)) return { verdict: "forged", about: "Signalling goes through the node." };
    return { verdict: isPrivateStatus(to, this.#bus.runtimeURL) ? "bad" : "good" };
  }

  /** Count a message in another's name; whether it is the tenth in a minute. */
  isTooManyForged(runtime) {
    const now = this.#bus.clock.now();
    const before = (this.#forged.get(runtime) ?? []).filter((at) => at > now - 60_000);
    const lately = [...before, now].slice(-MAX_FORGED);
    keepNewest(this.#forged, runtime, lately);
    return lately.length >= MAX_FORGED;
  }

  /** What is known of an address, {} if nothing; null if the registry has to be asked. The own word of `sender` counts
   *  besides, where the registry names no other runtime. */
  of(address, sender = "") {
    const url = placed(address);
    const now = this.#bus.clock.now();
    const isFresh = (found) => found && found.until >= now;
    const [found, said] = [this.#known.get(url), this.#said.get(`${sender}\n${url}`)];
    const record = isFresh(found) ? found.record : null;
    if (!isFresh(said)) return record;
    const named = record?.runtime || said.record.runtime;
    return plain(String(named)) === plain(said.record.runtime) ? said.record : record;
  }

  /** Where an address was last, however long ago: {runtime, p2pHandler}, each "" if it is not known. */
  placeOf(address, sender) {
    const { runtime, p2pHandler } =
      this.of(address, sender) ?? this.#known.get(placed(address))?.record ?? {};
    const [place, handler] = [runtime, p2pHandler].map((each) =>
      typeof each === "string" ? each : "",
    );
    return { runtime: place, p2pHandler: handler };
  }

  /** The handler that a sender has named for an address, "" for none. */
  saidBy(sender, address) {
    const said = this.#said.get(`${sender}\n${placed(address)}`);
    return said && said.until >= this.#bus.clock.now() ? said.record.p2pHandler : "";
  }

  /** Have a receiver's runtime dialled, as soon as it is known where that is: by its handler that is `named`, or that
   *  the registry tells. `dial` is called with the runtime and its handler. */
  toDial(address, sender, named, dial) {
    if (named) this.say(sender, address, { runtime: runtimeOfHandler(named), p2pHandler: named });
    const found = () => {
      const { p2pHandler, runtime: place } = this.of(address, sender) ?? {};
      const runtime = typeof p2pHandler === "string" ? runtimeOfHandler(p2pHandler) : "";
      if (!runtime || (typeof place === "string" && plain(place) !== plain(runtime))) return;
      if (plain(runtime) !== plain(this.#bus.runtimeURL)) dial(runtime, p2pHandler);
    };
    if (this.of(address, sender) === null) this.ask(address, sender, found);
    else found();
  }

  /** Ask again if that was long ago; until then it counts. */
  renew(address, sender) {
    if (this.of(address, sender) === null && !this.#asked.has(placed(address)))
      this.ask(address, "", () => {});
  }

  /** The other side does not know the address: look again when it is needed. */
  forget(address) {
    this.#known.delete(placed(address));
  }

  /** Keep what a sender says of his receiver. It is his word: nobody else goes by it. */
  say(sender, address, record) {
    keepNewest(this.#said, `${sender}\n${placed(address)}`, {
      record,
      until: this.#bus.clock.now() + KNOWN_TIME,
    });
  }

  /** Keep what is known of an address. */
  note(address, record) {
    keepNewest(this.#known, placed(address), {
      record,
      until: this.#bus.clock.now() + KNOWN_TIME,
    });
  }

  /**
   * Ask the registry, unless it is being asked; then call `then`, once for each who waits.
   *
   * @param who a text for a sender, of whom there may be too many; else whatever there are few of, such as a peer: he
   *   is told in any case, however many others wait, or what they do
   */
  ask(address, who, then) {
    const url = placed(address);
    const waiting = this.#asked.get(url);
    if (waiting) {
      if (waiting.size < MAX_WAITING || typeof who !== "string") waiting.set(who, then);
      return;
    }
    this.#asked.set(url, new Map([[who, then]]));
    this.#look(url).then((record) => {
      this.note(url, record);
      const all = this.#asked.get(url) ?? new Map();
      this.#asked.delete(url);
      for (const each of all.values()) this.#bus.call(each);
    });
  }

  /** Ask the registry, or the runtime itself for where it can be dialled. */
  async #look(url) {
    const runtime = runtimeOf(url);
    const request = {
      type: "read",
      from: `${this.#bus.runtimeURL}/registry/`,
      to: runtime ? `${runtime}/p2phandler` : `domain://registry.${domainOf(url)}`,
      body: { resource: url },
    };
    try {
      const { value } = await limited(
        this.#bus.request(request),
        ASK_TIME,
        () => new Error("late"),
        this.#bus.clock,
      );
      if (typeof value !== "object" || value === null) return {};
      return runtime ? { runtime, p2pHandler: value.p2pHandler } : value;
    } catch {
      return {};
    }
  }

  /** Tell who reads `<runtime URL>/p2phandler` how this runtime is dialled. Returns the listener. */
  tellOwn(registration) {
    const { runtimeURL: runtime } = this.#bus;
    return this.#bus.addListener(`${runtime}/p2phandler`, (message) => {
      if (message.type === "response" || message.body?.via === undefined) return;
      const body =
        message.type === "read"
          ? { code: 200, value: { runtime, ...registration } }
          : errorBody(405, "Here one reads where the runtime can be dialled.");
      this.#bus.postMessage(answerTo(message, body));
    });
  }

  /** Tell nobody any more. */
  close() {
    this.#asked.clear();
  }
}
