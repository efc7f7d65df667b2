"""The cache of the issuers' public keys, and when they are fetched again.

find(issuer, kid, alg) -> key at once; or Pending; or an error:

  the key is cached           used for up to `keeps` seconds after the last successful fetch; when
                              older than LIFETIME seconds, the set is also fetched in the background
  nothing was fetched yet     one fetch, shared by all who wait
  the set has no such key     fetched again, at most once in PAUSE seconds; else Rejected
  the issuer is out of reach  Unavailable, until the next attempt after PAUSE seconds
  no key of the set is usable Unavailable, and reported with the reason for each key

So an issuer that is down affects only those whose keys it has not provided yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import Any, NamedTuple

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
STALE_SECONDS = 24 * 3600.0
"""How long keys outlive an outage of their issuer: its operators notice within a day."""
MAX_KEYS = 64
MIN_RSA_BITS = 2048

Key = jwk.RSAKey | jwk.ECKey | jwk.OKPKey
Load = Callable[[Issuer], Awaitable[dict[str, Any]]]
Report = Callable[[Issuer, str, str], None]
"""Called when keys were read: why the issuer is out of reach, and why no key of its is usable, or
"" each."""

PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
_FAMILY = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class JwksCache:
    """One instance per worker.

    `load` fetches a JWK set; `keeps` is how long keys outlive an outage.
    """

    def __init__(
        self,
        load: Load,
        keeps: float = STALE_SECONDS,
        clock: Callable[[], float] = monotonic,
        report: Report = lambda issuer, fault, unusable: None,
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
            key = chosen(known.keys, kid, algorithm)
            if key is not None:
                return key
            if not issuer.jwks:
                self._refresh(issuer, known, now)
        if known.fetching is not None:
            raise waiting_for("A key of the issuer", known.fetching)
        if known.is_out_of_reach:
            raise Unavailable("The keys of the identity's issuer cannot be fetched at the moment.")
        if known.unusable:
            raise Unavailable("This node cannot use any of the keys of the identity's issuer.")
        raise Rejected("The token is signed with a key its issuer does not have.")

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many keys of each issuer can be used, and how many cannot, by its URL."""
        return {
            url: (len(known.keys), len(known.faults))
            for url, known in self._by_issuer.copy().items()
        }

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
                self._report(issuer, "", known.unusable)
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
            self._report(issuer, "", known.unusable)
        except Exception as error:
            known.is_out_of_reach = True
            self._report(issuer, str(error) or type(error).__name__, "")
            log.warning("Keys could not be fetched: %s", error, extra={"issuer": issuer.url})
        finally:
            known.fetching = None


class _IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.keys: list[Key] = []
        self.faults: tuple[str, ...] = ()
        self.unusable = ""  # why no key of its can be used
        self.loaded_at = float("-inf")
        self.next_try = float("-inf")
        self.is_out_of_reach = False
        self.fetching: asyncio.Future[None] | None = None

    def take(self, jwks: dict[str, Any], now: float) -> None:
        found = read_key_set(jwks)
        self.keys, self.loaded_at = found.keys, now
        if found.faults != self.faults:
            for fault in found.faults:
                log.warning("A key cannot be used: %s", fault, extra={"issuer": self.issuer.url})
        if found.has_private:
            text = "A key is published with its private part"
            log.warning(text, extra={"issuer": self.issuer.url})
        self.faults = found.faults
        allowed = self.issuer.algorithms
        if any(_fits(key, each) for key in found.keys for each in allowed):
            self.unusable = ""
            return
        others = (f"key {key.kid or '?'} does not fit {', '.join(allowed)}" for key in found.keys)
        self.unusable = "; ".join((*found.faults, *others)) or "its key set is empty"


class KeySet(NamedTuple):
    """The keys of a JWK set that can verify signatures, and why its others cannot.

    `has_private`: whether the private part of a key is published.
    """

    keys: list[Key]
    faults: tuple[str, ...]
    has_private: bool


def read_key_set(jwks: Any) -> KeySet:
    """Read a JWK set. Raises ValueError if it is none.

    A member without content (null, "", []) is as if it were not there: serialisers that write every
    member of a class publish such. Of a key that is published with its private part only the public
    part is read, because checking the private one takes seconds.
    """
    listed = jwks.get("keys") if isinstance(jwks, dict) else None
    if not isinstance(listed, list):
        raise ValueError("This is not a JWK set: it has no list `keys`.")  # noqa: TRY004
    keys: list[Key] = []
    faults = []
    has_private = False
    for number, each in enumerate(listed[:MAX_KEYS], 1):
        written = each if isinstance(each, dict) else {}
        members = {name: value for name, value in written.items() if value not in (None, "", [])}
        has_private = has_private or not PRIVATE.isdisjoint(members)
        try:
            keys.append(_verification_key(members))
        except (JoseError, ValueError, TypeError, KeyError) as error:
            named = f" ({str(members['kid'])[:60]})" if "kid" in members else ""
            faults.append(f"key {number}{named} {error}")
    if len(listed) > MAX_KEYS:
        faults.append(f"only the first {MAX_KEYS} of its {len(listed)} keys are read")
    return KeySet(keys, tuple(faults), has_private)


def chosen(keys: Iterable[Key], kid: Any, algorithm: str) -> Key | None:
    """The key with this id for this algorithm; without an id only if there is just one."""
    fitting = [key for key in keys if _fits(key, algorithm)]
    if kid is None:
        return fitting[0] if len(fitting) == 1 else None
    return next((key for key in fitting if key.kid == kid), None)


def public_keys(jwks: Any) -> list[Key]:
    """The keys of a JWK set that can verify signatures. Raises ValueError if it is none."""
    return read_key_set(jwks).keys


def _verification_key(members: dict[str, Any]) -> Key:
    """A key of a set, from its members that have content. What it raises says what is wrong."""
    if not members:
        raise ValueError("is no JSON object with members")
    kind = members.get("kty")
    if kind == "oct":
        raise ValueError("is a shared secret (kty: oct)")
    if kind not in ("RSA", "EC", "OKP"):
        raise ValueError(f"is of a kind that is not known here (kty: {str(kind)[:20]})")
    if members.get("use", "sig") != "sig":
        raise ValueError(f"is not for signatures (use: {str(members['use'])[:20]})")
    if "verify" not in members.get("key_ops", ["verify"]):
        raise ValueError(f"is not for verification (key_ops: {str(members['key_ops'])[:60]})")
    try:
        key = jwk.import_key({name: members[name] for name in members.keys() - PRIVATE})
    except (JoseError, ValueError, TypeError, KeyError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else f"cannot be read: {error}"
        raise ValueError(why[:200]) from None
    if isinstance(key, jwk.RSAKey) and key.public_key.key_size < MIN_RSA_BITS:
        raise ValueError(f"is too short: {key.public_key.key_size} bits, {MIN_RSA_BITS} are needed")
    if not isinstance(key, (jwk.RSAKey, jwk.ECKey, jwk.OKPKey)):
        raise ValueError("is of a kind that is not known here")  # noqa: TRY004
    return key


def _fits(key: Key, algorithm: str) -> bool:
    if _FAMILY.get(algorithm[:2]) != key.key_type:
        return False
    return key.alg in (None, algorithm)
