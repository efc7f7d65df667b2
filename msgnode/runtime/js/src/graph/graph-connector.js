/**
 * runtime.graph: a GUID of one's own, the global registry, and where a person's hyperties are.
 *
 *   const words = await runtime.graph.create();           // sixteen, to be written down
 *   runtime.graph.addUserId("user://example.com/alice");
 *   await runtime.graph.publish();
 *   for (const found of await runtime.graph.hyperties(guid)) …   // in all domains that the person names
 *
 * It speaks as `<runtime>/graph-connector`. The words and the key are in memory only; keeping the words is the
 * application's part.
 */

import { GraphError } from "../errors.js";
import { GlobalRecords, wordsOf } from "./global-records.js";
import { bare } from "./guids.js";
import { keysOf, newWords } from "./keys.js";
import { domainOfUser, newRecord, personOf, signedRecord, userId } from "./persons.js";
import { digest } from "./signed.js";

const TRIES = 4; // to publish while others publish the same record
const MAX_DOMAINS = 32; // asked for one person
const AT_A_TIME = 4;
const HOST = /^[a-z0-9_.-]{1,253}(:\d{1,5})?$/;
const MAX_HYPERTIES = 1_000; // taken of one domain

export class GraphConnector {
  #records;
  #keys = null;
  #guid = "";
  #edits = [];
  #record = null; // one's own, as last seen
  #person = null;
  #publishing = Promise.resolve();

  constructor(bus, runtimeURL, contacts) {
    this.url = `${runtimeURL}/graph-connector`;
    this.contacts = contacts;
    this.#records = new GlobalRecords(bus, this.url, contacts);
  }

  /** One's own GUID, "" before create() or use(). */
  get guid() {
    return this.#guid;
  }

  /** What one's own record says, null if there is none. */
  get person() {
    return this.#person;
  }

  // --- one's own record ---------------------------------------------------------------------------

  /** Become somebody new; nothing is published. Resolves with the sixteen words, for the user to keep. */
  async create() {
    const words = await newWords();
    this.#become(await keysOf(words));
    return words;
  }

  /**
   * Become who has these words, and read his record.
   *
   * @returns whether the registry has a record of him that is in force; it is in `person` then
   * @throws GraphError 400 for the words; else as lookup(), and one is who one was before
   */
  async use(words) {
    const keys = await keysOf(words);
    for (const guid of [keys.guid, keys.legacyGuid]) {
      try {
        const { person, record } = await this.#records.read(guid);
        this.#become(keys, guid);
        [this.#person, this.#record] = [person, record];
        return !person.isRevoked;
      } catch (error) {
        if (error.code === 404) continue;
        if (error.code !== 410) throw error;
        this.#become(keys, guid); // a record that has timed out is renewed by publish()
        return false;
      }
    }
    this.#become(keys);
    return false;
  }

  /**
   * With the next publish(): a user id of one's own, such as user://example.com/alice.
   *
   * @param domain whose registry knows its hyperties; that of the uid if it is left out
   * @throws GraphError 400: it names no domain
   */
  addUserId(uid, domain = "") {
    const listed = { uid, domain: domain.toLowerCase() || domainOfUser(String(uid)) };
    if (typeof uid !== "string" || /[\p{Cc}]/u.test(uid) || !uid || !listed.domain) {
      throw new GraphError(400, `${JSON.stringify(uid)} names no user of a domain.`);
    }
    this.#edits.push((record) => {
      const same = (each) => each.uid === listed.uid && each.domain === listed.domain;
      if (!record.userIDs.map(userId).some(same)) record.userIDs.push(listed);
    });
  }

  /** With the next publish(): no more of that user id. */
  removeUserId(uid) {
    this.#edits.push((record) => {
      record.userIDs = record.userIDs.filter((each) => userId(each).uid !== uid);
    });
  }

  /** With the next publish(): a way to be reached from elsewhere, {type, category, id, description}. */
  addLegacyId({ type, category, id, description = "" }) {
    const listed = { type, category, id, description };
    this.#edits.push((record) => {
      const known = listOf(record.legacyIDs);
      const isThere = known.some((each) => JSON.stringify(each) === JSON.stringify(listed));
      record.legacyIDs = isThere ? known : [...known, listed];
    });
  }

  /** With the next publish(): no more of it. */
  removeLegacyId(id) {
    this.#edits.push((record) => {
      record.legacyIDs = listOf(record.legacyIDs).filter((each) => each?.id !== id);
    });
  }

  /** With the next publish(): what one prefers for `voice`, `chat`, `video`. */
  setDefaults(defaults) {
    const isGood = ([name, text]) =>
      ["voice", "chat", "video"].includes(name) && typeof text === "string";
    if (!Object.entries(defaults).every(isGood))
      throw new GraphError(400, "Defaults are texts for voice, chat and video.");
    this.#edits.push((record) => Object.assign(record.defaults, defaults));
  }

  /** With the next publish(): whether one can be reached at all for now. */
  setActive(isActive) {
    this.#edits.push((record) => {
      record.active = Number(isActive);
    });
  }

  /**
   * Make what has been changed, and what the registry has already, the record; signed. Without a change it is
   * renewed: it is good for ten years from now.
   *
   * @throws GraphError; the changes are kept and go with the next one
   */
  async publish() {
    return this.#inTurn(async () => {
      const edits = [...this.#edits];
      const person = await this.#publish(edits);
      this.#edits = this.#edits.filter((each) => !edits.includes(each));
      return person;
    });
  }

  /** End this GUID for good. Nobody can take it back. */
  async revoke() {
    await this.#inTurn(async () => {
      await this.#publish([(record) => Object.assign(record, { revoked: 1, active: 0 })]);
      this.#edits = [];
    });
  }

  #inTurn(call) {
    const done = this.#publishing.then(call);
    this.#publishing = done.catch(() => {});
    return done;
  }

  async #publish(edits) {
    const keys = this.#keys;
    if (!keys)
      throw new GraphError(400, "There is no GUID yet: create() or use(words) comes first.");
    const guid = this.#guid;
    let jwt;
    for (let left = TRIES - 1; ; left -= 1) {
      const { record, previous } = await this.#base(keys, guid);
      if (record.revoked) throw new GraphError(410, "The record has been revoked.");
      for (const edit of edits) edit(record);
      jwt = await signedRecord(record, keys, this.#records.newest(guid));
      try {
        await this.#records.put(guid, jwt, previous);
        break;
      } catch (error) {
        if (error.code !== 409 || !left) throw error; // 409: published meanwhile at another device
      }
    }
    const { person, record } = await personOf(jwt);
    this.#records.note(person);
    [this.#person, this.#record] = [person, record];
    return person;
  }

  /** The record that changes are made to, and the digest of the one that the registry has, as put() takes it. */
  async #base(keys, guid) {
    try {
      const { record, jwt } = await this.#records.read(guid);
      return { record, previous: await digest(jwt) };
    } catch (error) {
      if (error.code !== 404 && error.code !== 410) throw error;
      const record = this.#record ? structuredClone(this.#record) : newRecord(keys, guid);
      return { record, previous: error.code === 404 ? "" : undefined };
    }
  }

  // --- others' ------------------------------------------------------------------------------------

  /**
   * What the global registry has of a person: {guid, userIds, legacyIds, defaults, lastUpdate, timeout, isActive}.
   *
   * @throws GraphError 404 no record, 408 no answer, 409 the record is older than one seen before, 410 revoked
   *   or timed out, 502 the answer proves nothing
   */
  async lookup(guid) {
    const { person } = await this.#records.read(bare(String(guid)));
    if (person.isRevoked) throw new GraphError(410, "The record has been revoked by its owner.");
    if (+person.timeout <= Date.now()) throw new GraphError(410, "The record has timed out.");
    return person;
  }

  /**
   * The person's hyperties in all domains that he names, found by protocol on the fly.
   *
   * @param criteria {resources, dataSchemes} that they must have, such as "chat" and "comm"
   * @returns one for each user id: {userId: {uid, domain}, code, text, hyperties}. A domain that fails or lies
   *   fails for itself. `confirmed` is true in an entry that names the person's GUID; of others only the
   *   person says that they are his.
   * @throws GraphError as lookup()
   */
  async hyperties(guid, { resources = [], dataSchemes = [] } = {}) {
    const person = await this.lookup(guid);
    const criteria = Object.fromEntries(
      Object.entries({ resources, dataSchemes }).filter(([, each]) => each.length),
    );
    const text = `Not asked: a person's first ${MAX_DOMAINS} user ids are.`;
    const found = person.userIds.map((each) => ({ userId: each, code: 429, text, hyperties: [] }));
    let next = 0;
    const askSome = async () => {
      while (next < Math.min(found.length, MAX_DOMAINS)) {
        const at = next;
        next += 1;
        found[at] = await this.#askDomain(person.userIds[at], person.guid, criteria);
      }
    };
    await Promise.all(Array.from({ length: AT_A_TIME }, askSome));
    return found;
  }

  async #askDomain(user, guid, criteria) {
    if (!HOST.test(user.domain))
      return { userId: user, code: 400, text: "This names no domain.", hyperties: [] };
    const body = { resource: user.uid, ...(Object.keys(criteria).length ? { criteria } : {}) };
    const { code, said } = await this.#records.ask(
      "read",
      `domain://registry.${user.domain}`,
      body,
    );
    const entries = said.value && typeof said.value === "object" ? Object.values(said.value) : [];
    const hyperties = entries
      .filter((each) => each && typeof each === "object" && !Array.isArray(each))
      .slice(0, MAX_HYPERTIES)
      .map((each) => ({
        ...each,
        confirmed: typeof each.guid === "string" && bare(each.guid) === guid,
      }));
    return { userId: user, code, text: code === 200 ? "" : wordsOf(said), hyperties };
  }

  #become(keys, guid = keys.guid) {
    [this.#keys, this.#guid, this.#person, this.#record, this.#edits] = [
      keys,
      guid,
      null,
      null,
      [],
    ];
  }
}

function listOf(value) {
  return Array.isArray(value) ? value : [];
}
