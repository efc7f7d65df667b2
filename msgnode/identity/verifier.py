"""Verification: makes an Identity of what a runtime presents, or tells why not.

verify(credential) -> Verified, at once; or Pending; or an error:

  Unknown      it is of no known issuer
  Rejected     the issuer is known and the identity is invalid
  Unavailable  the issuer is out of reach, and needed

Rules
- The signature's algorithm must be in the issuer's list and fit its key; `none` and shared secrets
  are in no list. Keys come from the issuer's configuration (jwks.py), never from the token.
- Results are cached by the token's SHA-256: valid ones until `exp`, at most CACHE_SECONDS, failures
  for FAILURE_CACHE_SECONDS; the cache is bounded, least recently used entries go first.
- An opaque token is cached for each domain it was said to be of: a wrong one spoils no other.
- A JWT is named by what is signed, so it stays the same token under another good signature.
- A revoked token, or one issued to a revoked subject before that moment, is invalid whatever was
  cached.
- Opaque tokens are introspected (RFC 7662, or the embedded provider in-process), `rate` per second;
  all issuers at the same time, so that a slow one delays nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import time
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError

from msgnode.core.digest import digest
from msgnode.core.errors import NodeError, TooMany, Unavailable
from msgnode.core.identity import Identity
from msgnode.core.token_bucket import TokenBucket

from . import claims, credentials
from .claims import ValidatedClaims
from .credentials import Credential, Rejected, Unknown
from .http import Fetcher
from .issuers import Issuer, IssuerBook
from .jwks import JwksCache
from .pending import waiting_for
from .ports import Provider
from .revocation_list import Revocations

log = logging.getLogger(__name__)

LEEWAY = 60.0
"""Seconds by which the clocks of issuers may differ from the node's."""
MAX_KEPT = 20_000
"""Verified tokens in memory; one that is no longer there is verified again."""
INTROSPECTIONS_PER_SECOND = 100.0
"""At all issuers together: each is a request to somebody else's server."""
CACHE_SECONDS = 300.0
FAILURE_CACHE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Verified:
    """An identity, the digest of its token, and until when both are valid."""

    identity: Identity
    digest: str
    nonce: str
    until: float


@dataclass(frozen=True, slots=True)
class _CachedResult:
    """The result for a token: its claims, or why it is refused; valid until a moment."""

    found: ValidatedClaims | NodeError
    until: float


class Verifier:
    """One instance per worker."""

    def __init__(
        self,
        keys: JwksCache,
        fetcher: Fetcher,
        provider: Provider | None,
        leeway: float = LEEWAY,
        capacity: int = MAX_KEPT,
        rate: float = INTROSPECTIONS_PER_SECOND,
        now: Callable[[], float] = time,
    ) -> None:
        self.book = IssuerBook()
        self.revocations = Revocations()
        self.verifications = 0
        self.client_ids: frozenset[str] = frozenset()
        self._keys = keys
        self._fetcher = fetcher
        self._provider = provider
        self._leeway = leeway
        self._capacity = capacity
        self._asks = TokenBucket(rate)
        self._now = now
        self._kept: OrderedDict[str, _CachedResult] = OrderedDict()
        self._asking: dict[str, asyncio.Future[None]] = {}

    def use(self, book: IssuerBook) -> None:
        """Set the accepted issuers; cached results are dropped."""
        self.book = book
        self._kept.clear()
        self._keys.keep(book.all)

    def forget(self) -> None:
        """Forget all results."""
        self._kept.clear()

    def ours(self, credential: Credential | None) -> Credential | None:
        """A token found in a message, if it may be one of the known issuers.

        An opaque one is shown only to the node's own provider, because it may be valid elsewhere.
        """
        if credential is None or credential.is_jwt:
            return credential
        own = self.book.embedded
        return replace(credential, idp=own.all_domains[0]) if own is not None else None

    def verify(self, credential: Credential) -> Verified:
        """Verify a credential; see the head of the file."""
        name = digest(credential.token)
        now = self._now()
        key = name if credential.is_jwt else f"{name} {credential.idp}"
        kept = self._kept.get(key)
        if kept is None or not now < kept.until <= now + CACHE_SECONDS + 1:  # set back: asked again
            kept = self._find_out(credential, key, now)
        else:
            self._kept.move_to_end(key)
        said = kept.found
        if isinstance(said, NodeError):
            raise type(said)(said.description)
        name = said.token_name or name
        if self.revocations.covers(said.issuer.url, said.subject, said.issued, name):
            raise Rejected("The identity has been revoked.")
        return Verified(claims.match_profile(said, credential), name, said.nonce, kept.until)

    # --- what is not known yet --------------------------------------------------------------------

    def _find_out(self, credential: Credential, key: str, now: float) -> _CachedResult:
        try:
            if credential.is_jwt:
                said = self._read_jwt(credential.token, now)
            else:
                return self._ask_about(credential, key)
        except (Rejected, Unknown) as error:
            return self._keep(key, _CachedResult(error, now + FAILURE_CACHE_SECONDS))
        return self._keep(key, _CachedResult(said, min(said.ends, now + CACHE_SECONDS)))

    def _keep(self, key: str, found: _CachedResult) -> _CachedResult:
        self._kept[key] = found
        self._kept.move_to_end(key)
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return found

    def _read_jwt(self, token: str, now: float) -> ValidatedClaims:
        issuer = self.book.named(credentials.unverified_claims(token).get("iss"))
        if issuer is None:
            raise Unknown
        head = credentials.header(token)
        algorithm = head.get("alg")
        if algorithm not in issuer.algorithms:
            raise Rejected("The token is not signed in a way its issuer signs.")
        if "crit" in head:
            raise Rejected("The token asks for extensions this node does not have.")
        key = self._keys.find(issuer, head.get("kid"), algorithm)
        self.verifications += 1
        try:
            content = jwt.decode(token, key, algorithms=[algorithm]).claims
        except (JoseError, ValueError, TypeError) as error:
            log.info("A token was refused: %s", type(error).__name__)
            raise Rejected("The token's signature is not its issuer's.") from None
        audiences = issuer.audiences or (self.client_ids if issuer.is_embedded else frozenset())
        said = claims.read(content, issuer, audiences, now, self._leeway)
        jti = content.get("jti") if issuer.is_embedded else None
        name = claims.id_token_name(jti) if isinstance(jti, str) else _name_of_jwt(token)
        return replace(said, token_name=name)

    def _ask_about(self, credential: Credential, key: str) -> _CachedResult:
        """Introspect an opaque token at the issuer of its domain, else at all that support it."""
        if credential.idp:
            issuer = self.book.of_domain(credential.idp)
            asked = [issuer] if issuer is not None else []
        else:
            able = (each for each in self.book.all if each.introspects)
            asked = sorted(able, key=lambda each: not each.is_embedded)
        if not asked:
            raise Unknown
        if not any(each.introspects for each in asked):
            raise Rejected("The assertion has no token that could be verified.")
        waiting = self._asking.get(key)
        if waiting is None:
            self._spend()
            waiting = asyncio.ensure_future(self._introspect(asked, credential.token, key))
            self._asking[key] = waiting
        raise waiting_for("What an issuer says of a token", waiting)

    def _spend(self) -> None:
        """Count a query to an issuer. Raises TooMany."""
        if not self._asks.take():
            raise TooMany("Too many tokens are being verified: try again in a second.")

    async def _introspect(self, asked: list[Issuer], token: str, key: str) -> None:
        """Ask the own provider, then all others at the same time; the result is cached.

        The own provider comes first, because its tokens are shown to nobody else. Of the others
        the first that knows the token decides: a slow one is not waited for.
        """
        own = [each for each in asked if each.is_embedded]
        others = [each for each in asked if not each.is_embedded]
        found: _CachedResult | None = None
        try:
            for together in (own, others):
                said = await self._first_to_know(together, token)
                if isinstance(said, ValidatedClaims):
                    found = _CachedResult(said, min(said.ends, self._now() + CACHE_SECONDS))
                    break
                if said is not None:
                    found = _CachedResult(said, self._now() + FAILURE_CACHE_SECONDS)
            if found is None:
                error = Rejected("No issuer of this node knows the token.")
                found = _CachedResult(error, self._now() + FAILURE_CACHE_SECONDS)
        finally:
            del self._asking[key]
        self._keep(key, found)

    async def _first_to_know(
        self, asked: list[Issuer], token: str
    ) -> ValidatedClaims | NodeError | None:
        """What the first says that believes a token.

        Returns:
            Else why one of them refuses it, else that one is out of reach; None: nobody knows it.
        """
        questions = [asyncio.ensure_future(self._said_by(each, token)) for each in asked]
        refusal: NodeError | None = None
        try:
            for answer in asyncio.as_completed(questions):
                try:
                    said = await answer
                except NodeError as fault:
                    if refusal is None or isinstance(refusal, Unavailable):
                        refusal = fault
                    continue
                if said is not None:
                    return said
        finally:
            for each in questions:
                each.cancel()
            await asyncio.gather(*questions, return_exceptions=True)
        return refusal

    async def _said_by(self, issuer: Issuer, token: str) -> ValidatedClaims | None:
        """What an issuer says of a token, None if it does not know it.

        Raises:
            Unavailable: it is out of reach.
            NodeError: what it says refuses the token.
        """
        try:
            answer = await self._introspected(issuer, token)
            said = self._from_answer(issuer, answer) if answer is not None else None
        except NodeError:
            raise
        except Exception as fault:
            log.warning("An issuer does not answer: %s", fault, extra={"iss": issuer.url})
            text = "The issuer of the token cannot be reached at the moment."
            raise Unavailable(text) from fault
        if issuer not in self.book.all:  # it was taken out, or changed, meanwhile
            raise Unknown
        return said

    async def _introspected(self, issuer: Issuer, token: str) -> dict[str, Any] | None:
        if not issuer.is_embedded:
            answer = await self._fetcher.introspection(
                issuer.introspection_url, token, issuer.client_id, issuer.client_secret
            )
            return answer if answer.get("active") is True else None
        if self._provider is None:
            return None
        async with asyncio.timeout(3.0):
            return await self._provider.introspect(token)

    def _from_answer(self, issuer: Issuer, answer: dict[str, Any]) -> ValidatedClaims:
        """Check an issuer's answer about a token like the claims of one."""
        now = self._now()
        told = {"iss": issuer.url, "exp": now + CACHE_SECONDS, **answer}
        clients = issuer.audiences
        client = answer.get("client_id")
        if isinstance(client, str) and client in clients:
            told["aud"] = client
        elif not clients:
            clients, told["aud"] = frozenset({"-"}), "-"
        return claims.read(told, issuer, clients, now, self._leeway)


def _name_of_jwt(token: str) -> str:
    """The name of a JWT to bind it: of what is signed, since one content has many signatures.

    Whoever has a signature of an elliptic curve can write another one that is as good.
    """
    return digest(token.rpartition(".")[0])
