"""The state of a stub: what it says of itself, and what becomes of one that is not live. Pure.

A stub, or the peer behind it, says its state in one word, and why. One that has a socket, or asks
for none, must report within a time limit that it is live. Otherwise it is ended and restarted like
one that has failed. The time limit does not run while its socket is being opened, because an
unreachable peer is not the stub's fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

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


def read(message: Message, address: str) -> StubStatus | None:
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


def read_without_id(text: bytes, address: str) -> StubStatus | None:
    """The same of what is no message because it has no id: stubs tell of themselves like that."""
    try:
        return read(messages.parse(b'{"id":0,' + text.lstrip()[1:]), address)
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
