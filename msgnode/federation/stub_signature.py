"""Verifies signatures of stubs: a compact JWS of the source, with detached payload (RFC 7515).

A stub is as trustworthy as its signer: a peer's keys are entered by a person, who has them from the
peer by another way than its catalogue.
"""

from __future__ import annotations

import json
from contextlib import suppress

from joserfc import jws
from joserfc.errors import JoseError

from msgnode.core import base64url
from msgnode.identity.jwks import Key, KeySet, public_keys, read_key_set

ALGORITHMS = ("ES256", "RS256", "Ed25519", "EdDSA")
MAX_KEYS_TEXT = 16_384
_MAX_SIGNATURE = 4_096


class BadSignature(Exception):
    """The source is not signed as required; the text says why."""


def keys_fault(text: str) -> str:
    """Why these are not valid keys of a peer, "" if they are, or there are none."""
    if not text.strip():
        return ""
    try:
        keys = json.loads(text) if len(text) <= MAX_KEYS_TEXT else {"keys": []}
        found = read_key_set(keys)
    except (ValueError, RecursionError):
        found = KeySet([], (), False)
    if not found.keys:
        reasons = f" ({'; '.join(found.faults)})" if found.faults else ""
        return (
            f'must be public keys as a JSON Web Key Set: {{"keys": [{{"kty": "OKP", …}}]}}{reasons}'
        )
    if found.has_private:
        return "must be public keys: the peer alone has the private ones"
    return ""


def ids_of(keys: str) -> frozenset[str]:
    """The ids of keys, as `signer_of` returns them; none where the text cannot be read."""
    return frozenset(_by_id(keys))


def kept_ids(before: str, now: str) -> frozenset[str]:
    """The ids that name the same key among those of before and those of now."""
    first, second = (_by_id(keys) for keys in (before, now))
    return frozenset(id_ for id_, key in first.items() if second.get(id_) == key)


def signer_of(content: bytes, signature: str, keys: str) -> str:
    """The id of the key that has signed a source.

    Args:
        content: the bytes of the source.
        signature: a compact JWS.
        keys: the allowed keys, as a JSON Web Key Set.

    Raises:
        BadSignature: none of them has signed it.
    """
    if not signature:
        raise BadSignature("It is not signed.")
    head, middle, tail = [*signature.split("."), "", ""][:3]
    if len(signature) > _MAX_SIGNATURE or signature.count(".") != 2 or not (head and tail):
        raise BadSignature("Its signature is no JWS in compact form.")
    if middle and not _is_of(middle, content):
        raise BadSignature("Its signature is of another source.")
    detached = f"{head}..{tail}"
    for key in public_keys(json.loads(keys)):
        if _has_signed(key, detached, content):
            return _id_of(key)
    raise BadSignature("It is not signed by a key that was given for this peer, or was altered.")


def _by_id(keys: str) -> dict[str, frozenset[str]]:
    """The thumbprints of keys: several of one peer may have the same id."""
    found: dict[str, frozenset[str]] = {}
    with suppress(ValueError, RecursionError):
        for key in public_keys(json.loads(keys)):
            found[_id_of(key)] = found.get(_id_of(key), frozenset()) | {key.thumbprint()}
    return found


def _id_of(key: Key) -> str:
    return str(key.kid or key.thumbprint())


def _has_signed(key: Key, signature: str, content: bytes) -> bool:
    try:
        jws.deserialize_compact(signature, key, ALGORITHMS, payload=content)
    except (JoseError, ValueError, TypeError, KeyError):
        return False
    return True


def _is_of(middle: str, content: bytes) -> bool:
    try:
        return base64url.decode(middle) == content
    except ValueError:
        return False
