/** Types of the log-in at an OpenID provider. */

import type { Fetch, TextStorage, TokenSource } from "./index.js";

export interface OpenIdOptions {
  /** URL of the provider; a Messaging Node's own is https://<node>/o. */
  issuer: string;
  clientId: string;
  /** This page, if it is left out. */
  redirectURI?: string;
  /** "openid email profile" if it is left out. */
  scope?: string;
  /** Which is shown to the node: "access", as its own provider expects, or "id". */
  token?: "access" | "id";
  /** `sessionStorage` if it is left out. */
  storage?: TextStorage;
  /** Node.js: shows the address where the person logs in; the console does if it is left out. */
  open?(url: string): unknown;
  fetch?: Fetch;
}

/** Who logs in at an OpenID provider. */
export class OpenId implements TokenSource {
  private constructor();
  token(): Promise<{ token: string; expires: number }>;
  renew(): Promise<{ token: string; expires: number }>;
  logOut(): Promise<void>;
}

export class OpenIdError extends Error {
  constructor(code: number, text: string);
  readonly code: number;
}

/** Throws a TypeError that names the option. */
export function openid(options: OpenIdOptions): OpenId;
