"""Decides whether an access token in a message may be sent to another domain.

docs/reference/identity.md, section 7, item 9, and case 87.

An access token gives access at its own domain, so it does not leave that domain in a message unless
it was issued for the domain it is sent to. The token is not verified here: one with a false
audience is useless where it arrives.
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
    """Whether an access token may be sent from one address to another.

    It may within one domain, and to a domain in its audience. The listeners count as well, because
    a visitor at an address of this domain belongs to another.

    Args:
        token: JSON, a text or an object that contains one.
        sender: the address it is sent from.
        to: the recipient's address.
        listeners: the runtime URLs of the listeners.

    >>> may_cross(b'"opaque"', "hyperty://a.example/1", "hyperty://b.example/2")
    False
    """
    there = {addresses.parse(each).home for each in (to, *listeners)}
    there -= {addresses.parse(sender).home, ""}
    return not there or there <= _audience(token)


def _audience(token: bytes) -> set[str]:
    """The domains in the audience of an unverified JWT; empty for any other token."""
    try:
        said = _decode(token)
        text = said.get("accessToken") if isinstance(said, dict) else said
        payload = str(text).split(".")[1]
        claims: Any = _decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        named = claims.get("aud")
    except (ValueError, RecursionError, IndexError, AttributeError):  # also by base64 and JSON
        return set()
    return {_domain(each) for each in (named if isinstance(named, list) else [named])}


def _domain(audience: object) -> str:
    """The domain of an audience, which is a URL or a bare name."""
    text = str(audience)
    try:
        return addresses.home_domain(urlsplit(text).netloc if "://" in text else text)
    except ValueError:
        return ""
