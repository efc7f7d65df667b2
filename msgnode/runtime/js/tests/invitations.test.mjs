/** Invitations: the cases that both languages share. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { cases, like } from "./cases.mjs";
import { settled } from "./fake-clock.mjs";
import { assertedOf, publish, tokenOf } from "./issuer.mjs";
import { HOME, R, endWorld, newWorld, until } from "./world.mjs";

const F = "a.example";
const G = "mallory.example";
const A = `hyperty://${F}/alice`;
const BOB = "user://d/bob";
const RECEIVES = {
  subscribePush: { code: 200, value: { endpoint: "https://d/push/1", userURL: BOB, expires: 1 } },
  unsubscribePush: { code: 200 },
};

const seconds = () => Math.floor(Date.now() / 1000);

/** {"$in": n} is the time in n seconds; {f} and {g} are domains. */
function named(value) {
  if (typeof value === "string") return value.replaceAll("{f}", F).replaceAll("{g}", G);
  if (value === null || typeof value !== "object") return value;
  if (value.$in) return seconds() + value.$in;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, named(each)]));
}

/** The steps of a case: a runtime whose home node's identity manager answers as they say. */
class Play {
  #all = newWorld();
  #asked = [];
  #heard = [];
  #over = [];
  #answers = {};
  #sent = {};
  #withdrawing;
  #isHeld = Promise.resolve(); // until the domain f tells its keys

  async steps(steps) {
    const { catalogues, world } = this.#all;
    await catalogues.add(HOME);
    for (const domain of [F, G]) await publish(catalogues, domain);
    const url = `https://${F}/o/.well-known/openid-configuration`;
    const known = catalogues.answers.get(url);
    catalogues.answers.set(url, async () => (await this.#isHeld, known));
    world.sent = (stub, { id, type, from, to, body }) => {
      if (type !== "execute" || to !== `domain://idm.${HOME}`) return;
      this.#asked.push(body);
      const answer = this.#answers[body.method] ?? { code: 404, description: "off" };
      stub.bring({ id, type: "response", from: to, to: from, body: answer });
    };
    for (const [act, ...words] of steps) await this[act](...words.map(named));
  }

  end_ = () => endWorld(this.#all);

  // --- what happens -------------------------------------------------------------------------------

  settle = settled;
  home = (answers) => void (this.#answers = answers);
  stop = () => this.#all.runtime.invitations.stop();

  async receive(code = 200) {
    if (code === 200) this.#answers = RECEIVES;
    const withdrawn = ({ invitation }) => this.#over.push(invitation);
    const hear = (invitation) => this.#heard.push(invitation);
    await this.#isTold(
      code,
      this.#all.runtime.invitations.receive(hear, { hyperty: "hyperty://d/b", withdrawn }),
    );
  }

  /** What the home node says after somebody has left this at the endpoint. */
  async leave({ claims = {}, signer, sender = `domain://idm.${HOME}`, ...changes }) {
    const value = { invitation: "i1", expires: seconds() + 60, ...changes.value };
    const { invitation, expires: exp, resource } = value;
    const said = await assertedOf(F, { exp, invitation, from: A, to: BOB, resource, ...claims });
    const identity = { assertion: await tokenOf(said, { signer }), idp: { domain: F } };
    const body = { from: A, to: BOB, identity, protostub: said.protostub, ...changes, value };
    this.#says("update", sender, body);
  }

  #says(type, from, body) {
    this.#all.world.started[0].bring({ id: 1, type, from, to: `${R}/invitations`, body });
  }

  async flood(times, counter, count) {
    let letGo;
    this.#isHeld = new Promise((resolve) => (letGo = resolve));
    for (let n = 0; n < times; n += 1) await this.leave({ value: { invitation: `i${n}` } });
    await until(() => this.#all.bus.counters[counter] === count, "the flood");
    letGo();
  }

  withdraws(invitation, from = `domain://idm.${HOME}`) {
    this.#says("delete", from, { to: BOB, value: { invitation } });
  }

  async send(name, { endpoint = "https://f/push/1", ...more } = {}, code = 200) {
    const options = { hyperty: "hyperty://d/a", ...more };
    const card = { userURL: "user://f/bob", endpoint };
    this.#sent[name] = await this.#isTold(code, this.#all.runtime.invitations.send(card, options));
  }

  async does(method, name, code) {
    assert.notEqual(await this.#isTold(code, this.#sent[name][method]()), false);
  }

  withdrawing = (name) => void (this.#withdrawing = this.#sent[name].withdraw());
  withdrawn = (code) => this.#isTold(code, this.#withdrawing);

  async #isTold(code = 200, asking) {
    if (code === 200) return asking;
    await assert.rejects(asking, { code });
    return undefined;
  }

  // --- what is so ---------------------------------------------------------------------------------

  async heard(...expected) {
    await until(() => this.#heard.length >= expected.length, "the invitations");
    assert.deepEqual(
      this.#heard.map((each, n) => like(expected[n] ?? {}, each)),
      expected,
    );
  }

  async over(...names) {
    await until(() => this.#over.length >= names.length, "that they are withdrawn");
    assert.deepEqual(this.#over, names);
  }

  async refused(count) {
    const { errors } = this.#all;
    await until(() => errors.length >= count, "the refusal");
    assert.deepEqual(
      errors.map(({ reason }) => reason),
      Array(count).fill("invitations.refused"),
    );
  }

  asked = (expected) => assert.deepEqual(like(expected, this.#asked.at(-1)), expected);

  unloaded() {
    assert.equal(this.#all.world.started.length, 1); // the home stub
    assert.ok(!this.#all.catalogues.asked.some((each) => each.includes(`${F}/.well-known/proto`)));
  }

  unasked() {
    const abroad = this.#all.catalogues.asked.filter((each) => !each.includes(`//${HOME}/`));
    assert.deepEqual(abroad, []);
  }

  accepts(name, isIt, invitation = "secret", type = "create") {
    const body = invitation === null ? undefined : { value: { invitation } };
    assert.equal(this.#sent[name].isAcceptedBy({ type, body }), isIt);
  }
}

for (const { name, steps } of await cases("invitations"))
  test(name, async () => {
    const play = new Play();
    await play.steps(steps);
    await play.end_();
  });
