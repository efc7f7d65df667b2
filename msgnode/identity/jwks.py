"""The cache of the issuers' public keys, and when they are fetched again.

find(issuer, kid, alg) -> key at once; or Pending; or an error:

  the key is cached           used for up to `keeps` seconds after the last successful fetch; when
                              older than LIFETIME seconds, the set is also fetched in the background
  nothing was fetched yet     one fetch, shared by all who wait
  the set has no such key     fetched again, at most once in PAUSE seconds; else Rejected
  the issuer is out of reach  Unavailable, until the next attempt after PAUSE seconds

So an issuer that is down affects only those whose keys it has not provided yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import Any

import msgspec
from joserfc import jwk
from joserfc.errors import JoseError

from msgnode.core.errors import Unavailable

from .credentials import Rejected
from .issuers import Issuer
from .pending import waiting_for

log = logging.getLogger(__name__)

LIFETIME = 300.0
PAUSE = 10.0
MAX_KEYS = 64
MIN_RSA_BITS = 2048

Key = jwk.RSAKey | jwk.ECKey | jwk.OKPKey
Load = Callable[[Issuer], Awaitable[dict[str, Any]]]
Report = Callable[[Issuer, str], None]
"""Called after each fetch: why the issuer is out of reach, or ""."""

PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
_FAMILY = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class JwksCache:
    """One instance per worker.

    `load` fetches a JWK set; `keeps` is how long keys outlive an outage.
    """

    def __init__(
        self,
        load: Load,
        keeps: float,
        clock: Callable[[], float] = monotonic,
        report: Report = lambda issuer, fault: None,
    ) -> None:
        self._load = load
        self._report = report
        self._keeps = keeps
        self._clock = clock
        self._by_issuer: dict[str, _IssuerKeys] = {}

    def find(self, issuer: Issuer, kid: Any, algorithm: str) -> Key:
        """The key with this id for this algorithm. The head of the file tells what it raises."""
        known = self._keys_of(issuer)
        now = self._clock()
        age = now - known.loaded_at
        if age > LIFETIME and not issuer.jwks:
            self._refresh(issuer, known, now)
        if age <= self._keeps or issuer.jwks:
            key = known.find(kid, algorithm)
            if key is not None:
                return key
            if not issuer.jwks:
                self._refresh(issuer, known, now)
        if known.fetching is not None:
            raise waiting_for("A key of the issuer", known.fetching)
        if known.is_out_of_reach:
            raise Unavailable("The keys of the identity's issuer cannot be fetched at the moment.")
        raise Rejected("The token is signed with a key its issuer does not have.")

    def state(self, issuer: Issuer) -> str:
        """The state of an issuer's keys in a word or two, for the operator."""
        known = self._by_issuer.get(issuer.url)
        if known is None or (not known.keys and not known.is_out_of_reach):
            return "not asked yet"
        return "out of reach" if known.is_out_of_reach else f"{len(known.keys)} keys"

    def keep(self, issuers: Iterable[Issuer]) -> None:
        """Take changed issuers: keep the keys of those that are unchanged.

        The embedded provider's keys are always fetched again: they cost nothing and may be what
        changed.
        """
        kept = {each.url: each for each in issuers if not each.is_embedded}
        self._by_issuer = {
            url: known for url, known in self._by_issuer.items() if kept.get(url) == known.issuer
        }

    def _keys_of(self, issuer: Issuer) -> _IssuerKeys:
        known = self._by_issuer.get(issuer.url)
        if known is None:
            known = self._by_issuer[issuer.url] = _IssuerKeys(issuer)
            if issuer.jwks:
                known.take(msgspec.json.decode(issuer.jwks), self._clock())
        return known

    def _refresh(self, issuer: Issuer, known: _IssuerKeys, now: float) -> None:
        """Fetch the keys, unless a fetch is running or was just tried."""
        if known.fetching is None and now >= known.next_try:
            known.next_try = now + PAUSE
            known.fetching = asyncio.ensure_future(self._fetch(issuer, known))

    async def _fetch(self, issuer: Issuer, known: _IssuerKeys) -> None:
        try:
            known.take(await self._load(issuer), self._clock())
            known.is_out_of_reach = False
            self._report(issuer, "")
        except Exception as error:
            known.is_out_of_reach = True
            self._report(issuer, str(error) or type(error).__name__)
            log.warning("Keys could not be fetched: %s", error, extra={"issuer": issuer.url})
        finally:
            known.fetching = None


class _IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.keys: list[Key] = []
        self.loaded_at = float("-inf")
        self.next_try = float("-inf")
        self.is_out_of_reach = False
        self.fetching: asyncio.Future[None] | None = None

    def take(self, jwks: dict[str, Any], now: float) -> None:
        self.keys = public_keys(jwks)
        self.loaded_at = now

    def find(self, kid: Any, algorithm: str) -> Key | None:
        """The key by its id; without an id only if there is just one."""
        fitting = [key for key in self.keys if _fits(key, algorithm)]
        if kid is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.kid == kid), None)


def public_keys(jwks: Any) -> list[Key]:
    """The keys of a set that can verify signatures.

    Secrets, short keys and unknown kinds are left out. If a key is published with its private part,
    only the public part is read, because checking the private one takes seconds. Raises ValueError
    if it is not a set.
    """
    listed = jwks.get("keys") if isinstance(jwks, dict) else None
    if not isinstance(listed, list):
        raise ValueError("This is not a JWK set: it has no list `keys`.")  # noqa: TRY004
    found: list[Key] = []
    for each in listed[:MAX_KEYS]:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        if not PRIVATE.isdisjoint(each):
            log.warning("A key of an issuer is published with its private part.")
        try:
            key = jwk.import_key({name: each[name] for name in each.keys() - PRIVATE})
        except (JoseError, ValueError, TypeError, KeyError) as error:
            log.warning("A key of an issuer cannot be read: %s", error)
            continue
        if isinstance(key, jwk.RSAKey) and key.public_key.key_size < MIN_RSA_BITS:
            log.warning("A key of an issuer is too short: %s", key.kid)
        elif isinstance(key, (jwk.RSAKey, jwk.ECKey, jwk.OKPKey)):
            found.append(key)
    return found


def _fits(key: Key, algorithm: str) -> bool:
    if _FAMILY.get(algorithm[:2]) != key.key_type:
        return False
    return key.alg in (None, algorithm)
