/** The address book: names for GUIDs, kept by the runtime and shown to nobody. */

import { GraphError } from "../errors.js";
import { bare, isGuid } from "./guids.js";

const MAX_CONTACTS = 10_000;
const MAX_NAME = 200;
const MAX_GROUPS = 100;

export class Contacts {
  #all = new Map(); // GUID -> contact, in the order in which they were added
  #key;
  #storage;
  #onFailure;
  #most;

  /** @param options {key, storage: {getItem, setItem} or none, onFailure(text, error), most} */
  constructor({ key, storage, onFailure, most = MAX_CONTACTS }) {
    [this.#key, this.#storage, this.#onFailure, this.#most] = [key, storage, onFailure, most];
    try {
      const kept = JSON.parse(storage?.getItem(key) ?? "[]").map((each) => checked(each));
      for (const each of kept) this.#all.set(each.guid, each);
    } catch (error) {
      this.#onFailure(`${key} cannot be read`, error);
    }
  }

  get size() {
    return this.#all.size;
  }

  [Symbol.iterator]() {
    return [...this.#all.values()][Symbol.iterator]();
  }

  /** {guid, firstName, lastName, groups, lastUpdate}, undefined if there is none. */
  get(guid) {
    return this.#all.get(bare(guid));
  }

  /** Those whose first, last or whole name, or one of whose groups, begins so. */
  find(text) {
    const wanted = text.toLowerCase();
    const words = ({ firstName, lastName, groups }) => [
      `${firstName} ${lastName}`.trim(),
      lastName,
      ...groups,
    ];
    return [...this].filter((each) =>
      words(each).some((word) => word.toLowerCase().startsWith(wanted)),
    );
  }

  /** Add somebody. Throws GraphError: 400 a value is not good, 409 the GUID is there, 413 the book is full. */
  add(guid, { firstName = "", lastName = "", groups = [] } = {}) {
    const contact = checked({
      guid: bare(String(guid)),
      firstName,
      lastName,
      groups,
      lastUpdate: "",
    });
    if (this.#all.has(contact.guid))
      throw new GraphError(409, `${contact.guid} is a contact already.`);
    if (this.#all.size >= this.#most)
      throw new GraphError(413, `There are ${this.#most} contacts, which is the most.`);
    return this.#put(contact);
  }

  /** Change names or groups. Throws GraphError 400 or 404. */
  edit(guid, changes) {
    const contact = this.get(guid);
    if (!contact) throw new GraphError(404, `${guid} is no contact.`);
    return this.#put(checked({ ...contact, ...changes, guid: contact.guid }));
  }

  /** Forget somebody; whether he was a contact. */
  remove(guid) {
    const was = this.#all.delete(bare(guid));
    if (was) this.#write();
    return was;
  }

  #put(contact) {
    this.#all.set(contact.guid, contact);
    this.#write();
    return contact;
  }

  #write() {
    try {
      this.#storage?.setItem(this.#key, JSON.stringify([...this]));
    } catch (error) {
      this.#onFailure(`${this.#key} cannot be written`, error);
    }
  }
}

function checked({ guid, firstName, lastName, groups, lastUpdate }) {
  if (!isGuid(guid)) throw new GraphError(400, "A GUID has 43 letters of base64url.");
  if (!Array.isArray(groups) || groups.length > MAX_GROUPS) {
    throw new GraphError(400, `A contact is in at most ${MAX_GROUPS} groups.`);
  }
  if (
    [firstName, lastName, ...groups].some(
      (each) => typeof each !== "string" || each.length > MAX_NAME,
    )
  ) {
    throw new GraphError(400, `Names and groups are texts of at most ${MAX_NAME} characters.`);
  }
  return Object.freeze({
    guid,
    firstName,
    lastName,
    groups: Object.freeze([...groups]),
    lastUpdate: String(lastUpdate ?? ""),
  });
}
