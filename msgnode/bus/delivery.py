"""Doing what a route says: the one place where frames are handed to sessions.

A frame is made once for all listeners of a recipient. The sender's session token is cut out of
every copy but its own (stubs of the field write their session URL into `via`).
"""

from __future__ import annotations

from msgnode.core import messages
from msgnode.core.faults import FAULTS
from msgnode.core.messages import Message
from msgnode.core.record import Outcome

from .ports import Caller, DeliveryResult, Listener

_SILENT_TAILS = ("/changes", "/status")


def hand_over(
    frame: bytes, listeners: tuple[Listener, ...], sender: Listener, caller: Caller
) -> tuple[Outcome, int]:
    """Give the frame to every listener; the best outcome among them, and how many accepted it.

    The one listener of a message can hold its sender back; those of a fan-out never do.
    """
    token = sender.token
    public = frame
    if token and token in frame:
        public = messages.without_token(frame, token)
    if len(listeners) == 1:
        listener = listeners[0]
        try:
            taken = listener.deliver(frame if listener is sender else public)
        except Exception as error:
            taken = _failed(listener, error)
        if taken is DeliveryResult.WRITTEN:
            return Outcome.DELIVERED, 1
        if taken is DeliveryResult.BEHIND:
            caller.wait_for(listener)
            return Outcome.DELIVERED, 1
        return (Outcome.QUEUED, 1) if taken is DeliveryResult.QUEUED else (Outcome.DROPPED, 0)
    queued = dropped = 0
    for listener in listeners:
        try:
            taken = listener.deliver(frame if listener is sender else public)
        except Exception as error:
            taken = _failed(listener, error)
        if taken is DeliveryResult.QUEUED:
            queued += 1
        elif taken is DeliveryResult.DROPPED:
            dropped += 1
    count = len(listeners) - dropped
    if count > queued:
        return Outcome.DELIVERED, count
    return (Outcome.QUEUED, queued) if queued else (Outcome.DROPPED, 0)


def _failed(listener: Listener, error: Exception) -> DeliveryResult:
    """A listener that cannot be handed a frame is ended; the others hear theirs."""
    FAULTS.note("listener", error)
    with FAULTS.kept_to("listener"):
        listener.missed()
    return DeliveryResult.DROPPED


def expects_answer(message: Message, to: str) -> bool:
    """Whether a message that cannot be delivered is answered (reference 1.6): requests are;
    responses and events on `/changes` and `/status` are not."""
    if message.is_response:
        return False
    return not (message.type == "update" and to.endswith(_SILENT_TAILS))
