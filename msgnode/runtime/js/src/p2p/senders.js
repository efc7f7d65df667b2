/**
 * Who may say what on a channel: only the runtime at its other end, and what is registered as its.
 *
 * Rules
 * - An address below the runtime's URL is its own, one below another's is not. Any other is looked up in its domain's
 *   registry once in ten minutes: the entry has to name the runtime.
 * - The marks of a node are taken off: no node has seen what comes on a channel.
 */

import {
  domainOf,
  isBelow,
  isEvent,
  isP2P,
  resourceOf,
  runtimeOf,
  schemeOf,
} from "../addresses.js";
import { limited } from "../clock.js";
import { isPrivateStatus } from "../inbound.js";
import { answerTo, codeOf, errorBody, isAnswerable, without, withoutMarks } from "../messages.js";
import { keepNewest, plain } from "./states.js";

const KNOWN_TIME = 600_000;
const ASK_TIME = 10_000;
const MAX_FORGED = 10;
const MAX_WAITING = 1_000; // senders that have their receiver dialled after one look-up
const BACK_ENDS = new Set(["domain", "global", "domain-idp", "mn"]);

/** The addresses that a message says to come from. */
export function namesOf({ from, body }) {
  return [from, body?.source, body?.subscriber].filter((each) => typeof each === "string");
}

/** The message without what names its receiver's runtime: that is for the sender's alone. */
export function withoutPeer(message) {
  return without(message, ["peer"]);
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

/** How often the other sides of channels have spoken for others. */
export class Forgeries {
  #at = new Map();

  /** Count one; whether it is the tenth in a minute. */
  isTooMany(runtime, now) {
    const lately = [...(this.#at.get(runtime) ?? []).filter((at) => at > now - 60_000), now].slice(
      -MAX_FORGED,
    );
    keepNewest(this.#at, runtime, lately);
    return lately.length >= MAX_FORGED;
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

  constructor(bus) {
    this.#bus = bus;
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

/** What channels bring: into the bus, if its sender is in the runtime at the other end. */

/** Takes the messages of all channels of one runtime. */
export class Arrivals {
  #bus;
  #whereabouts;
  #forgeries = new Forgeries();

  constructor(bus, whereabouts) {
    this.#bus = bus;
    this.#whereabouts = whereabouts;
  }

  /** Take in what came from a peer; false if its sender has to be looked up first, `then` being called after that. */
  take(peer, message, then = null) {
    if (![message.type, message.from, message.to].every((each) => typeof each === "string" && each))
      return this.#bad(message);
    for (const name of namesOf(message)) {
      if (isBelow(plain(name), plain(peer.runtime))) continue;
      const record = runtimeOf(name) ? {} : this.#whereabouts.of(name);
      if (record === null) {
        if (then) this.#whereabouts.ask(name, then, then);
        else this.#whereabouts.ask(name, peer, () => peer.proceed());
        return false;
      }
      if (typeof record.runtime !== "string" || plain(record.runtime) !== plain(peer.runtime)) {
        this.#forbid(peer, message, `${name} is not known to be in ${peer.runtime}.`);
        return true;
      }
    }
    if (isP2P(message.to)) {
      this.#forbid(peer, message, "Signalling goes through the node.");
      return true;
    }
    if (isPrivateStatus(message.to, this.#bus.runtimeURL)) return this.#bad(message);
    if (message.type.toLowerCase() === "response") {
      if (!this.#bus.isExpected(message, peer.via)) {
        this.#bus.unclaimed(message);
        return true;
      }
      if (codeOf(message.body) === 404) this.#whereabouts.forget(message.from);
    }
    const { body } = message;
    const isText = typeof body === "string";
    try {
      this.#bus.postFrom(
        peer.via,
        withoutMarks({ ...message, body: isText ? { value: body } : (body ?? {}) }),
      );
    } catch {
      return this.#bad(message);
    }
    return true;
  }

  #bad(message) {
    this.#bus.report("p2p.bad", { message, isQuiet: true });
    return true;
  }

  #forbid(peer, message, text) {
    this.#bus.report("p2p.forged", {
      error: new Error(`${peer.runtime} posted as another: ${text}`),
      message,
    });
    if (this.#forgeries.isTooMany(peer.runtime, this.#bus.clock.now()))
      queueMicrotask(() => peer.bye("forbidden"));
    else if (isAnswerable(message) && message.id) {
      const answer = answerTo(message, errorBody(403, text));
      peer.wrap(`${answer.to}\n${answer.id}`);
      peer.send(answer, 0);
    }
  }
}
