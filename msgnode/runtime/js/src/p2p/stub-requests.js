/** What is asked of our P2P stubs through the node, by the stubs of others and by the node itself. */

import { domainOf } from "../addresses.js";
import { SetUpError, askedOf, countOf } from "./signalling.js";

const MAX_DELIVERING = 100; // answers that wait for it to be known whose they are

/** Does what an `execute` asks: confirm, deliver, fence, resume; disconnect. */
export class StubRequests {
  #bus;
  #talk;
  #known;
  #setUps;
  #arrivals;
  #delivering = 0;

  constructor(bus, { talk, known, setUps, arrivals }) {
    [this.#bus, this.#talk, this.#known, this.#setUps, this.#arrivals] = [
      bus,
      talk,
      known,
      setUps,
      arrivals,
    ];
  }

  /** Do it, and answer. Throws SetUpError. */
  take(message) {
    const { method, said } = askedOf(message);
    if (method === "confirm") this.#setUps.confirm(message, said);
    else if (method === "disconnect") this.#hangUp(message, said);
    else {
      const peer = this.#known.ofStub(message.from);
      if (!peer) throw new SetUpError(410, "There is no connection with that stub.");
      this.#ofPeer(peer, message, method, said);
    }
  }

  #ofPeer(peer, message, method, said) {
    const epoch = String(said.epoch);
    if (method === "fence") {
      if (!peer.fenceAsked(epoch, countOf(said.k)))
        throw new SetUpError(410, "The epoch is unknown.");
      this.#talk.answer(message, 200);
    } else if (method === "resume") {
      const received = peer.resumeAsked(epoch, countOf(said.received), said.bye);
      if (received === null) throw new SetUpError(410, "The epoch is unknown.");
      this.#talk.answer(message, 200, "", { epoch, received });
    } else if (method === "deliver") {
      if (said.type !== "response")
        throw new SetUpError(403, "Only answers to what was asked are delivered so.");
      if (this.#delivering >= MAX_DELIVERING)
        throw new SetUpError(503, "Too many answers wait for a look-up of their senders.");
      this.#deliver(peer, message, said);
    } else
      throw new SetUpError(405, "A P2P stub knows confirm, deliver, disconnect, fence and resume.");
  }

  /** Take an answer in, as soon as it is known whose it is. */
  #deliver(peer, message, said) {
    const again = () => {
      this.#delivering -= 1;
      this.#deliver(peer, message, said);
    };
    if (this.#arrivals.take(peer, said, again)) this.#talk.answer(message, 200);
    else this.#delivering += 1;
  }

  /** The node no longer vouches for a peer; it expects no answer. */
  #hangUp({ from, to }, { peer: named }) {
    if (from !== `domain://msg-node.${domainOf(to)}/p2p`)
      throw new SetUpError(403, "The node alone orders to hang up.");
    for (const peer of typeof named === "string" ? this.#known.allOf(named) : []) {
      if (to !== this.#talk.handler && to !== peer.via) continue;
      this.#bus.report("p2p.ordered-to-hang-up", { isQuiet: true });
      peer.forbid();
    }
  }
}
