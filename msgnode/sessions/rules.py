"""The life of a session, and the words of its handshake. Pure.

State      what it means
connected  a socket without a session; nothing but session frames is accepted
open       the session has a socket
detached   the socket is gone; what arrives is queued until it returns or its time is over
closed     the end; addresses and subscriptions are free

The table below is the whole life; the diagram in docs/sessions.md is drawn from it.
"""

from __future__ import annotations

import hmac
import uuid
from enum import StrEnum
from typing import NamedTuple

from msgnode.core import addresses, redaction
from msgnode.core.digest import digest
from msgnode.core.errors import Conflict


class State(StrEnum):
    CONNECTED = "connected"
    OPEN = "open"
    DETACHED = "detached"
    CLOSED = "closed"


class Event(StrEnum):
    OPEN = "open"
    RESUME = "resume"
    LOSE = "lose the socket"
    EXPIRE = "grace period over"
    CLOSE = "close"
    END = "ended by the operator"


TABLE: dict[tuple[State, Event], State] = {
    (State.CONNECTED, Event.OPEN): State.OPEN,
    (State.CONNECTED, Event.LOSE): State.CLOSED,
    (State.OPEN, Event.RESUME): State.OPEN,
    (State.OPEN, Event.LOSE): State.DETACHED,
    (State.OPEN, Event.CLOSE): State.CLOSED,
    (State.OPEN, Event.END): State.CLOSED,
    (State.DETACHED, Event.RESUME): State.OPEN,
    (State.DETACHED, Event.EXPIRE): State.CLOSED,
    (State.DETACHED, Event.END): State.CLOSED,
}


class CloseCode:
    """WebSocket close codes; docs/sessions.md says for each whether to return."""

    NORMAL = 1000
    GOING_AWAY = 3001
    TOO_SLOW = 3008
    BAD_FRAME = 4400
    NOT_IDENTIFIED = 4401
    REFUSED = 4403
    REPLACED = 4409
    TOO_LARGE = 4413
    NO_ROOM = 4429


def after(state: State, event: Event) -> State:
    """The state that follows. Raises Conflict where the table has no row."""
    following = TABLE.get((state, event))
    if following is None:
        raise Conflict(f"A session that is {state} cannot {event}.")
    return following


class SessionUrl(NamedTuple):
    """`<runtime URL>/<token>` taken apart; `token` is "" where the text has none."""

    runtime_url: str
    token: str


def session_url(text: str) -> SessionUrl:
    """Take the `from` of a session frame apart: the token is the last of two or more segments.

    >>> tuple(session_url("runtime://d/1/t0k")), tuple(session_url("runtime://d/1"))
    (('runtime://d/1', 't0k'), ('runtime://d/1', ''))
    """
    path = addresses.parse(text).path.strip("/")
    if "/" not in path:
        return SessionUrl(text.removesuffix("/"), "")
    runtime_url, _, token = text.removesuffix("/").rpartition("/")
    return SessionUrl(runtime_url, token)


def new_token() -> str:
    """A session token: 122 random bits in the form stubs of the field know."""
    return str(uuid.uuid4())


def opens(token: str, kept_hash: str) -> bool:
    """Whether a token is the one of this hash, in constant time."""
    return hmac.compare_digest(digest(token), kept_hash)


def runtime_url_fault(text: str) -> str:
    """Why `text` cannot be a session's runtime URL, or ""."""
    why = addresses.fault(text)
    if why:
        return why
    if len(text) > addresses.MAX_HELD:
        return f"is longer than {addresses.MAX_HELD} characters"
    if redaction.holds_token(text):
        return "holds a token"
    address = addresses.parse(text)
    if address.scheme not in addresses.RUNTIME_SCHEMES:
        return "is not the address of a runtime (runtime://<domain>/<id>)"
    if not address.path.strip("/"):
        return "names no runtime: nothing follows its domain"
    if addresses.is_part(address):
        return "is the address of a part of a runtime"
    return ""
