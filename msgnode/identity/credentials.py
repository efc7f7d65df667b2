"""Reads the credentials that a runtime presents, in every form of the field. Pure.

docs/reference/identity.md, section 3.

present(identity object or text) -> Credential: the token in it, and what is claimed around it
header(token), unverified_claims(token): the content of a JWT, to choose the issuer and the key

Rules
- Forms of an assertion (3.1): three parts joined by dots are a JWT; else Base64 of JSON whose
  `tokenID` is the token; else the text is an opaque token.
- `tokenIDJSON` is ignored, because it is not signed.
- Nothing here is trusted; the verifier relies on a signature or on the issuer only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from msgnode.core import base64url
from msgnode.core.errors import NotIdentified

MAX_TOKEN = 16 * 1024
"""Longest token in characters."""
MAX_ASSERTION = 64 * 1024
"""Longest assertion in characters: a token with its surroundings in Base64."""

_BESIDE_PROFILE = ("userURL", "UserURL", "guid", "username", "preferred_username", "email", "sub")
"""What receivers may read beside the profile, and is checked like it."""

_PART = re.compile(r"[A-Za-z0-9_-]*")
_decode = msgspec.json.Decoder().decode


class Rejected(NotIdentified):
    """The identity is of a known issuer, and it is invalid."""

    title = "The identity is not valid"


class Unknown(NotIdentified):
    """The identity cannot be verified: it is of no known issuer."""

    title = "The identity is of no issuer this node knows"


@dataclass(frozen=True, slots=True)
class Credential:
    """A claimed identity. `idp` is the domain of the provider in lower case, or ""."""

    token: str
    is_jwt: bool
    idp: str = ""
    profile: dict[str, Any] = field(default_factory=dict)


def present(identity: Any) -> Credential | None:
    """The identity in a message; None if it has no assertion to verify.

    `identity` is the object of docs/reference/identity.md, section 3, or a text (an `idToken`).
    Raises Rejected if it is too long.
    """
    if isinstance(identity, str):
        return _credential(identity, "", {}) if identity else None
    if not isinstance(identity, dict):
        return None
    assertion = identity.get("assertion")
    if not isinstance(assertion, str) or not assertion:
        return None
    profile = identity.get("userProfile")
    claimed = dict(profile) if isinstance(profile, dict) else {}
    for name in _BESIDE_PROFILE:
        beside = identity.get(name)
        if isinstance(beside, str) and claimed.setdefault(name, beside) != beside:
            raise Rejected(f"The identity has another {name} than its profile.")
    return _credential(assertion, idp_domain(identity.get("idp")), claimed)


def idp_domain(idp: Any) -> str:
    """The provider's domain of `idp`, an object or a text."""
    domain = idp.get("domain") if isinstance(idp, dict) else idp
    return domain.strip().lower().removeprefix("www.") if isinstance(domain, str) else ""


def _credential(text: str, idp: str, profile: dict[str, Any]) -> Credential:
    if len(text) > MAX_ASSERTION:
        raise Rejected(f"The assertion is longer than {MAX_ASSERTION} characters.")
    token = text.strip()
    if not is_jwt(token):
        token = _wrapped(token) or token
    if len(token) > MAX_TOKEN:
        raise Rejected(f"The token is longer than {MAX_TOKEN} characters.")
    return Credential(token, is_jwt(token), idp, profile)


def is_jwt(text: str) -> bool:
    """Whether the text has the form of a signed JWT (its signature may be missing)."""
    parts = text.split(".")
    return len(parts) == 3 and all(map(_PART.fullmatch, parts)) and _json_of(parts[0]) is not None


def _wrapped(text: str) -> str:
    """`tokenID` of a Base64 wrapper, or ""."""
    wrapper = _json_of(text)
    token = wrapper.get("tokenID") if wrapper is not None else None
    return token if isinstance(token, str) else ""


def header(token: str) -> dict[str, Any]:
    """The protected header of a JWT.

    Only `alg` and `kid` are of interest: keys come from the issuer's configuration, never from a
    token.
    """
    return _json_of(token.partition(".")[0]) or {}


def unverified_claims(token: str) -> dict[str, Any]:
    """The claims of an unverified JWT: only for choosing an issuer."""
    return _json_of(token.split(".")[1]) or {}


def _json_of(text: str) -> dict[str, Any] | None:
    """The JSON object in Base64 text of either alphabet, padded or not."""
    try:
        value = _decode(base64url.decode(text))
    except (RecursionError, ValueError):
        return None
    return value if isinstance(value, dict) else None
