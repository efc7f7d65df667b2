"""What may not cross the border between two domains.

docs/reference/identity.md, section 7, item 9, and case 87.

An access token lets its holder in at its own domain, so it does not leave that domain in a message,
unless it was issued for the domain it goes to. Nothing is verified here: a token whose audience is
made up opens nothing where it arrives.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from . import addresses

_decode = msgspec.json.Decoder().decode


def may_cross(token: bytes, sender: str, to: str, listeners: Iterable[str] = ()) -> bool:
    """Whether an access token may go from one address to the other.

    It may within one domain, and to a domain it names as its audience. An address of a domain may
    be a visitor's, whose runtime is of another.

    Args:
        token: as JSON, a text or an object around one.
        sender: the address it is sent from.
        to: the recipient's address.
        listeners: the runtime URLs of those who hear it.

    >>> may_cross(b'"opaque"', "hyperty://a.example/1", "hyperty://b.example/2")
    False
    """
    there = {addresses.parse(each).home for each in (to, *listeners)}
    there -= {addresses.parse(sender).home, ""}
    return not there or there <= _audience(token)


def _audience(token: bytes) -> set[str]:
    """The domains that an unverified JWT says it is for; empty for every other token."""
    try:
        said = _decode(token)
        text = said.get("accessToken") if isinstance(said, dict) else said
        payload = str(text).split(".")[1]
        claims: Any = _decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        named = claims.get("aud")
    except (ValueError, RecursionError, IndexError, AttributeError):  # as of base64 and JSON, too
        return set()
    return {_domain(each) for each in (named if isinstance(named, list) else [named])}


def _domain(audience: object) -> str:
    """The domain in an audience, which is a URL or a bare name."""
    text = str(audience)
    try:
        return addresses.home_domain(urlsplit(text).netloc if "://" in text else text)
    except ValueError:
        return ""
