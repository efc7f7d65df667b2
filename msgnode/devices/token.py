"""The session key of a device: its runtime URL and its session token in one text. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

PREFIX = "mns_"


class SessionKey(NamedTuple):
    """What opens a session."""

    runtime_url: str
    token: str


def write(key: SessionKey) -> str:
    """The token as the device is given it.

    >>> write(SessionKey("runtime://d/1", "t0k"))
    'mns_cnVudGltZTovL2QvMQ.t0k'
    """
    url = base64.urlsafe_b64encode(key.runtime_url.encode()).decode().rstrip("=")
    return f"{PREFIX}{url}.{key.token}"


def read(text: str) -> SessionKey | None:
    """Take a token apart; None if it is none of a device's session.

    >>> read("mns_cnVudGltZTovL2QvMQ.t0k"), read("mns_%.t"), read("eyJhbGciOi")
    (SessionKey(runtime_url='runtime://d/1', token='t0k'), None, None)
    """
    if not text.startswith(PREFIX) or not text.isascii():
        return None
    url, dot, token = text[len(PREFIX) :].partition(".")
    if not dot or not token:
        return None
    try:
        decoded = base64.b64decode(url + "=" * (-len(url) % 4), altchars=b"-_", validate=True)
        return SessionKey(decoded.decode(), token)
    except (binascii.Error, ValueError):
        return None
