/** What a person's record says, and records that are made; what somebody says of himself is his word. Pure. */

import { parse } from "../addresses.js";
import { GraphError } from "../errors.js";
import { MAX_LENGTH, read, sign } from "./signed.js";

const LIFETIME = 3_650 * 86_400_000; // ms

/** {person, record} of a record's text. Throws GraphError 502. */
export async function personOf(jwt) {
  let proved;
  try {
    proved = await read(jwt);
  } catch (error) {
    throw new GraphError(502, `The registry's record is no good: ${error.message}`);
  }
  const { guid, record, lastUpdate, timeout, isActive, isRevoked } = proved;
  const { voice, chat, video } = record.defaults;
  const person = Object.freeze({
    guid,
    userIds: userIdsOf(record),
    legacyIds: Array.isArray(record.legacyIDs)
      ? record.legacyIDs.filter((each) => each && typeof each === "object")
      : [],
    defaults: { voice, chat, video },
    lastUpdate: new Date(lastUpdate),
    timeout: new Date(timeout),
    isActive,
    isRevoked,
  });
  return { person, record };
}

/** {uid, domain} of one entry of `userIDs`, in any of the spellings in use. */
export function userId(listed) {
  const uid = String(listed?.uid ?? listed?.uID ?? listed);
  const named = typeof listed?.domain === "string" ? listed.domain.toLowerCase() : "";
  return { uid, domain: named || domainOfUser(uid) };
}

/** The domain that a user URL or an e-mail address names, "" if none. */
export function domainOfUser(uid) {
  if (uid.includes("://")) return parse(uid)?.domain ?? "";
  return uid.includes("@") ? uid.slice(uid.lastIndexOf("@") + 1).toLowerCase() : "";
}

/** The record of somebody who has none. */
export function newRecord({ publicKey, salt }, guid) {
  return {
    schemaVersion: 1,
    guid,
    salt,
    userIDs: [],
    lastUpdate: "",
    timeout: "",
    publicKey,
    active: 1,
    revoked: 0,
    defaults: { voice: "", chat: "", video: "" },
    legacyIDs: [],
  };
}

/**
 * The record signed, good for ten years.
 *
 * @param after a time that it must be newer than, in ms since 1970; 0 for none
 * @throws GraphError 413: no registry takes it
 */
export async function signedRecord(record, { privateKey }, after = 0, now = Date.now()) {
  const moment = Math.max(now, after ? after + 1 : 0);
  const times = {
    lastUpdate: new Date(moment).toISOString(),
    timeout: new Date(moment + LIFETIME).toISOString(),
  };
  const jwt = await sign({ ...record, ...times }, privateKey);
  if (jwt.length > MAX_LENGTH)
    throw new GraphError(413, `The record has ${jwt.length} characters, ${MAX_LENGTH} at most.`);
  return jwt;
}

function userIdsOf(record) {
  const found = new Map(record.userIDs.map(userId).map((each) => [JSON.stringify(each), each]));
  return [...found.values()];
}
