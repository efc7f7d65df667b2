"""The session key of a device: its runtime URL and its session token in one text. Pure."""

from __future__ import annotations

from typing import NamedTuple

from msgnode.core import base64url

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
    return f"{PREFIX}{base64url.encode(key.runtime_url.encode())}.{key.token}"


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
        return SessionKey(base64url.decode(url).decode(), token)
    except ValueError:
        return None
