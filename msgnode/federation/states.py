"""The states of a peer: what follows from what happens to it, as a table. Pure.

    starting -> connecting -> live <-> disconnected      (as reported by the stub)
    any -> waiting -> starting                           (the sandbox has ended: back-off)
    any -> leaving -> idle -> starting                   (not needed; needed again)
    any -> replaced -> waiting -> starting               (another stub takes its place)

Rules
- A stub, or the peer behind it, says its state in one word, and why.
- One that has a socket, or asks for none, must say within a time limit that it is live. Otherwise
  it is ended and restarted like one that has failed. The limit does not run while its socket is
  being opened, because an unreachable peer is not the stub's fault.
- A stub does not tell whether the peer continues its session there. So the first frames of each
  socket are watched: the session continues if the stub asked for that, and was given no other
  token. Anything else counts as a new session, which is never wrong, only more work. If nothing
  listens at the peer's addresses any more, its node has ended, not only the connection: pending
  requests are lost, even if the session continues once it is back.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage
from msgnode.core.messages import Message

STARTING, CONNECTING, LIVE = "starting", "connecting", "live"
DISCONNECTED, WAITING, IDLE = "disconnected", "waiting", "idle"
LEAVING, REPLACED, STOPPED = "leaving", "replaced", "stopped"

LIVE_SECONDS = 30.0
"""Longer than a peer may be silent (SILENCE_SECONDS): one that is frozen loses its socket first."""
RECONNECT_SECONDS = 1.0
"""After which a stub that does not come back by itself is told to."""
NO_SOCKET_SECONDS = 0.25
"""For which one that is live may have no socket: some open another one without a word."""


class Event(Enum):
    """What happens to a peer."""

    BEGINS = "its sandbox starts"
    IS_CREATED = "its stub says that it was created"
    IS_CONNECTING = "its stub says that it connects"
    IS_LIVE = "its stub says that it is live"
    IS_DISCONNECTED = "its stub says that it is disconnected"
    GAVE_UP = "its stub says that it has failed"
    HAS_NO_SOCKET = "it has no socket any more"
    DOES_NOT_RETURN = "its stub has not connected again by itself"
    IS_LATE = "its stub was not live in time"
    IS_UNUSED = "nobody has needed it for long"
    IS_NEEDED = "somebody needs it"
    IS_REPLACED = "another stub is to take the place of its stub"
    IS_LEFT = "it is to be served no more"
    SESSION_ENDED = "its session here has ended"
    SESSION_REFUSED = "it gets no session here"
    ENDED = "its sandbox has ended"
    MAY_BEGIN = "the pause is over, or an operator wants it to begin"


class Action(Enum):
    """What is done then."""

    NOTHING = "nothing"
    CONNECT = "tell the stub to connect"
    SERVE = "subscribe there again if the session is new, pass on what waits"
    END = "end the sandbox"
    PART = "have the stub close its session there, then end the sandbox"
    PAUSE = "wait, as long as the back-off says"
    BEGIN = "start a sandbox, or open the session here again"


Transition = tuple[str, Action]


def _running(state: str) -> dict[Event, Transition]:
    """What any peer has in common whose stub runs, and is to go on."""
    return {
        Event.IS_CREATED: (STARTING, Action.NOTHING),
        Event.IS_CONNECTING: (CONNECTING, Action.NOTHING),
        Event.IS_LIVE: (LIVE, Action.SERVE),
        Event.IS_DISCONNECTED: (DISCONNECTED, Action.NOTHING),
        Event.GAVE_UP: (state, Action.END),
        Event.IS_LATE: (state, Action.END),
        Event.SESSION_ENDED: (state, Action.END),
        Event.IS_UNUSED: (LEAVING, Action.PART),
        Event.IS_LEFT: (LEAVING, Action.NOTHING),
        Event.IS_REPLACED: (REPLACED, Action.NOTHING),
        Event.ENDED: (WAITING, Action.PAUSE),
        Event.SESSION_REFUSED: (WAITING, Action.PAUSE),
    }


def _ending(state: str) -> dict[Event, Transition]:
    """What any peer has in common whose stub is to end: it is given nothing, nor believed."""
    return {
        Event.GAVE_UP: (state, Action.END),
        Event.SESSION_ENDED: (state, Action.END),
        Event.SESSION_REFUSED: (WAITING, Action.PAUSE),
    }


def _resting() -> dict[Event, Transition]:
    """What any peer has in common that has no sandbox."""
    return {
        Event.BEGINS: (STARTING, Action.NOTHING),
        Event.MAY_BEGIN: (STARTING, Action.BEGIN),
        Event.SESSION_REFUSED: (WAITING, Action.PAUSE),
    }


TABLE: dict[str, dict[Event, Transition]] = {
    STARTING: _running(STARTING) | {Event.BEGINS: (STARTING, Action.NOTHING)},
    CONNECTING: _running(CONNECTING),
    LIVE: _running(LIVE) | {Event.HAS_NO_SOCKET: (DISCONNECTED, Action.NOTHING)},
    DISCONNECTED: _running(DISCONNECTED) | {Event.DOES_NOT_RETURN: (DISCONNECTED, Action.CONNECT)},
    LEAVING: _ending(LEAVING) | {Event.ENDED: (IDLE, Action.NOTHING)},
    REPLACED: _ending(REPLACED) | {Event.ENDED: (WAITING, Action.PAUSE)},
    WAITING: _resting(),
    IDLE: _resting()
    | {Event.IS_NEEDED: (STARTING, Action.BEGIN), Event.SESSION_ENDED: (IDLE, Action.BEGIN)},
    STOPPED: _resting(),
}
"""By state and event, the next state and what is done. What is not here changes nothing."""


# --- what a stub says -----------------------------------------------------------------------------

EVENT_OF = {
    "created": Event.IS_CREATED,
    "in-progress": Event.IS_CONNECTING,
    "live": Event.IS_LIVE,
    "connected": Event.IS_LIVE,
    "disconnected": Event.IS_DISCONNECTED,
    "failed": Event.GAVE_UP,
}
"""By the word with which a stub says it."""
GAP = "gap"
"""Messages were lost, or what the peer held for this node is gone."""


class StubStatus(NamedTuple):
    """A status; `value` is "" where it says nothing that can be read."""

    value: str
    text: str


def read_status(message: Message, address: str) -> StubStatus | None:
    """The status that a message is, None if it is to another address."""
    if message.recipients[0] != address:
        return None
    try:
        body = message.fields()
    except BadMessage:
        return StubStatus("", "")
    value = body.get("value")
    text = str(body.get("desc") or body.get("description") or "")
    return StubStatus(value if isinstance(value, str) else "", text)


def read_status_without_id(text: bytes, address: str) -> StubStatus | None:
    """The same of what is no message because it has no id: stubs tell of themselves like that."""
    try:
        return read_status(messages.parse(b'{"id":0,' + text.lstrip()[1:]), address)
    except InvalidFrame:
        return None


class StubClock:
    """When time itself makes something happen to a stub. One instance per peer.

    Args:
        seconds: in which a stub has to be live.
        clock: seconds that only grow.
    """

    def __init__(
        self, seconds: float = LIVE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._late_at = self._connect_at = self._lost_at = math.inf

    def begin(self) -> None:
        """Start the time limit, because a stub was loaded."""
        self._late_at = self._clock() + self.seconds

    def tried(self) -> None:
        """Note that the stub is disconnected, or was told to connect: it has time to do so."""
        self._connect_at = self._clock() + RECONNECT_SECONDS

    def hurry(self) -> None:
        """Have a stub without a socket be told to connect at once."""
        self._connect_at = 0.0

    def moments(self, state: str, sockets: int, is_open: bool) -> dict[Event, float]:
        """When each of its events happens. Call this whenever one of the arguments has changed.

        Args:
            state: the state of the peer.
            sockets: the number of its sockets, including those that are being opened.
            is_open: whether one of them is open.
        """
        if (state == LIVE) if is_open else sockets:
            self._late_at = math.inf
        elif self._late_at == math.inf:
            self.begin()
        if state != LIVE or sockets:
            self._lost_at = math.inf
        elif self._lost_at == math.inf:
            self._lost_at = self._clock() + NO_SOCKET_SECONDS
        moments = {Event.IS_LATE: self._late_at, Event.HAS_NO_SOCKET: self._lost_at}
        if state == DISCONNECTED and not sockets:
            moments[Event.DOES_NOT_RETURN] = self._connect_at
        return moments


# --- the session at the peer ----------------------------------------------------------------------
SESSION = "mn:/session"
LOOKS = 50
"""Most frames of a socket that are searched for the answer to the session frame."""


class _Body(msgspec.Struct):
    code: Any = None
    runtimeToken: Any = None  # noqa: N815  (the wire's)


class _Answer(msgspec.Struct):
    sender: str = msgspec.field(name="from", default="")
    body: _Body | None = None


_answers = msgspec.json.Decoder(_Answer)


class SessionWatch:
    """One instance per peer; it outlives sockets and sandboxes. Keeps only digests of tokens.

    Args:
        lost: called with a text when a socket was lost.
    """

    def __init__(self, lost: Callable[[str], None] = lambda _: None) -> None:
        self.lost = lost
        self.is_new = False
        self.has_ended = False
        self._looks = 0
        self._asked_again = False
        self._digest = ""

    def opened(self) -> None:
        """Note an open socket: a new session unless proved otherwise."""
        self.is_new = True
        self._looks = LOOKS
        self._asked_again = False

    def refused(self) -> None:
        """Note that nothing listens at the peer's address."""
        self.has_ended = True

    def sent(self, text: str) -> None:
        """Inspect a frame of the stub."""
        if self._looks and '"re-open"' in text and SESSION in text:
            self._asked_again = True

    def received(self, text: str) -> None:
        """Inspect a frame of the peer."""
        if not self._looks:
            return
        self._looks -= 1
        if SESSION not in text:
            return
        try:
            answer = _answers.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        if answer.sender != SESSION or answer.body is None:
            return
        token = answer.body.runtimeToken
        digest = hashlib.sha256(str(token).encode(errors="replace")).hexdigest() if token else ""
        is_other = digest not in ("", self._digest)
        self.is_new = not self._asked_again or answer.body.code != 200 or is_other
        self._digest = digest or self._digest
        self._looks = 0 if answer.body.code == 200 else self._looks
