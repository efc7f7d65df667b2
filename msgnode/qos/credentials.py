"""Time-limited TURN credentials, as coturn's use-auth-secret computes them. Pure.

The user name is `<end in seconds since the epoch>:<reservation>`, the password the Base64 of its
HMAC-SHA1 under a secret shared with the server. The names tell nothing about persons, because they
stand in the server's log and in its Redis.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import NamedTuple

ID_LENGTH = 16
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class Credential(NamedTuple):
    """What a client shows to the TURN server."""

    username: str
    password: str


def new_id() -> str:
    """The id of a reservation: 80 random bits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(ID_LENGTH))


def new_secret() -> str:
    """A secret of 32 random bytes, as text without characters that configurations quote."""
    return secrets.token_hex(32)


def username(reservation: str, end: int) -> str:
    """The user name of a credential that is good until `end`."""
    return f"{end}:{reservation}"


def make(secret: str, reservation: str, end: int) -> Credential:
    """The credential of a reservation, good until `end` (seconds since the epoch)."""
    user = username(reservation, end)
    mac = hmac.new(secret.encode(), user.encode(), hashlib.sha1).digest()
    return Credential(user, base64.b64encode(mac).decode())


def end_of(user: str) -> int:
    """Until when a credential with this user name, one of ours, is good."""
    return int(user.partition(":")[0])


def reservation_of(user: str) -> str:
    """The reservation a user name is of, "" if it is none of ours."""
    end, colon, reservation = user.partition(":")
    is_ours = colon and end.isdigit() and len(reservation) == ID_LENGTH
    return reservation if is_ours and set(reservation) <= set(_ALPHABET) else ""
