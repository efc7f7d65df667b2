"""Signed records: read, checked and made (docs/reference/registry.md, section B3).

Pure, but for the mathematics.

A record travels as a JWT: header `{"alg":"ES256"}`, payload `{"data": the JSON in base64}`,
signature over secp256k1 by the key inside the record. The field signs in two encodings, DER and the
64 bytes of r and s; both are read, and either is made. `read()` proves that the record is whole,
signed by its own key, and that its GUID is that key's.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from msgnode.core import base64url
from msgnode.core.errors import BadMessage

from . import guids

MAX_LENGTH = 65_536
MAX_USER_IDS = 100
NOT_ITS_GUID = "The GUID does not follow from the record's public key and salt."
_MANDATORY = ("guid", "schemaVersion", "userIDs", "lastUpdate", "timeout", "publicKey", "salt",
              "revoked", "defaults")  # fmt: skip
_DEFAULTS = ("voice", "chat", "video")
_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_HALF = 32
_HEADER = "eyJhbGciOiJFUzI1NiJ9"  # {"alg":"ES256"}


@dataclass(frozen=True, slots=True)
class SignedRecord:
    """What the registry needs of a record; `jwt` is the text as it came."""

    guid: str
    jwt: str
    public_key: str
    salt: str
    user_ids: tuple[str, ...]
    last_update: datetime
    timeout: datetime
    is_active: bool
    is_revoked: bool


def read(jwt: str) -> SignedRecord:
    """The record of a JWT, proved. Raises BadMessage whose text names what is wrong."""
    record = claimed(jwt)
    check_signature(record)
    if not guids.is_of(record.guid, record.public_key, record.salt):
        raise BadMessage(NOT_ITS_GUID)
    return record


def proved(guid: str, jwt: str, charge: Callable[[], None] = lambda: None) -> SignedRecord:
    """The record of a GUID, proved.

    Args:
        guid: the GUID.
        jwt: the record.
        charge: called before the older variant of a GUID is derived; may raise TooMany.

    Raises:
        BadMessage: the text names what is wrong.
    """
    record = claimed_of(guid, jwt)
    if record.guid != guids.derive(record.public_key, record.salt):
        charge()
    return read(jwt)


def claimed(jwt: str) -> SignedRecord:
    """The record of a JWT, not proved: neither signature nor GUID. Raises BadMessage.

    Blanks and line ends around it, as of a file, are not of the JWT.
    """
    jwt = jwt.strip()
    if len(jwt) > MAX_LENGTH:
        raise BadMessage(f"The JWT is longer than {MAX_LENGTH} characters.")
    data = _data(_parts(jwt)[1])
    for name in _MANDATORY:
        if name not in data:
            raise BadMessage(f"JWT is malformed: mandatory parameter '{name}' missing.")
    defaults = data["defaults"]
    for name in _DEFAULTS:
        if not isinstance(defaults, dict) or not isinstance(defaults.get(name), str):
            raise BadMessage(f"JWT is malformed: mandatory parameter 'defaults.{name}' missing.")
    return SignedRecord(
        guid=guids.bare(_printable_text(data, "guid")),
        jwt=jwt,
        public_key=key_text(_printable_text(data, "publicKey")),
        salt=_printable_text(data, "salt"),
        user_ids=_user_ids(data["userIDs"]),
        last_update=_time(data, "lastUpdate"),
        timeout=_time(data, "timeout"),
        is_active=_flag(data, "active", default=True),
        is_revoked=_flag(data, "revoked", default=False),
    )


def claimed_of(guid: str, jwt: str) -> SignedRecord:
    """The record of a GUID, not proved. Raises BadMessage."""
    record = claimed(jwt)
    if guids.bare(guid) != record.guid:
        raise BadMessage("GUIDs do not match: the address names another than the record.")
    return record


def check_signature(record: SignedRecord) -> None:
    """Check that a record is signed by its own key. Raises BadMessage."""
    head, payload, signature = _parts(record.jwt)
    if not is_signed(f"{head}.{payload}", signature, record.public_key):
        raise BadMessage("Malformed signature for JWT: it is not by the record's own key.")


def fields(jwt: str) -> dict[str, Any]:
    """All that a record says, proved or not. Raises BadMessage."""
    return _data(_parts(jwt)[1])


def digest(jwt: str) -> str:
    """What names this very text of a record: SHA-256 in base64url."""
    return base64url.encode(hashlib.sha256(jwt.encode()).digest())


def is_signed(text: str, signature: bytes, public_key: str) -> bool:
    """Whether the signature, in either encoding, is the key's over the text."""
    key = _load(public_key)
    forms = [signature]
    if len(signature) == 2 * _HALF:
        r, s = int.from_bytes(signature[:_HALF]), int.from_bytes(signature[_HALF:])
        forms.insert(0, utils.encode_dss_signature(r, s))
    for form in forms:
        try:
            key.verify(form, text.encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            continue
        return True
    return False


def sign(record: dict[str, Any], key: ec.EllipticCurvePrivateKey, encoding: str = "raw") -> str:
    """The JWT of a record: `encoding` is `raw` (r and s) or `der`."""
    data = base64url.encode(json.dumps(record, separators=(",", ":")).encode())
    payload = json.dumps({"data": data}, separators=(",", ":"))
    text = f"{_HEADER}.{base64url.encode(payload.encode())}"
    signature = key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
    if encoding == "raw":
        r, s = utils.decode_dss_signature(signature)
        signature = r.to_bytes(_HALF) + s.to_bytes(_HALF)
    return f"{text}.{base64url.encode(signature)}"


def public_text(key: ec.EllipticCurvePrivateKey) -> str:
    """The public key in the record's form: PEM marks and base64 on one line."""
    der = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _BEGIN + base64.b64encode(der).decode() + _END


def key_text(text: str) -> str:
    """The key as the GUID is derived from it: without line breaks and outer blanks."""
    return text.replace("\r", "").replace("\n", "").strip()


def _load(public_key: str) -> ec.EllipticCurvePublicKey:
    body = public_key.removeprefix(_BEGIN).removesuffix(_END)
    try:
        key = serialization.load_der_public_key(base64url.decode(body))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadMessage("Malformed public key found in JWT.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256K1):
        raise BadMessage("Malformed public key found in JWT: it is not a key on secp256k1.")
    return key


def _parts(jwt: str) -> tuple[str, str, bytes]:
    parts = jwt.split(".")
    if len(parts) != 3 or not jwt.isascii():
        raise BadMessage("Malformed JWT: it has not the three parts of a signed token.")
    try:
        header = json.loads(base64url.decode(parts[0]))
        signature = base64url.decode(parts[2])
    except (ValueError, RecursionError):
        raise BadMessage("Malformed JWT: header or signature cannot be decoded.") from None
    if not isinstance(header, dict) or header.get("alg") not in ("ES256", "ES256K"):
        raise BadMessage("Malformed JWT: the algorithm is not ES256.")
    return parts[0], parts[1], signature


def _data(payload: str) -> dict[str, Any]:
    try:
        data = json.loads(base64url.decode(json.loads(base64url.decode(payload))["data"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadMessage("Malformed JWT: its claim 'data' is not an encoded record.") from None
    if not isinstance(data, dict):
        raise BadMessage("Malformed JWT: its claim 'data' is not a JSON object.")
    return data


def _printable_text(data: dict[str, Any], name: str) -> str:
    value = data[name]
    if not isinstance(value, str) or not value.isprintable():
        raise BadMessage(f"JWT is malformed: parameter '{name}' is not a text.")
    return value


def _time(data: dict[str, Any], name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(_printable_text(data, name))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadMessage(f"JWT is malformed: parameter '{name}' is not a time.") from None


def _flag(data: dict[str, Any], name: str, default: bool) -> bool:
    value = data.get(name, default)
    if value not in (0, 1):
        raise BadMessage(f"JWT is malformed: parameter '{name}' is neither 0 nor 1.")
    return bool(value)


def _user_ids(listed: object) -> tuple[str, ...]:
    """The user ids, under either spelling of their key, or as the oldest records list them."""
    if not isinstance(listed, list) or len(listed) > MAX_USER_IDS:
        raise BadMessage(f"JWT is malformed: 'userIDs' is no list of at most {MAX_USER_IDS}.")
    ids = [i.get("uid", i.get("uID")) if isinstance(i, dict) else i for i in listed]
    named = tuple(i for i in ids if isinstance(i, str) and i.isprintable())
    if len(named) != len(ids):
        raise BadMessage("JWT is malformed: an entry of 'userIDs' names no user.")
    return named
