"""The keys of nodes: this node's own, what it publishes of them, and which of a peer's count. Pure.

Rules
- A node's keys (Ed25519) follow from SECRET_KEY and its domain; SECRET_KEY_FALLBACKS give the ones
  before. Nothing is stored, and a new SECRET_KEY is a rotation.
- A node publishes the public ones at PATH, over TLS of its domain, signed with each of them.
- An operator trusts the keys that were found. If the domain later publishes others, they count if
  one that counts has signed them; else an operator is asked again. A key that the domain no longer
  publishes does not count any more, whoever has signed that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from msgnode.core import base64url

from .link_protocol import VERSIONS

PATH = ".well-known/rethink-node"
VALID_SECONDS = 7 * 24 * 3600.0
MAX_DOCUMENT = 16_384
MAX_KEYS = 16

_UNREADABLE = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError),
)
"""What reading a document can raise, whatever stands in it."""

Keys = Mapping[str, Mapping[str, Any]]
"""The keys of a peer that count, by their id: `x`, and since when (`since`)."""


class BadNode(Exception):
    """What a domain publishes of its node is not usable; the text says why."""


class OwnKey(NamedTuple):
    """A key of this node."""

    kid: str
    private: Ed25519PrivateKey

    @property
    def x(self) -> str:
        """The public key, as in a JSON Web Key."""
        return base64url.encode(self.private.public_key().public_bytes_raw())

    def sign(self, content: bytes) -> str:
        """Sign."""
        return base64url.encode(self.private.sign(content))


@dataclass(frozen=True, slots=True)
class FoundNode:
    """What a domain has published: its public keys by their id, and who of them has signed that."""

    keys: Mapping[str, str]
    signers: frozenset[str]


def own_keys(secrets: Iterable[str], domain: str) -> list[OwnKey]:
    """The keys of this node, the one that signs first.

    Args:
        secrets: SECRET_KEY, and its fallbacks.
        domain: of this node.
    """
    info = f"msgnode.link {domain}".encode()
    keys = []
    for secret in secrets:
        kdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info)
        private = Ed25519PrivateKey.from_private_bytes(kdf.derive(secret.encode()))
        keys.append(OwnKey(_kid(private.public_key().public_bytes_raw()), private))
    return keys[:MAX_KEYS]


def document(keys: Iterable[OwnKey], domain: str, now: float) -> dict[str, Any]:
    """What this node publishes of itself."""
    mine = list(keys)
    rest = {
        "domain": domain,
        "versions": list(VERSIONS),
        "keys": [{"kty": "OKP", "crv": "Ed25519", "kid": each.kid, "x": each.x} for each in mine],
        "valid_until": round(now + VALID_SECONDS),
    }
    signed = _signed(rest)
    return {**rest, "signatures": {each.kid: each.sign(signed) for each in mine}}


def read_document(content: bytes, domain: str, now: float) -> FoundNode:
    """Read what a domain publishes of its node.

    Raises:
        BadNode: it is not usable.
    """
    try:
        said = msgspec.json.decode(content, type=dict[str, Any])
        signatures = said.pop("signatures", {})
        found = {str(key["kid"]): str(key["x"]) for key in said["keys"]}
        until, versions = float(said["valid_until"]), _numbers(said["versions"])
        signed = _signed(said)
        signers = {kid for kid, x in found.items() if is_by(x, signed, signatures.get(kid))}
        is_whole = all(kid == _kid(base64url.decode(x)) for kid, x in found.items())
    except _UNREADABLE as error:
        raise BadNode(f"it cannot be read: {type(error).__name__} {str(error)[:80]}") from None
    if said.get("domain") != domain:
        raise BadNode(f"it is of {str(said.get('domain'))[:80]!r}")
    if not until >= now:
        raise BadNode("it was valid until an earlier time: one of the clocks is wrong, or it is")
    if not is_whole or not 0 < len(found) <= MAX_KEYS or not signers:
        raise BadNode("its keys are not as they should be, or none of them has signed it")
    if not versions & set(VERSIONS):
        raise BadNode(f"it has the versions {sorted(versions)[:9]}, and this node {VERSIONS}")
    return FoundNode(found, frozenset(signers))


def counting(known: Keys, found: FoundNode, now: float, is_trusted: bool = False) -> Keys:
    """The keys of a peer that count from now on.

    Args:
        known: those that counted.
        found: what its domain publishes now.
        now: seconds since 1970.
        is_trusted: whether an operator trusts what was found.
    """
    still = {kid: key for kid, key in known.items() if found.keys.get(kid) == key["x"]}
    if not (is_trusted or found.signers & still.keys()):
        return still
    new = {kid: {"x": x, "since": round(now)} for kid, x in found.keys.items()}
    return {**new, **still}


def is_by(x: str, content: bytes, signature: object) -> bool:
    """Whether a public key has signed this."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64url.decode(x))
        key.verify(base64url.decode(str(signature)), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _numbers(versions: Iterable[object]) -> set[int]:
    return {each for each in versions if isinstance(each, int)}


def _signed(rest: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(rest, order="sorted")


def _kid(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]
