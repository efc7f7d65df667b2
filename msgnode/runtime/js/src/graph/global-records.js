/**
 * The global registry as it is asked: nothing that it answers is believed without proof.
 *
 * A record is that of the GUID that was asked for, signed by its own key, and not older than one seen before:
 * a registry that serves yesterday's record is refused like one that serves another's.
 */

import { AnswerError } from "../bus.js";
import { codeOf } from "../messages.js";
import { GraphError } from "../errors.js";
import { isGuid } from "./guids.js";
import { personOf } from "./persons.js";

const REGISTRY = "global://registry/";
const MAX_SEEN = 10_000; // GUIDs whose newest record is remembered

export class GlobalRecords {
  #bus;
  #url;
  #contacts;
  #seen = new Map(); // GUID -> when its newest record was updated, ms since 1970

  constructor(bus, url, contacts) {
    [this.#bus, this.#url, this.#contacts] = [bus, url, contacts];
  }

  /** {person, record, jwt}. Throws GraphError. */
  async read(guid) {
    if (!isGuid(guid)) throw new GraphError(400, "A GUID has 43 letters of base64url.");
    const { code, said } = await this.ask("read", REGISTRY, { guid, resource: guid });
    if (code >= 300) throw refusal(code, said);
    const jwt = said.Value ?? said.value ?? "";
    if (jwt === "") throw new GraphError(404, "GUID not found."); // as nodes of the field say it
    const { person, record } = await personOf(jwt);
    if (person.guid !== guid)
      throw new GraphError(502, "The registry's record is that of another GUID.");
    this.note(person);
    return { person, record, jwt };
  }

  /**
   * Store a record. Throws GraphError with the registry's code.
   *
   * @param previous digest of the record that it replaces, "" if there was none, undefined if that is not
   *   known; a registry that knows the condition refuses with 409 if it has another
   */
  async put(guid, jwt, previous) {
    const condition = previous === undefined ? {} : { previous };
    const { code, said } = await this.ask("create", REGISTRY, {
      guid,
      resource: guid,
      jwt,
      value: jwt,
      ...condition,
    });
    if (code >= 300) throw refusal(code, said);
  }

  /** When the newest record that was seen of a GUID was updated, in ms since 1970; 0 if none was. */
  newest(guid) {
    return this.#seen.get(guid) ?? (Date.parse(this.#contacts.get(guid)?.lastUpdate ?? "") || 0);
  }

  /** Remember the newest record of a person. Throws GraphError 409 for an older one. */
  note({ guid, lastUpdate }) {
    const newest = this.newest(guid);
    if (+lastUpdate < newest) {
      throw new GraphError(
        409,
        `The record is older than one of ${new Date(newest).toISOString()} that was seen before.`,
      );
    }
    this.#seen.delete(guid);
    this.#seen.set(guid, +lastUpdate);
    if (this.#seen.size > MAX_SEEN) this.#seen.delete(this.#seen.keys().next().value);
    if (+lastUpdate !== newest && this.#contacts.get(guid)) {
      this.#contacts.edit(guid, { lastUpdate: lastUpdate.toISOString() });
    }
  }

  /** {code, said} of an answer, in the spelling of either generation. */
  async ask(type, to, body) {
    let said;
    try {
      said = await this.#bus.request({ type, from: this.#url, to, body });
    } catch (error) {
      if (!(error instanceof AnswerError)) throw error;
      said = error.body ?? {};
    }
    return { code: Number.isInteger(said.Code) ? said.Code : codeOf(said), said };
  }
}

/** What an answer says in words, "" if nothing. */
export function wordsOf({ Description, description, desc, Message }) {
  const words = [Description, description, desc, Message].find(
    (each) => each && typeof each === "string",
  );
  return (words ?? "").slice(0, 500);
}

function refusal(code, said) {
  return new GraphError(code, wordsOf(said) || `The global registry answered ${code}.`);
}
