/** Descriptors and sources of stubs, as catalogues have them: nothing of a stub that is not checked here runs. */

import { MAX_SOURCE, checkDescriptor } from "./descriptor.js";
import { checkIntegrity, checkSignature } from "./digest.js";

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
    const { homeDomain, digests = {}, signers = {} } = this.#options;
    const { domain } = entry;
    const kind = entry.kind === "idp" ? "IDP_PROXY" : "PROTOSTUB";
    let unsuitable = null;
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
        continue;
      }
      const source =
        descriptor.source ?? (await this.#catalogue.source(descriptor.sourceURL, MAX_SOURCE));
      if (descriptor.integrity) await checkIntegrity(source, descriptor.integrity);
      const expected =
        digests[domain] ?? (kind === "PROTOSTUB" ? this.#assertedOf(domain) : undefined);
      if (expected) await checkIntegrity(source, expected, "the digest listed for the domain");
      if (signers[domain]) await checkSignature(source, descriptor.signature, signers[domain]);
      return { descriptor, descriptorURL: url, source };
    }
    throw unsuitable;
  }

  /** Hosts beside the domain's own that its stub may connect to: where the operator put its catalogue. */
  #hostsOf(domain) {
    const named = this.#catalogue.catalogues[domain];
    return [...(this.#options.hosts?.[domain] ?? []), ...(named ? [new URL(named).host] : [])];
  }
}
