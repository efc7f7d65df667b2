"""The state of a peer: what its stub says, what its sockets show, and what follows. Pure.

A stub, or the peer behind it, says its state in one word, and why. One that has a socket, or asks
for none, must report within a time limit that it is live. Otherwise it is ended and restarted like
one that has failed. The time limit does not run while its socket is being opened, because an
unreachable peer is not the stub's fault.

A stub does not tell whether the peer continues its session there. So the first frames of each
socket are watched: the session continues if the stub asked for that, and was given no other token.
Anything else counts as a new session, which is never wrong, only more work. If nothing listens at
the peer's addresses any more, its node has ended, not only the connection: pending requests are
lost, even if the session continues once it is back.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage
from msgnode.core.messages import Message

STARTING, CONNECTING, LIVE = "starting", "connecting", "live"
DISCONNECTED, WAITING, STOPPED = "disconnected", "waiting", "stopped"
IDLE = "idle"
STATE_OF = {
    "created": STARTING,
    "in-progress": CONNECTING,
    "live": LIVE,
    "connected": LIVE,
    "disconnected": DISCONNECTED,
}
"""The states that a stub says itself."""
GAP = "gap"
"""Messages were lost, or what the peer held for this node is gone."""


LIVE_SECONDS = 30.0
"""Longer than a peer may be silent (SILENCE_SECONDS): one that is frozen loses its socket first."""
RECONNECT_SECONDS = 1.0
"""After which a stub that does not come back by itself is told to."""


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


class StubProgress:
    """Decides whether a stub that is not live should reconnect or be ended; one per peer.

    Args:
        seconds: in which a stub has to be live.
        clock: seconds that only grow.

    Attributes:
        ended: why the last stub has, if none is live since.
    """

    def __init__(
        self, seconds: float = LIVE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self.ended = ""
        self._clock = clock
        self._since = self._disconnected_at = clock()

    def begin(self) -> None:
        """Start the time limit, because a stub was loaded."""
        self._since = self._clock()

    def entered(self, state: str) -> None:
        """Note the stub's new state."""
        if state == LIVE:
            self.ended = ""
        elif state == DISCONNECTED:
            self._disconnected_at = self._clock()

    def hurry(self) -> None:
        """Make the stub due to reconnect at once."""
        self._disconnected_at = 0.0

    def is_to_connect(self, state: str, sockets: int) -> bool:
        """Whether to tell it to reconnect now; if so, the next time is after a pause."""
        now = self._clock()
        is_due = state == DISCONNECTED and now - self._disconnected_at > RECONNECT_SECONDS
        if not is_due or sockets:
            return False
        self._disconnected_at = now
        return True

    def is_late(self, state: str, sockets: int, is_open: bool) -> bool:
        """Whether its time limit has passed. Call this regularly.

        Args:
            state: the state it has reported.
            sockets: the number of its sockets, including those that are being opened.
            is_open: whether one of them is open.
        """
        if (state == LIVE) if is_open else sockets:
            self.begin()
        return self._clock() - self._since >= self.seconds


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
