/**
 * Catalogues over HTTP, and what else is asked over HTTP of domains that are not trusted.
 *
 * Rules
 * - HTTPS, or HTTP on the loopback. No redirect is followed, no credential is sent. 10 s each.
 * - A body is read up to a limit and no further.
 * - A domain is asked for `default`, then (the constraints posted) for one that suits, then for
 *   `default.ps.json`; then the home catalogue for an entry under the domain's name.
 */

import { systemClock } from "./clock.js";
import { MAX_SOURCE, checkedSource, mayBePlain } from "./descriptor.js";
import { LoadError } from "./errors.js";

const MAX_DESCRIPTOR = 2 * 1_048_576; // bytes: the source may be in it
const FETCH_TIME = 10_000; // ms
const FOLDERS = { PROTOSTUB: ["protocolstub", "ps"], IDP_PROXY: ["idp-proxy", "idp"] };

export class Catalogue {
  #running = new Set(); // controllers of requests that run

  /**
   * @param home the runtime's own domain
   * @param options {catalogues: domain to base URL, where it is not https://<domain>; platform;
   *   fetch; fetchTime: ms; clock}
   */
  constructor(
    home,
    {
      catalogues = {},
      platform = "browser",
      fetch = globalThis.fetch,
      fetchTime = FETCH_TIME,
      clock = systemClock,
    } = {},
  ) {
    this.home = home;
    this.catalogues = catalogues;
    this.platform = platform;
    this.fetch = (...request) => fetch(...request);
    this.fetchTime = fetchTime;
    this.clock = clock;
  }

  /** The base URL of a domain's catalogue. */
  baseOf(domain) {
    return (this.catalogues[domain] ?? `https://${domain}`).replace(/\/$/, "");
  }

  /**
   * The descriptors there are for a domain, the best first.
   *
   * @yields {raw, url}
   * @throws LoadError 404 if there is none, 504 if nobody answered in time, 502 for what is no JSON
   */
  async *descriptors(domain, kind = "PROTOSTUB") {
    const [folder, suffix] = FOLDERS[kind];
    const entry = `${this.baseOf(domain)}/.well-known/${folder}/${kind === "IDP_PROXY" ? domain : "default"}`;
    const body = JSON.stringify({ [this.platform]: true });
    const posted = { method: "POST", body, headers: { "Content-Type": "application/json" } };
    const tries = [
      [entry, {}],
      [entry, posted],
      [`${entry}.${suffix}.json`, {}],
    ];
    if (domain !== this.home)
      tries.push([`${this.baseOf(this.home)}/.well-known/${folder}/${domain}`, {}]);
    let found = false;
    let trouble = null;
    for (const [url, request] of tries) {
      if (request === posted && !found) continue; // the catalogue has nothing there, or no such name
      if (found && request !== posted) break;
      let raw;
      try {
        raw = await this.#json(url, request);
      } catch (error) {
        trouble = worse(trouble, error);
        if (error.code === 504 && url === entry) break; // nobody there: asking again takes as long again
        continue;
      }
      if (raw !== undefined) {
        found = true;
        yield { raw, url };
      }
    }
    if (!found && trouble?.code === 504 && domain !== this.home) {
      const url = tries.at(-1)[0];
      const raw = await this.#json(url, {}).catch(() => undefined);
      if (raw !== undefined) {
        found = true;
        yield { raw, url };
      }
    }
    if (!found) throw trouble ?? new LoadError(404, `There is no stub of ${domain}.`);
  }

  /** Give up all requests that run. */
  close() {
    for (const giveUp of this.#running) giveUp.abort();
  }

  /** The source at a URL that a checked descriptor names. */
  async source(url) {
    const text = await this.#text(url, {}, MAX_SOURCE, "sourcePackageURL");
    if (text === undefined)
      throw new LoadError(502, `sourcePackageURL: there is nothing at ${url}`);
    return checkedSource(text);
  }

  /** The version in a domain's catalogue now. */
  async version(descriptorURL) {
    const text = await this.#text(
      `${descriptorURL.replace(/\.(ps|idp)\.json$/, "")}/version`,
      {},
      1000,
      "version",
    );
    return text?.trim().replace(/^"(.*)"$/, "$1");
  }

  /** The text of something else at a domain; undefined if there is nothing. @throws LoadError */
  document(url, limit) {
    return this.#text(url, {}, limit, "document");
  }

  async #json(url, request) {
    const text = await this.#text(url, request, MAX_DESCRIPTOR, "descriptor");
    if (text === undefined) return undefined;
    try {
      return JSON.parse(text);
    } catch {
      throw new LoadError(502, "descriptor: not JSON");
    }
  }

  /** The text at a URL; undefined if there is nothing. */
  async #text(url, request, limit, field) {
    const parts = new URL(url);
    const { status, text } = await this.exchange(
      url,
      request,
      limit,
      `The catalogue ${parts.host}`,
      field,
    );
    if (status >= 500) throw new LoadError(504, `The catalogue ${parts.host} answers ${status}.`);
    return status >= 200 && status < 300 ? text : undefined;
  }

  /**
   * One request, bounded in time and size.
   *
   * @param request of fetch(); its signal, if there is one, gives it up
   * @param who is asked, for errors; @param field what is, or else `who`
   * @returns {status, text}
   * @throws LoadError 504 if nobody answers in time, 502 for what is refused
   */
  async exchange(url, request, limit, who, field = who) {
    const parts = new URL(url);
    const { protocol } = parts;
    if (protocol !== "https:" && !(protocol === "http:" && mayBePlain(parts))) {
      throw new LoadError(502, `${field}: ${url} is not https`);
    }
    const giveUp = new AbortController();
    const givenUp = new Promise((_, reject) =>
      giveUp.signal.addEventListener("abort", () => reject(new Error("given up"))),
    );
    givenUp.catch(() => {});
    this.#running.add(giveUp);
    const { signal, ...asked } = request;
    signal?.addEventListener("abort", () => giveUp.abort());
    const timer = this.clock.setTimeout(() => giveUp.abort(), this.fetchTime);
    try {
      const options = {
        redirect: "manual",
        credentials: "omit",
        cache: "no-cache",
        signal: giveUp.signal,
      };
      const headers = { Accept: "application/json, text/javascript, */*;q=0.1", ...asked.headers };
      const answer = await Promise.race([
        this.fetch(url, { ...options, ...asked, headers }),
        givenUp,
      ]);
      if (answer.type === "opaqueredirect" || (answer.status >= 300 && answer.status < 400)) {
        throw new LoadError(502, `${field}: ${url} redirects, and no redirect is followed`);
      }
      const text = await Promise.race([limitedText(answer, limit, answer.ok && field), givenUp]);
      return { status: answer.status, text };
    } catch (error) {
      if (error instanceof LoadError) throw error;
      const why = giveUp.signal.aborted
        ? "does not answer in time"
        : `cannot be reached (${error.cause?.code ?? error.message})`;
      throw new LoadError(504, `${who} ${why}.`);
    } finally {
      this.clock.clearTimeout(timer);
      this.#running.delete(giveUp);
      giveUp.abort();
    }
  }
}

/** @param field what is too large is refused as; false: it is cut off */
async function limitedText(answer, limit, field) {
  if (!answer.body) return "";
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    bytes += value.length;
    if (bytes > limit && !field) return text;
    if (bytes > limit) throw new LoadError(502, `${field}: larger than ${limit} bytes`);
    text += decoder.decode(value, { stream: true });
  }
}

function worse(before, error) {
  return before && before.code !== 404 ? before : error;
}
