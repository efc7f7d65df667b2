/**
 * runtime.invitations: conversations that the caller hosts. The callee is invited at the endpoint that his card
 * names, and comes to the caller's domain.
 *
 *   await runtime.invitations.receive(({ user, hyperty, invitation }) => …);      // the callee
 *   const sent = await runtime.invitations.send("bob@example.org", { hyperty });  // the caller
 *   if (sent.isAcceptedBy(message)) …                                             // once, before it expires
 *   await sent.withdraw();                                                        // or not any more
 *
 * Rules
 * - Both are logged in at home: the home node keeps the endpoint, signs what is sent, and posts it.
 * - The application hears of an invitation only if the caller's domain has signed it: who invites whom to what, and
 *   which code leads there. Until it expires the runtime loads no other code for that domain.
 * - Each is heard once, and that it was withdrawn once after it. AT_ONCE are checked at a time; what comes meanwhile is dropped and counted, as forged ones are.
 * - A domain that the options do not name is asked only if it looks like a public one.
 */

import { domainOf } from "./addresses.js";
import { checkAddress, checkFunction, wrong } from "./arguments.js";
import { checkedToken } from "./cards.js";
import { CardError } from "./errors.js";

const AT_ONCE = 4;
const MAX_SEEN = 1_000;
const MAX_SECONDS = 600; // that an invitation may be good for
const PUBLIC = /^([a-z0-9_-]+\.)+(?!(local|localhost|internal|localdomain|test)$)[a-z][a-z0-9-]*$/;

export class Invitations {
  #bus;
  #url;
  #domain;
  #cardOf;
  #catalogue;
  #expect;
  #item = null;
  #listener = null;
  #userURL = "";
  #checking = 0;
  #seen = new Map(); // name and caller -> when it expires
  #open = new Map(); // name -> the invitation the application has heard of
  #withdrawn = new Map(); // name -> until when it is not to be heard
  #told = null;

  /**
   * @param runtime {bus, url, domain, catalogue, cardOf}
   * @param expect told (domain, digests, until): the code that may be loaded for a domain
   */
  constructor({ bus, url, domain, catalogue, cardOf }, expect) {
    this.#bus = bus;
    this.#url = `${url}/invitations`;
    this.#domain = domain;
    this.#catalogue = catalogue;
    this.#cardOf = cardOf;
    this.#expect = expect;
  }

  /**
   * Be invited from now on.
   *
   * @param listener called with {user, domain, hyperty, invitation, expires, resource}
   * @param hyperty what callers may also call directly: an address this session holds
   * @param withdrawn called with the invitation if its caller withdraws it before it expires
   * @returns {endpoint, userURL, expires: seconds since 1970; renewed by asking again}
   * @throws AnswerError 401 for who is not logged in, 404 where the node takes no invitations
   */
  async receive(listener, { hyperty, withdrawn } = {}) {
    checkFunction("listener", listener);
    const value = await this.#ask("subscribePush", hyperty ? { hyperty } : {});
    this.#userURL = value.userURL;
    this.#listener = listener;
    this.#told = withdrawn ?? null;
    this.#item ??= this.#bus.addListener(this.#url, (message) => this.#hear(message));
    return value;
  }

  /** Be invited no longer; what waits at the endpoint goes with it. */
  async stop() {
    this.#item?.remove();
    this.#item = this.#listener = this.#told = null;
    await this.#ask("unsubscribePush", {});
  }

  /**
   * Invite somebody of another domain.
   *
   * @param user bob@example.org, a user URL, or a card
   * @param order {hyperty: the address here at which he is to answer, which this session holds; seconds: how long it
   *   can be accepted, 1 to 600; resource: what he is invited to, an object that this session holds; stay: how many
   *   seconds he may stay once he has accepted, where the node knows him by nothing else, at least until it expires}
   * @returns {invitation, expires, isAcceptedBy(message), withdraw(), end(), reopen()}: withdraw gives whether the
   *   callee's node has taken note; 409 once it is accepted. `end` sends away who has accepted it; `reopen` too, and
   *   somebody else may accept it until it expires, then 410
   * @throws CardError 404 if he has no card, 410 if his card names no endpoint; AnswerError of the home node
   */
  async send(user, { hyperty, seconds = 60, resource, stay } = {}) {
    if (typeof user !== "string" && (typeof user !== "object" || user === null))
      throw wrong("user", "bob@example.org, a user URL, or a card", user);
    checkAddress("hyperty", hyperty);
    const card = typeof user === "string" ? await this.#cardOf(user) : user;
    if (!card.endpoint)
      throw new CardError(410, `${card.userURL} cannot be invited: no runtime of his asks for it.`);
    const params = { endpoint: card.endpoint, user: card.userURL, hyperty, seconds };
    if (resource) params.resource = resource;
    if (stay) params.stay = stay;
    const { invitation, expires, location } = await this.#ask("sendInvitation", params);
    let isOpen = true;
    let isAccepted = false;
    const isAcceptedBy = ({ type, body }) => {
      const isIt =
        isOpen &&
        type !== "response" &&
        body?.value?.invitation === invitation &&
        Date.now() < expires * 1000;
      if (isIt) [isOpen, isAccepted] = [false, true];
      return isIt;
    };
    const withdraw = async () => {
      const tooLate = () =>
        new CardError(409, "The invitation was accepted before it was withdrawn.");
      if (isAccepted) throw tooLate();
      const { told } = await this.#ask(
        "withdrawInvitation",
        location ? { invitation, location } : { invitation },
      );
      if (isAccepted) throw tooLate();
      isOpen = false;
      return told === true;
    };
    const end = async () => {
      await this.#ask("endInvitation", { invitation });
      isOpen = false;
    };
    const reopen = async () => {
      await this.#ask("reopenInvitation", { invitation });
      [isOpen, isAccepted] = [true, false];
    };
    return { invitation, expires, isAcceptedBy, withdraw, end, reopen };
  }

  async #ask(method, params) {
    const to = `domain://idm.${this.#domain}`;
    const { value } = await this.#bus.request({
      type: "execute",
      from: this.#url,
      to,
      body: { method, params },
    });
    return value;
  }

  #hear({ type, from, body }) {
    if (from !== `domain://idm.${this.#domain}` || !this.#listener) return;
    if (type === "delete") this.#end(body?.value?.invitation);
    if (type !== "update") return;
    if (this.#checking >= AT_ONCE) {
      this.#bus.report("invitations.flood", { isQuiet: true });
      return;
    }
    this.#checking += 1;
    this.#checked(body)
      .then(
        (invitation) => invitation && this.#listener && this.#bus.call(this.#listener, invitation),
      )
      .catch((error) => this.#bus.report("invitations.refused", { error }))
      .finally(() => (this.#checking -= 1));
  }

  /** A caller has withdrawn an invitation, which may be on its way or being checked still. */
  #end(name) {
    if (typeof name !== "string" || this.#withdrawn.has(name)) return;
    const now = Date.now() / 1000;
    drop(this.#withdrawn, now);
    this.#withdrawn.set(name, now + MAX_SECONDS);
    const invitation = this.#open.get(name);
    this.#open.delete(name);
    if (invitation && invitation.expires > now && this.#told)
      this.#bus.call(this.#told, invitation);
  }

  /** The invitation, if it is one; nothing if it has been heard. @throws CardError */
  async #checked({ from: hyperty, to, value, identity, protostub }) {
    const { invitation, expires, resource } = value ?? {};
    const now = Date.now() / 1000;
    if (!(expires > now)) throw new CardError(410, "The invitation has expired.");
    if (to !== this.#userURL) throw new CardError(502, "The invitation is for somebody else.");
    const domain = typeof hyperty === "string" ? domainOf(hyperty) : "";
    const isKnown = Object.hasOwn(this.#catalogue.catalogues, domain);
    if (!isKnown && !PUBLIC.test(domain))
      throw new CardError(502, `${domain} is no public domain.`);
    const card = await checkedToken(String(identity?.assertion), domain, this.#catalogue);
    const { claims } = card;
    const isSame = claims.invitation === invitation && claims.from === hyperty && claims.to === to;
    if (
      !isSame ||
      claims.resource !== resource ||
      card.expires !== expires ||
      card.protostub !== protostub
    ) {
      throw new CardError(502, "What the caller's domain has signed is another invitation.");
    }
    const key = `${hyperty} ${invitation}`;
    if (this.#seen.has(key) || this.#withdrawn.has(invitation)) return null;
    drop(this.#seen, now);
    this.#seen.set(key, expires);
    if (card.digests.length && domain !== this.#domain) this.#expect(domain, card.digests, expires);
    const heard = Object.freeze({
      user: card.userURL,
      domain,
      hyperty,
      invitation,
      expires,
      resource,
    });
    for (const [name, { expires }] of this.#open)
      if (expires <= now || this.#open.size >= MAX_SEEN) this.#open.delete(name);
    this.#open.set(invitation, heard);
    return heard;
  }
}

/** Forget what is over, and the oldest of too many. */
function drop(ends, now) {
  for (const [each, until] of ends) if (until <= now || ends.size >= MAX_SEEN) ends.delete(each);
}
