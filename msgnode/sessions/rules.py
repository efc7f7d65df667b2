"""The state machines of a session and of its socket, one transition table each. Pure.

Session      meaning
provisional  it has a token and a socket, but no runtime URL yet
opening      it has a socket; its row is being stored, and frames are queued
open         it has a socket, and frames flow
resuming     it has a new socket; its row is being stored, and frames are queued
detached     it has lost its socket; frames are queued until it returns or its grace period ends
arriving     it comes from another worker or from the database, and is not usable yet
leaving      it has no socket and is moving to another worker, with its queue
moved        final in this worker: another one has it
closed       final, by its runtime or its absence: its addresses and subscriptions are free
terminated   final, by the node: as closed, and its P2P peers are told to disconnect

Socket       meaning
reading      frames are carried as they come
held         the sender is paused: frames that were read are queued, no more are read
lost         it is gone; frames that were read before are still carried
closing      the node has closed it; frames that still come are discarded
closed       it is gone, and its session has been told

`after` is the only way from one state to the next. An event that is not in the table is a bug of
the node, not a client's error, and changes nothing: LocalProtocolError.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from msgnode.core import addresses, redaction
from msgnode.core.digest import digest
from msgnode.core.random_ids import random_uuid


class State(StrEnum):
    """The state of a session."""

    PROVISIONAL = "provisional"
    OPENING = "opening"
    OPEN = "open"
    RESUMING = "resuming"
    DETACHED = "detached"
    ARRIVING = "arriving"
    LEAVING = "leaving"
    MOVED = "moved"
    CLOSED = "closed"
    TERMINATED = "terminated"


class Event(StrEnum):
    """What moves a session to another state."""

    OPEN = "open"
    STORED = "row stored"
    OPEN_FAILED = "new row not stored"
    RESUME = "resume"
    RESUME_FAILED = "resumption not stored"
    LOSE = "socket lost"
    EXPIRE = "grace period over"
    CLOSE = "closed by its runtime"
    END = "ended by the node"
    ADOPT = "stays with this worker"
    LEAVE = "goes to another worker"
    MOVE = "has gone to another worker"


SESSION: Mapping[tuple[State, Event], State] = {
    (State.PROVISIONAL, Event.OPEN): State.OPENING,
    (State.PROVISIONAL, Event.LOSE): State.CLOSED,
    (State.PROVISIONAL, Event.CLOSE): State.CLOSED,
    (State.OPENING, Event.STORED): State.OPEN,
    (State.OPENING, Event.OPEN_FAILED): State.CLOSED,
    (State.OPENING, Event.RESUME): State.OPENING,
    (State.OPENING, Event.RESUME_FAILED): State.DETACHED,
    (State.OPENING, Event.LOSE): State.DETACHED,
    (State.OPENING, Event.CLOSE): State.CLOSED,
    (State.OPENING, Event.END): State.TERMINATED,
    (State.OPENING, Event.LEAVE): State.LEAVING,
    (State.OPEN, Event.STORED): State.OPEN,
    (State.OPEN, Event.RESUME): State.RESUMING,
    (State.OPEN, Event.RESUME_FAILED): State.DETACHED,
    (State.OPEN, Event.LOSE): State.DETACHED,
    (State.OPEN, Event.CLOSE): State.CLOSED,
    (State.OPEN, Event.END): State.TERMINATED,
    (State.OPEN, Event.LEAVE): State.LEAVING,
    (State.RESUMING, Event.STORED): State.OPEN,
    (State.RESUMING, Event.OPEN_FAILED): State.CLOSED,
    (State.RESUMING, Event.RESUME): State.RESUMING,
    (State.RESUMING, Event.RESUME_FAILED): State.DETACHED,
    (State.RESUMING, Event.LOSE): State.DETACHED,
    (State.RESUMING, Event.CLOSE): State.CLOSED,
    (State.RESUMING, Event.END): State.TERMINATED,
    (State.RESUMING, Event.LEAVE): State.LEAVING,
    (State.DETACHED, Event.OPEN_FAILED): State.CLOSED,
    (State.DETACHED, Event.RESUME): State.RESUMING,
    (State.DETACHED, Event.EXPIRE): State.CLOSED,
    (State.DETACHED, Event.END): State.TERMINATED,
    (State.DETACHED, Event.LEAVE): State.LEAVING,
    (State.ARRIVING, Event.ADOPT): State.DETACHED,
    (State.LEAVING, Event.ADOPT): State.DETACHED,
    (State.LEAVING, Event.OPEN_FAILED): State.CLOSED,
    (State.LEAVING, Event.END): State.TERMINATED,
    (State.LEAVING, Event.MOVE): State.MOVED,
}


class SocketState(StrEnum):
    """The state of a connection."""

    READING = "reading"
    HELD = "held"
    LOST = "lost"
    CLOSING = "closing"
    CLOSED = "closed"


class SocketEvent(StrEnum):
    """What moves a connection to another state."""

    HOLD = "sender over a limit"
    RELEASE = "nothing to wait for"
    LOSE = "gone"
    CLOSE = "closed by the node"
    CARRIED = "all carried"


SOCKET: Mapping[tuple[SocketState, SocketEvent], SocketState] = {
    (SocketState.READING, SocketEvent.HOLD): SocketState.HELD,
    (SocketState.READING, SocketEvent.LOSE): SocketState.LOST,
    (SocketState.READING, SocketEvent.CLOSE): SocketState.CLOSING,
    (SocketState.HELD, SocketEvent.HOLD): SocketState.HELD,
    (SocketState.HELD, SocketEvent.RELEASE): SocketState.READING,
    (SocketState.HELD, SocketEvent.LOSE): SocketState.LOST,
    (SocketState.HELD, SocketEvent.CLOSE): SocketState.CLOSING,
    (SocketState.LOST, SocketEvent.CARRIED): SocketState.CLOSED,
    (SocketState.LOST, SocketEvent.CLOSE): SocketState.CLOSED,
    (SocketState.CLOSING, SocketEvent.LOSE): SocketState.CLOSED,
}


class LocalProtocolError(RuntimeError):
    """The node attempted a transition that is not in the table."""


S = TypeVar("S", State, SocketState)
E = TypeVar("E", Event, SocketEvent)


def after(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """The next state.

    Args:
        table: SESSION or SOCKET.
        state: the current state.
        event: what happens.

    Raises:
        LocalProtocolError: the table has no such transition.
    """
    following = table.get((state, event))
    if following is None:
        raise LocalProtocolError(f"no event {event!r} in the state {state!r}")
    return following


PEER = "peer"
"""The handshake of sessions through which the nodes of other domains are reached."""


class CloseCode:
    """WebSocket close codes; docs/sessions.md says for each whether a client should return."""

    NORMAL = 1000
    GOING_AWAY = 3001
    TOO_SLOW = 3008
    NOT_IDENTIFIED = 4401
    REFUSED = 4403
    REPLACED = 4409
    TOO_LARGE = 4413
    NO_ROOM = 4429


class SessionUrl(NamedTuple):
    """A parsed `<runtime URL>/<token>`; `token` is "" if absent."""

    runtime_url: str
    token: str


def session_url(text: str) -> SessionUrl:
    """Parse the `from` of a session frame: the token is the last of two or more segments.

    >>> tuple(session_url("runtime://d/1/t0k")), tuple(session_url("runtime://d/1"))
    (('runtime://d/1', 't0k'), ('runtime://d/1', ''))
    """
    path = addresses.parse(text).path.strip("/")
    if "/" not in path:
        return SessionUrl(text.removesuffix("/"), "")
    runtime_url, _, token = text.removesuffix("/").rpartition("/")
    return SessionUrl(runtime_url, token)


def new_token() -> str:
    """A session token: 122 random bits in the form that stubs of the field expect."""
    return random_uuid()


def opens(token: str, kept_hash: str) -> bool:
    """Whether a token has this hash; compared in constant time."""
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
    if text not in addresses.runtime_line(text):
        return f"has more than {addresses.MAX_RUNTIME_PARTS} parts"
    if addresses.is_part(address):
        return "is the address of a part of a runtime"
    return ""
