/** Descriptors and sources of stubs, as catalogues have them: nothing of a stub that is not checked here runs. */

import { MAX_SOURCE, checkDescriptor } from "./descriptor.js";
import { checkIntegrity } from "./digest.js";

export class StubSources {
  #catalogue;
  #options;
  #asserted = new Map(); // domain -> {digests, until}

  /** @param options as for the Loader */
  constructor(catalogue, options) {
    [this.#catalogue, this.#options] = [catalogue, options];
  }

  /** Until a time (s since 1970), take no stub of a domain but with these digests; those of the options go before. */
  expect(domain, digests, until) {
    this.#asserted.set(domain, { digests: digests.join(" "), until });
  }

  #assertedOf(domain) {
    const { digests, until } = this.#asserted.get(domain) ?? {};
    return until > Date.now() / 1000 ? digests : undefined;
  }

  /** Descriptor and source, checked. @throws LoadError */
  async fetch(entry) {
    const { homeDomain } = this.#options;
    const { domain } = entry;
    const kind = entry.kind === "idp" ? "IDP_PROXY" : "PROTOSTUB";
    let unsuitable = null;
    let forBrowsers = null;
    for await (const { raw, url } of this.#catalogue.descriptors(domain, kind)) {
      const context = {
        ...this.#options,
        domain,
        url,
        kind,
        hosts: this.#hostsOf(domain, homeDomain),
      };
      let descriptor;
      try {
        descriptor = checkDescriptor(raw, context);
      } catch (error) {
        if (error.code !== 501) throw error;
        unsuitable = error;
        forBrowsers ??= forBrowser(raw, context);
        continue;
      }
      return this.#sourced(entry, kind, descriptor, url);
    }
    if (!forBrowsers) throw unsuitable;
    return this.#sourced(entry, kind, ...forBrowsers);
  }

  async #sourced({ domain }, kind, descriptor, descriptorURL) {
    const { digests = {}, signers = {} } = this.#options;
    const source =
      descriptor.source ?? (await this.#catalogue.source(descriptor.sourceURL, MAX_SOURCE));
    if (descriptor.integrity) await checkIntegrity(source, descriptor.integrity);
    const expected =
      digests[domain] ?? (kind === "PROTOSTUB" ? this.#assertedOf(domain) : undefined);
    if (expected) await checkIntegrity(source, expected, "the digest listed for the domain");
    if (signers[domain]) {
      const { checkSignature } = await import("./signature.js");
      await checkSignature(source, descriptor.signature, signers[domain]);
    }
    return { descriptor, descriptorURL, source };
  }

  /** Hosts beside the domain's own that its stub may connect to: where the operator put its catalogue. */
  #hostsOf(domain) {
    const named = this.#catalogue.catalogues[domain];
    return [...(this.#options.hosts?.[domain] ?? []), ...(named ? [new URL(named).host] : [])];
  }
}

/**
 * A stub for browsers, where nothing suits Node.js: [descriptor, its URL]; most of those of the field need nothing that
 * only a page has. null for another one.
 */
function forBrowser(raw, context) {
  if (context.platform !== "node") return null;
  try {
    const descriptor = checkDescriptor(raw, { ...context, platform: "browser" });
    return descriptor.constraints.browser ? [descriptor, context.url] : null;
  } catch {
    return null; // why it does not suit was said already
  }
}
