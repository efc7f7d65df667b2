/** Invitations: whose are heard, once; which are refused; and that what is sent is accepted once. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { settled } from "./fake-clock.mjs";
import { assertedOf, publish, tokenOf } from "./issuer.mjs";
import { HOME, R, newWorld, until } from "./world.mjs";

const A = "hyperty://a.example/alice";
const BOB = "user://d/bob";
const ALICE = "user://a.example/bob"; // as the issuer of the tests calls everybody

let runtime, bus, clock, catalogues, world, errors, heard;

beforeEach(() => {
  ({ runtime, bus, clock, catalogues, world, errors } = newWorld());
  heard = [];
});
afterEach(async () => {
  const closing = runtime.close();
  await settled();
  await clock.turn(10_000);
  await closing;
  assert.equal(clock.timers, 0, "a closed runtime leaves no timer");
});

/** The home node: its identity manager answers as a test says. */
async function atHome(answers) {
  await catalogues.add(HOME);
  const asked = [];
  world.sent = (stub, { id, type, from, to, body }) => {
    if (type !== "execute" || to !== `domain://idm.${HOME}`) return;
    asked.push(body);
    stub.bring({
      id,
      type: "response",
      from: to,
      to: from,
      body: answers[body.method] ?? { code: 404, description: "off" },
    });
  };
  return asked;
}

const endpoint = { code: 200, value: { endpoint: "https://d/push/1", userURL: BOB, expires: 1 } };

async function receive() {
  await atHome({ subscribePush: endpoint, unsubscribePush: { code: 200 } });
  await runtime.invitations.receive((invitation) => heard.push(invitation), {
    hyperty: "hyperty://d/b",
  });
}

/** What the home node says after somebody has left this at the endpoint. */
async function leave({ claims = {}, signer, ...changes } = {}) {
  const expires = Math.floor(Date.now() / 1000) + 60;
  const value = { invitation: "i1", expires, ...changes.value };
  const said = await assertedOf("a.example", {
    exp: value.expires,
    invitation: value.invitation,
    from: A,
    to: BOB,
    resource: value.resource,
    ...claims,
  });
  const identity = { assertion: await tokenOf(said, { signer }), idp: { domain: "a.example" } };
  const body = { from: A, to: BOB, identity, protostub: said.protostub, ...changes, value };
  world.started[0].bring({
    id: 1,
    type: "update",
    from: changes.sender ?? `domain://idm.${HOME}`,
    to: `${R}/invitations`,
    body,
  });
  return body;
}

test("who invites, where to and what to is heard once", async () => {
  await publish(catalogues, "a.example");
  await receive();
  const { value } = await leave({ value: { resource: "comm://a.example/1" } });
  await until(() => heard.length, "the invitation");
  const { expires, invitation, resource } = value;
  assert.deepEqual(heard, [
    { user: ALICE, domain: "a.example", hyperty: A, invitation, expires, resource },
  ]);
  await leave({ value: { resource } });
  await leave({ value: { invitation: "i2" } });
  await until(() => heard.length === 2, "the next one");
  assert.deepEqual(errors, []);
  assert.equal(
    catalogues.asked.some((each) => each.includes("a.example/.well-known/protocolstub")),
    false,
  );
  await runtime.invitations.stop();
  await leave({ value: { invitation: "i3" } });
  await settled();
  assert.equal(heard.length, 2);
});

test("what the caller's domain has not signed is refused, and nothing of it is loaded", async () => {
  await publish(catalogues, "a.example");
  await publish(catalogues, "mallory.example");
  await receive();
  const now = Math.floor(Date.now() / 1000);
  const lies = [
    { signer: "other" },
    { claims: { invitation: "another" } },
    { claims: { from: "hyperty://a.example/mallory" } },
    { claims: { to: "user://d/carol" } },
    { claims: { resource: "comm://a.example/2" } },
    { claims: { exp: now + 3000 } },
    { claims: { aud: "idm" } },
    { claims: { user_url: "user://mallory.example/bob" } },
    { claims: { iss: "https://mallory.example/o" } },
    { protostub: "https://mallory.example/.well-known/protocolstub/default" },
    { to: "user://d/carol" },
    { from: "hyperty://mallory.example/alice" },
    { from: 5 },
    { identity: null },
    { value: { expires: now - 1 } },
    { value: { expires: "soon" } },
  ];
  for (const [count, lie] of lies.entries()) {
    await leave(lie);
    await until(() => errors.length === count + 1, JSON.stringify(lie));
  }
  assert.deepEqual(new Set(errors.map(({ reason }) => reason)), new Set(["invitations.refused"]));
  assert.deepEqual(heard, []);
  assert.equal(world.started.length, 1); // the home stub
});

test("a domain that is not a public one is not asked for anything", async () => {
  await receive();
  catalogues.asked.length = 0;
  for (const domain of [
    "localhost",
    "127.0.0.1",
    "10.1.2.3",
    "printer.local",
    "intranet",
    "a.internal",
    "[::1]",
    "a.example:8443",
    "x.localhost",
  ]) {
    const before = errors.length;
    await leave({ from: `hyperty://${domain}/x` });
    await until(() => errors.length > before, domain);
  }
  assert.deepEqual(catalogues.asked, []);
});

test("a flood is dropped and counted while some are checked", async () => {
  let let_go;
  const gate = new Promise((resolve) => (let_go = resolve));
  await publish(catalogues, "a.example");
  const url = "https://a.example/o/.well-known/openid-configuration";
  const known = catalogues.answers.get(url);
  catalogues.answers.set(url, async () => (await gate, known));
  await receive();
  for (let n = 0; n < 20; n += 1) await leave({ value: { invitation: `i${n}` } });
  await until(() => bus.counters["invitations.flood"] === 16, "the flood");
  let_go();
  await until(() => heard.length === 4, "the four");
});

test("only the home node tells of invitations", async () => {
  await publish(catalogues, "a.example");
  await receive();
  await leave({ sender: "domain://idm.a.example" });
  await settled();
  assert.deepEqual([heard, errors], [[], []]);
});

test("an invitation is sent to the endpoint of the card, and accepted once, before it expires", async () => {
  const expires = Math.floor(Date.now() / 1000) + 60;
  const asked = await atHome({
    sendInvitation: { code: 200, value: { invitation: "secret", expires } },
  });
  const card = { userURL: "user://f/bob", endpoint: "https://f/push/1" };
  const sent = await runtime.invitations.send(card, {
    hyperty: "hyperty://d/a",
    resource: "comm://d/1",
  });
  assert.deepEqual(asked[0].params, {
    endpoint: card.endpoint,
    user: card.userURL,
    hyperty: "hyperty://d/a",
    seconds: 60,
    resource: "comm://d/1",
  });
  const accepts = (invitation, type = "create") =>
    sent.isAcceptedBy({ type, body: { value: { invitation } } });
  assert.deepEqual(
    [accepts("guess"), accepts("secret", "response"), sent.isAcceptedBy({ type: "create" })],
    [false, false, false],
  );
  assert.deepEqual([accepts("secret"), accepts("secret")], [true, false]);
  await assert.rejects(
    runtime.invitations.send({ ...card, endpoint: "" }, { hyperty: "hyperty://d/a" }),
    { code: 410 },
  );
});

test("that an invitation was withdrawn is heard once, after it", async () => {
  await publish(catalogues, "a.example");
  await atHome({ subscribePush: endpoint });
  const over = [];
  await runtime.invitations.receive((invitation) => heard.push(invitation), {
    withdrawn: ({ invitation }) => over.push(invitation),
  });
  const withdraw = (invitation, from = `domain://idm.${HOME}`) =>
    world.started[0].bring({
      id: 1,
      type: "delete",
      from,
      to: `${R}/invitations`,
      body: { to: BOB, value: { invitation } },
    });
  await leave();
  await until(() => heard.length, "the invitation");
  withdraw("i1", "domain://idm.a.example");
  for (const nonsense of [undefined, 5, {}, "i9"]) withdraw(nonsense);
  await settled();
  assert.deepEqual(over, []);
  withdraw("i1");
  withdraw("i1");
  await settled();
  assert.deepEqual(over, ["i1"]);
  const checking = leave({ value: { invitation: "i2" } });
  withdraw("i2"); // before it, or while it is checked
  await checking;
  await leave({ value: { invitation: "i9" } });
  await leave({ value: { invitation: "i3" } });
  await until(() => heard.length === 2, "the next one");
  assert.deepEqual(
    heard.map(({ invitation }) => invitation),
    ["i1", "i3"],
  );
  assert.deepEqual([over, errors], [["i1"], []]);
});

test("what was sent can be withdrawn until it is accepted", async () => {
  const expires = Math.floor(Date.now() / 1000) + 60;
  const value = { invitation: "secret", expires, location: "https://f/push/1/secret" };
  const answers = {
    sendInvitation: { code: 200, value },
    withdrawInvitation: { code: 200, value: { told: true } },
  };
  const asked = await atHome(answers);
  const send = () =>
    runtime.invitations.send(
      { userURL: "user://f/bob", endpoint: "https://f/push/1" },
      { hyperty: "hyperty://d/a" },
    );
  const accepted = { type: "create", body: { value: { invitation: "secret" } } };
  const sent = await send();
  assert.deepEqual([await sent.withdraw(), await sent.withdraw()], [true, true]);
  assert.deepEqual(asked[1], {
    method: "withdrawInvitation",
    params: { invitation: "secret", location: value.location },
  });
  assert.equal(sent.isAcceptedBy(accepted), false);
  const taken = await send();
  assert.equal(taken.isAcceptedBy(accepted), true);
  await assert.rejects(taken.withdraw(), { code: 409 });
  const meanwhile = await send();
  const withdrawing = meanwhile.withdraw();
  assert.equal(meanwhile.isAcceptedBy(accepted), true);
  await assert.rejects(withdrawing, { code: 409 });
  answers.withdrawInvitation = { code: 409, description: "accepted" };
  const admitted = await send();
  await assert.rejects(admitted.withdraw(), { code: 409 });
  assert.equal(admitted.isAcceptedBy(accepted), true);
});

test("who has accepted is sent away, and then nobody can accept", async () => {
  const expires = Math.floor(Date.now() / 1000) + 60;
  const answers = {
    sendInvitation: { code: 200, value: { invitation: "secret", expires } },
    endInvitation: { code: 200 },
  };
  const asked = await atHome(answers);
  const sent = await runtime.invitations.send(
    { userURL: "user://f/bob", endpoint: "https://f/push/1" },
    { hyperty: "hyperty://d/a" },
  );
  await sent.end();
  assert.deepEqual(asked[1], { method: "endInvitation", params: { invitation: "secret" } });
  assert.equal(
    sent.isAcceptedBy({ type: "create", body: { value: { invitation: "secret" } } }),
    false,
  );
  answers.endInvitation = { code: 404, description: "none" };
  await assert.rejects(sent.end(), { code: 404 });
});

test("one that was accepted by somebody who then does nothing can be accepted again", async () => {
  const expires = Math.floor(Date.now() / 1000) + 60;
  const answers = {
    sendInvitation: { code: 200, value: { invitation: "secret", expires } },
    reopenInvitation: { code: 200, value: { expires } },
  };
  const asked = await atHome(answers);
  const sent = await runtime.invitations.send(
    { userURL: "user://f/bob", endpoint: "https://f/push/1" },
    { hyperty: "hyperty://d/a" },
  );
  const accepts = { type: "create", body: { value: { invitation: "secret" } } };
  assert.deepEqual([sent.isAcceptedBy(accepts), sent.isAcceptedBy(accepts)], [true, false]);
  await sent.reopen();
  assert.deepEqual(asked[1], { method: "reopenInvitation", params: { invitation: "secret" } });
  assert.deepEqual([sent.isAcceptedBy(accepts), sent.isAcceptedBy(accepts)], [true, false]);
  answers.reopenInvitation = { code: 410, description: "expired" };
  await assert.rejects(sent.reopen(), { code: 410 });
  assert.equal(sent.isAcceptedBy(accepts), false);
});

test("a node that takes no invitations says so", async () => {
  await atHome({});
  await assert.rejects(
    runtime.invitations.receive(() => {}),
    { code: 404 },
  );
  await assert.rejects(
    runtime.invitations.send({ endpoint: "https://f/push/1" }, { hyperty: "hyperty://d/a" }),
    { code: 404 },
  );
});
