/**
 * Who is logged in at a runtime: shown to the home node, renewed before it ends, shown again after a new session.
 *
 * | identity                        | |
 * |---|---|
 * | none                            | nobody: the node decides what a session without one may do |
 * | openid({…}), or {token(), renew(), logOut()} | renewed when four fifths of its time, or all but a minute of it, are over |
 * | {accessToken} or {idToken}      | a token that the application has got itself |
 * | {assertion, idp?, userProfile?} | as the field's identity modules give it |
 *
 * Rules
 * - Anything else is a TypeError: a node that asks for no identity would let a wrong one in as nobody.
 * - The node has to accept it: logIn() rejects with the node's reason, and what is refused later is told (onIdentity).
 * - A provider or node that is away is asked again, until one of them refuses, also when the identity has ended meanwhile.
 */

const SOON = 60_000; // ms before it ends
const SLACK = 5_000; // ms that the node's clock may be ahead
const OVER = [401, 403]; // another try is no use
const WITHOUT_MANAGER = [404, 405, 501];
const RETRY = 5_000; // ms, doubling
const SHAPES = "openid({…}), {accessToken}, {idToken}, or {assertion, idp}";

export class LogIn {
  /** The user URL of who is logged in, "" for nobody. */
  user = "";
  /** What the stub shows at the node. */
  identity = undefined;
  #parts;
  #source = null; // what renews it
  #expires = Infinity;
  #timer = null;
  #failures = 0;

  /** @param parts {bus, domain, listeners: who hears of it, show(identity): have the home stub show it from now on} */
  constructor(parts) {
    this.#parts = parts;
  }

  /** Take an identity, as above: what the stub is to show. @throws TypeError */
  async take(said) {
    this.stop();
    this.#source = sourceOf(said);
    const { token, expires = Infinity, identity } = (await this.#source?.token()) ?? {};
    this.#expires = expires;
    this.identity = identity ?? (token ? { assertion: token } : undefined);
    return this.identity;
  }

  /** The home stub is live: the node is to accept the identity. @throws AnswerError */
  async accepted(state = "logged-in") {
    if (!this.identity) return;
    try {
      await this.#atNode("login", { token: this.identity.assertion });
    } catch (error) {
      if (!WITHOUT_MANAGER.includes(error.code)) throw error; // a node of the field has judged it at the open
    }
    this.#failures = 0;
    this.#arm();
    this.#tell(state);
  }

  /** Log out, at the node and where the identity came from. */
  async end() {
    this.stop();
    const source = this.#source;
    const wasSomebody = this.identity !== undefined;
    this.#source = null;
    this.identity = undefined;
    if (!wasSomebody) return;
    await this.#atNode("logout", {}).catch(() => {}); // its session ends anyway
    await source?.logOut?.();
    this.#tell("logged-out");
    this.user = "";
  }

  /** The home stub connects or was refused: an identity that has ended meanwhile is renewed now. */
  renewIfEnded() {
    if (Date.now() < this.#expires - SLACK) return;
    this.#failures = 0;
    if (this.#timer !== null) this.#renew(); // else it is being renewed, or cannot be
  }

  /** Renew nothing any more. */
  stop() {
    if (this.#timer !== null) this.#parts.bus.clock.clearTimeout(this.#timer);
    this.#timer = null;
  }

  async #atNode(method, params) {
    const { bus, domain } = this.#parts;
    const value = await bus.request({
      type: "execute",
      from: `${bus.runtimeURL}/registry/`,
      to: `domain://idm.${domain}`,
      body: { method, params },
    });
    const { userURL, expires } = value.value ?? {};
    if (typeof userURL === "string") this.user = userURL;
    if (this.#expires === Infinity && expires > 0) this.#expires = expires * 1000;
  }

  #arm(milliseconds = this.#untilRenewal()) {
    this.stop();
    if (milliseconds === Infinity) return;
    const most = 2 ** 31 - 1;
    const { clock } = this.#parts.bus;
    this.#timer = clock.setTimeout(() => this.#renew(), Math.min(most, Math.max(0, milliseconds)));
  }

  #untilRenewal() {
    const left = this.#expires - Date.now();
    return this.#source?.renew ? Math.max(left - SOON, left * 0.8) : left;
  }

  async #renew() {
    this.stop();
    const source = this.#source;
    if (!source?.renew) {
      this.#tell("expired");
      return;
    }
    try {
      const { token, expires } = await source.renew();
      if (source !== this.#source) return; // somebody else has logged in meanwhile
      this.#expires = expires;
      this.identity = { assertion: token };
      await this.#parts.show(this.identity);
      await this.accepted("renewed");
    } catch (error) {
      if (source !== this.#source) return;
      const isOver = OVER.includes(error.code);
      this.#tell(isOver ? "expired" : "failed", error);
      this.#failures += 1;
      if (!isOver) this.#arm(RETRY * 2 ** Math.min(this.#failures - 1, 6));
    }
  }

  #tell(state, error) {
    const expires = this.#expires === Infinity ? undefined : this.#expires;
    const event = { state, user: this.user, expires, ...(error ? { error } : {}) };
    const { listeners } = this.#parts;
    for (const listener of [...listeners]) this.#parts.bus.call(listener, event);
    if (error && !listeners.size) this.#parts.bus.report("identity.lost", { error });
  }
}

/** What gives tokens for an identity: {token(), renew?(), logOut?()}; null for nobody. @throws TypeError */
export function sourceOf(said) {
  if (said === undefined || said === null) return null;
  if (typeof said !== "object" || Array.isArray(said)) throw wrong(`not a ${typeof said}`);
  if (typeof said.token === "function") return said;
  const name = ["accessToken", "idToken", "assertion"].find((each) => each in said);
  if (!name) throw wrong(`it has ${Object.keys(said).join(", ") || "nothing"}`);
  if (!isText(said[name])) throw wrong(`${name} is a text that is not empty`);
  if (name === "assertion") {
    checkProvider(said.idp);
    return { token: async () => ({ identity: said }) };
  }
  if (Object.keys(said).length > 1) throw wrong(`beside ${name} there is nothing else`);
  return { token: async () => ({ token: said[name] }) };
}

function checkProvider(idp) {
  if (idp !== undefined && !isText(idp) && !isText(idp?.domain))
    throw wrong("idp is a domain, or an object with one");
}

function isText(value) {
  return typeof value === "string" && value !== "";
}

function wrong(why) {
  return new TypeError(`identity is ${SHAPES}: ${why}.`);
}
