"""Doing what a route says: the one place where frames are handed to sessions.

A frame is made once for all listeners of a recipient. The sender's session token is cut out of
every copy but its own (stubs of the field write their session URL into `via`).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgnode.core import copies
from msgnode.core.faults import FAULTS
from msgnode.core.messages import Message
from msgnode.core.record import Outcome

from .ports import Caller, DeliveryResult, Listener, Response
from .return_paths import ReturnPath

Beside = Response | ReturnPath | None
"""What goes with a frame to another worker, never in it."""

SILENT_TAILS = ("/changes", "/status")
_AT_ONCE = 256  # listeners of one frame in one turn of the loop
_BYTES_AT_ONCE = 1024 * 1024  # and bytes, all copies together


def hand_over(
    frame: bytes,
    listeners: tuple[Listener, ...],
    sender: Listener,
    caller: Caller,
    beside: Beside = None,
) -> tuple[Outcome, int]:
    """Give the frame to every listener; the best outcome among them, and how many accepted it.

    The one listener of a message can hold its sender back; those of a fan-out never do.
    """
    if len(listeners) > 1:
        fan_out = FanOut(frame, listeners, sender, beside)
        for _ in fan_out.parts():
            pass
        return fan_out.outcome
    token = sender.token
    public = copies.without_token(frame, token) if token else frame
    listener = listeners[0]
    taken = _give(listener, frame if listener is sender else public, beside)
    if taken is DeliveryResult.WRITTEN:
        return Outcome.DELIVERED, 1
    if taken is DeliveryResult.BEHIND:
        caller.wait_for(listener)
        return Outcome.DELIVERED, 1
    return (Outcome.QUEUED, 1) if taken is DeliveryResult.QUEUED else (Outcome.DROPPED, 0)


def _give(listener: Listener, frame: bytes, beside: Beside) -> DeliveryResult:
    """Hand a frame to one listener; one that cannot take it is ended, whatever the reason."""
    try:
        if beside is None:
            return listener.deliver(frame)
        if isinstance(beside, Response):
            return listener.deliver_response(frame, beside)
        return listener.deliver_request(frame, beside)
    except Exception as error:
        return _failed(listener, error)


def _failed(listener: Listener, error: Exception) -> DeliveryResult:
    """A listener that cannot be handed a frame is ended; the others hear theirs."""
    FAULTS.note("listener", error)
    with FAULTS.kept_to("listener"):
        listener.missed()
    return DeliveryResult.DROPPED


class FanOut:
    """A frame for several listeners, handed over some at a time."""

    def __init__(
        self,
        frame: bytes,
        listeners: tuple[Listener, ...],
        sender: Listener,
        beside: Beside = None,
    ) -> None:
        token = sender.token
        self._frame = frame
        self._public = copies.without_token(frame, token) if token else frame
        self._listeners = listeners
        self._sender = sender
        self._beside = beside
        self._queued = self._dropped = 0

    @property
    def is_large(self) -> bool:
        """Whether it is too much for one turn of the loop."""
        number = len(self._listeners)
        return number > _AT_ONCE or number * len(self._frame) > _BYTES_AT_ONCE

    def parts(self) -> Iterator[None]:
        """Hand over what one turn of the loop is good for, and give way."""
        step = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // (4 * len(self._frame))))
        for start in range(0, len(self._listeners), step):
            self._hand_over(self._listeners[start : start + step])
            yield

    @property
    def outcome(self) -> tuple[Outcome, int]:
        """The best outcome among the listeners, and how many accepted it."""
        count = len(self._listeners) - self._dropped
        if count > self._queued:
            return Outcome.DELIVERED, count
        return (Outcome.QUEUED, self._queued) if self._queued else (Outcome.DROPPED, 0)

    def _hand_over(self, listeners: tuple[Listener, ...]) -> None:
        frame, public, sender = self._frame, self._public, self._sender
        for listener in listeners:
            taken = _give(listener, frame if listener is sender else public, self._beside)
            if taken is DeliveryResult.QUEUED:
                self._queued += 1
            elif taken is DeliveryResult.DROPPED:
                self._dropped += 1


def expects_answer(message: Message, to: str) -> bool:
    """Whether a message that cannot be delivered is answered.

    Requests are; responses and events on `/changes` and `/status` are not
    (docs/reference/messages.md, section 1.6).
    """
    if message.is_response:
        return False
    return not (message.type == "update" and to.endswith(SILENT_TAILS))
