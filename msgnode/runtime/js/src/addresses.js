/**
 * Addresses: their parts, whose they are, and which protostub reaches them. Pure.
 *
 * Rules
 * - An address is `scheme://domain/path`; one slash or none after the colon is read as well.
 * - Domains are compared without case, and without the label of a service (`msg-node.`, `registry.` …).
 * - `runtime` and `hyperty-runtime` are two spellings of one scheme.
 */

const ADDRESS = /^([a-z][a-z0-9+.-]*):(?:\/\/)?([^/]*)(\/.*)?$/i;
const SERVICE = /^(?:msg-node|registry|idm|catalogue|qos)\.(?=.*[^.])/;
export const RUNTIME_SCHEMES = ["runtime", "hyperty-runtime"];
const HOST = /^(?=[^:]{1,253}(?::|$))[\p{L}\p{N}_-]{1,63}(?:\.[\p{L}\p{N}_-]{1,63})*(?::\d*)?$/u; // or host:port
const BACK_END_SCHEMES = ["domain", "global"];
const LEGACY_SCHEMES = ["sip", "xmpp"];
const PARTS = /^(.*[^/])\/(?:changes|subscription|registration|status|children)$/s;
const EVENT_TAIL = /\/(?:changes|registration|status|children\/?)$/;
/** Schemes between which neither identity nor policy is applied. */
export const INFRASTRUCTURE = new Set([
  "domain",
  "domain-idp",
  "global",
  "hyperty-runtime",
  "runtime",
]);

/** {scheme, user, domain, path} in lower case but for the user and the path; null if it is no address. */
export function parse(address) {
  const match = ADDRESS.exec(address);
  if (!match) return null;
  const [, scheme, authority, path = ""] = match;
  const at = authority.lastIndexOf("@");
  return {
    scheme: scheme.toLowerCase(),
    user: at < 0 ? "" : authority.slice(0, at),
    domain: authority.slice(at + 1).toLowerCase(),
    path,
  };
}

/** The scheme of an address, "" if it has none. */
export function schemeOf(address) {
  const colon = address.indexOf(":");
  return colon < 0 ? "" : address.slice(0, colon).toLowerCase();
}

/** The domain of an address without the label of a service. */
export function domainOf(address) {
  return parse(address)?.domain.replace(SERVICE, "") ?? "";
}

/** Whether `address` is `owner` or below it, segment by segment, in either spelling of a runtime. */
export function isBelow(address, owner) {
  return startsAt(address, owner) || startsAt(twinOf(address), owner);
}

function startsAt(address, owner) {
  return address === owner || (address.startsWith(owner) && address[owner.length] === "/");
}

/** The object or entity an address is about: without `/changes`, `/registration`, … at its end. */
export function resourceOf(address) {
  return PARTS.exec(address)?.[1] ?? address;
}

/** Whether everybody may subscribe the address: what its owner publishes, and children. */
export function isEvent(address) {
  return EVENT_TAIL.test(address) || (parse(address)?.path.includes("/children/") ?? false);
}

/** A runtime's address in the other spelling; any other address as it is. */
export function twinOf(address) {
  if (address.startsWith("runtime://")) return `hyperty-${address}`;
  return address.startsWith("hyperty-runtime://") ? address.slice(8) : address;
}

/** The runtime that an address is below, spelt `runtime`; "" if it is below none. */
export function runtimeOf(address) {
  const parts = parse(address);
  const [, guid] = parts?.path.split("/") ?? [];
  const isBelowOne = RUNTIME_SCHEMES.includes(parts?.scheme) && guid && guid !== "protostub";
  return isBelowOne ? `runtime://${parts.domain}/${guid}` : "";
}

/** Whether this is the address of a P2P stub: a segment of a runtime's address, not any text. */
export function isP2P(address) {
  const parts = parse(address);
  if (!parts || !RUNTIME_SCHEMES.includes(parts.scheme)) return false;
  const [, first, second] = parts.path.split("/");
  return [first, second].some((segment) => segment === "p2phandler" || segment === "p2prequester");
}

/** Whether this is the address of a user of a legacy network, whose gateway the home node is. */
export function isLegacy(address) {
  return LEGACY_SCHEMES.includes(parse(address)?.scheme);
}

/**
 * Which stub takes a message to `to`.
 *
 * @param to an address outside the runtime
 * @param home the runtime's own domain
 * @param options {interworking: `<scheme>.<domain>` of the interworking stubs there are, routing: domain to "node",
 *   or to another word that changes nothing here}
 * @returns {kind: "domain" | "idp" | "legacy", key, domain}, null if no domain is in it; "legacy" without
 *   an interworking stub has no key
 */
export function stubFor(to, home, { interworking = new Set(), routing = {} } = {}) {
  const parts = parse(to);
  if (!parts) return null;
  const { scheme, user, domain: host } = parts;
  if (scheme === "global") return { kind: "domain", key: home, domain: home };
  const domain = host.replace(SERVICE, "");
  if (!HOST.test(domain)) return null;
  if (scheme === "domain-idp") return { kind: "idp", key: `domain-idp.${domain}`, domain };
  const isBackEnd = BACK_END_SCHEMES.includes(scheme) || domain !== host;
  if (!isBackEnd && !isP2P(to)) {
    const key = `${scheme}.${domain.split(".").slice(-2).join(".")}`;
    if (interworking.has(key)) return { kind: "legacy", key, domain: key };
    if (user) return { kind: "legacy", key: "", domain };
  }
  if (routing[domain] === "node" || LEGACY_SCHEMES.includes(scheme))
    return { kind: "domain", key: home, domain: home };
  return { kind: "domain", key: domain, domain };
}
