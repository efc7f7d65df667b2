/**
 * What a stub of another domain may bring into the runtime, besides its own status. Pure.
 *
 * | message                                   | from                                  | else    |
 * | to the status of the runtime or of a stub | nobody                                | ignored |
 * | to what was subscribed through the stub   | anybody outside the home domain       | 403     |
 * | any other                                 | who is reached through this very stub | 403     |
 *
 * An answer has to be one to what went out through the stub as well (MessageBus.isExpected), and the marks of a
 * node are taken off. The home domain's stub brings what its node has judged: it may speak for anybody outside.
 */

import { domainOf, isBelow, isP2P, stubFor } from "./addresses.js";

/**
 * Why a foreign stub may not bring a message.
 *
 * @param message {from, to}
 * @param entry of the stub: {key, domain, held}
 * @param resolver {homeDomain, names, bus}: of the runtime
 * @returns undefined if it may, "ignored", or [code, text] of the refusal
 */
export function faultOfForeign({ from, to }, { key, domain, held }, { homeDomain, names, bus }) {
  const all = Array.isArray(to) ? to : [to];
  if (all.some((each) => isPrivateStatus(each, bus.runtimeURL))) return "ignored";
  if (domainOf(from) === homeDomain)
    return [403, `A stub of ${domain} cannot speak as ${homeDomain}.`];
  const { interworking } = names; // how its messages leave does not say whose a stub is
  if (
    stubFor(from, homeDomain, { interworking })?.key === key ||
    all.every((each) => held.has(each))
  )
    return undefined;
  return [403, `${from} is not reached through the stub of ${domain}, which cannot speak as it.`];
}

/** Whether only the runtime itself and its stubs say anything to this address. */
export function isPrivateStatus(address, runtimeURL) {
  return (
    address.endsWith("/status") &&
    (isBelow(address, runtimeURL) || address.includes("/protostub/") || isP2P(address))
  );
}
