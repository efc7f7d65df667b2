"""Delivers frames to sessions; nothing else does.

A frame is made once for all listeners of a recipient. The sender's session token is cut out of
every copy except the sender's own (stubs of the field write their session URL into `via`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from msgnode.core import addresses
from msgnode.core.faults import FAULTS
from msgnode.core.messages import Message
from msgnode.core.record import Outcome

from .ports import Caller, DeliveryResult, Listener, Response
from .return_paths import ReturnPath
from .trace import TracedDelivery

Beside = Response | ReturnPath | TracedDelivery | None
"""What accompanies a frame to another worker, outside of the frame."""

SILENT_TAILS = ("/changes", "/status")
_AT_ONCE = 256  # listeners of one frame in one turn of the loop
_BYTES_AT_ONCE = 1024 * 1024  # and bytes, all copies together

_WRITTEN = DeliveryResult.WRITTEN
_DELIVERED = (Outcome.DELIVERED, 1)
_ESCAPE = re.compile(rb"\\\\|\\u00([2-7][0-9a-fA-F])")
"""An escaped backslash, or an ASCII character as a JSON escape."""


def hand_over(
    frame: bytes,
    listeners: tuple[Listener, ...],
    sender: Listener,
    caller: Caller,
    beside: Beside = None,
) -> tuple[Outcome, int]:
    """Deliver the frame to every listener.

    A slow reader pauses the sender only if it is the message's only listener, never in a fan-out.

    Returns:
        The best outcome among the listeners, and how many accepted the frame.
    """
    if len(listeners) > 1:
        fan_out = FanOut(frame, listeners, sender, beside)
        for _ in fan_out.parts():
            pass
        return fan_out.outcome
    listener = listeners[0]
    token = sender.token
    if (token in frame or b"\\" in frame) and token and listener is not sender:
        frame = without_token(frame, token)
    try:
        taken = listener.deliver(frame) if beside is None else _give(listener, frame, beside)
    except Exception as error:
        taken = _failed(listener, error)
    if taken is _WRITTEN:
        return _DELIVERED
    if taken is DeliveryResult.BEHIND:
        caller.wait_for(listener)
        return _DELIVERED
    return (Outcome.QUEUED, 1) if taken is DeliveryResult.QUEUED else (Outcome.DROPPED, 0)


def _give(
    listener: Listener, frame: bytes, beside: Response | ReturnPath | TracedDelivery
) -> DeliveryResult:
    """Deliver a frame and what accompanies it to one listener."""
    if isinstance(beside, Response):
        return listener.deliver_response(frame, beside)
    if isinstance(beside, ReturnPath):
        return listener.deliver_request(frame, beside)
    return beside.hand_over(listener, frame)


def _failed(listener: Listener, error: Exception) -> DeliveryResult:
    """Contain the failure of one listener, so that the others still get their copy."""
    FAULTS.note("listener", error)
    with FAULTS.kept_to("listener"):
        listener.missed()
    return DeliveryResult.DROPPED


class FanOut:
    """A frame for several listeners, delivered in batches."""

    def __init__(
        self,
        frame: bytes,
        listeners: tuple[Listener, ...],
        sender: Listener,
        beside: Beside = None,
    ) -> None:
        token = sender.token
        self._frame = frame
        self._public = without_token(frame, token) if token else frame
        self._listeners = listeners
        self._sender = sender
        self._beside = beside
        self._queued = self._dropped = 0

    @property
    def is_large(self) -> bool:
        """Whether it is too much for one turn of the event loop."""
        number = len(self._listeners)
        return number > _AT_ONCE or number * len(self._frame) > _BYTES_AT_ONCE

    def parts(self) -> Iterator[None]:
        """Deliver batch by batch, yielding after each; a session may have moved meanwhile."""
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
        frame, public, sender, beside = self._frame, self._public, self._sender, self._beside
        written = _WRITTEN
        for listener in listeners:
            if listener.successor is not None:
                listener = present(listener)
            copy = frame if listener is sender else public
            try:
                taken = listener.deliver(copy) if beside is None else _give(listener, copy, beside)
            except Exception as error:
                taken = _failed(listener, error)
            if taken is written:
                continue
            if taken is DeliveryResult.QUEUED:
                self._queued += 1
            elif taken is DeliveryResult.DROPPED:
                self._dropped += 1


def present(listener: Listener) -> Listener:
    """The object that stands for a session now, which may have changed its worker."""
    while listener.successor is not None:
        listener = listener.successor
    return listener


def expects_answer(message: Message, to: str) -> bool:
    """Whether an undeliverable message is answered with an error.

    Requests are; responses and events to `/changes` and `/status` are not, nor is the first status
    of a stub, which may be a `create` (docs/reference/messages.md, section 1.6).
    """
    if message.is_response or (message.type == "update" and to.endswith(SILENT_TAILS)):
        return False
    if message.type == "create" and to.endswith("/status"):
        return not (addresses.is_p2p_stub(to) or addresses.is_stub(addresses.parse(to)))
    return True


def without_token(frame: bytes, token: bytes) -> bytes:
    """Cut a session token out of a frame, for everybody but the session itself.

    Stubs of the field mark messages with their session URL (`<runtime URL>/<token>`), which gives
    access to the session. A token is random, so its text can be cut out wherever it occurs, also
    where its characters are written as JSON escapes.
    """
    escaped = b"\\" in frame and b"\\u00" in frame  # one byte is found faster than four
    if not escaped and token not in frame:
        return frame
    if b"/" + token in frame and b"\\/" + token not in frame:  # as stubs write it
        frame = frame.replace(b"/" + token, b"")
    plain = _ESCAPE.sub(_unescaped, frame) if escaped else frame
    if token.lower() not in plain.lower():
        return frame
    return _spellings(token).sub(lambda found: found[1] or b"", frame)


@lru_cache(maxsize=256)
def _spellings(token: bytes) -> re.Pattern[bytes]:
    """A pattern for every JSON spelling of a token, with the slash before it.

    It also matches escaped backslashes, which stay, so that none is taken for an escape.
    """
    chars = (
        rb"(?:%b|\\u00(?:%02x|%02x))" % (re.escape(bytes([char])), char, bytes([char]).upper()[0])
        for char in token
    )
    return re.compile(rb"(\\\\)|(?:\\?/|%2f|\\u002f)?" + b"".join(chars), re.IGNORECASE)


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 16)]) if found[1] else found[0]
