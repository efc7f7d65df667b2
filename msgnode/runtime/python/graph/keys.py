"""From sixteen words to a key, a salt and a GUID. Pure.

The first fifteen words are a BIP-39 mnemonic (160 bits and a checksum), whose seed has the key on
secp256k1 as its BIP-32 master key; the salt is the Base64 of the SHA-256 of the last word. Who has
the words is that person, at any device.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric import ec
from mnemonic import Mnemonic

from registry.global_registry import guids, signed

from .errors import GraphError

_ENTROPY = 160  # bits: fifteen words
_COUNT = 16
_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141


@dataclass(frozen=True, slots=True)
class Keys:
    """What follows from the words; `legacy_guid` is the name that older runtimes gave them."""

    private: ec.EllipticCurvePrivateKey = field(repr=False)
    public_key: str
    salt: str
    guid: str
    legacy_guid: str


def new_words() -> str:
    """Sixteen words, from the system's source of chance."""
    english = Mnemonic("english")
    return f"{english.generate(_ENTROPY)} {secrets.choice(english.wordlist)}"


def keys_of(words: str) -> Keys:
    """What follows from the words, which may be in capitals and set apart by any blanks.

    Raises:
        GraphError: 400; they are not sixteen, one is not in the list, or they do not belong
            together.
    """
    english = Mnemonic("english")
    each = words.lower().split()
    if len(each) != _COUNT:
        raise GraphError(400, f"There are {len(each)} words instead of {_COUNT}.")
    unknown = [number for number, word in enumerate(each, 1) if word not in english.wordlist]
    if unknown:  # the words themselves are secret, and errors are logged
        raise GraphError(400, f"Word {unknown[0]} is none of the list.")
    mnemonic = " ".join(each[:-1])
    if not english.check(mnemonic):
        raise GraphError(400, "The words do not belong together: one is wrong or out of place.")
    private = _master_key(Mnemonic.to_seed(mnemonic))
    public_key = signed.public_text(private)
    salt = base64.b64encode(hashlib.sha256(each[-1].encode()).digest()).decode()
    return Keys(
        private=private,
        public_key=public_key,
        salt=salt,
        guid=guids.derive(public_key, salt),
        legacy_guid=guids.derive_legacy(public_key, salt),
    )


def _master_key(seed: bytes) -> ec.EllipticCurvePrivateKey:
    number = int.from_bytes(hmac.digest(b"Bitcoin seed", seed, "sha512")[:32])
    if not 0 < number < _ORDER:
        raise GraphError(400, "No key follows from these words; take others.")
    return ec.derive_private_key(number, ec.SECP256K1())
