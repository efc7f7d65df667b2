"""What is refused: a message that a policy blocks, and a frame that is no message."""

from __future__ import annotations

from time import perf_counter, time

from msgnode.core.decision import Decision
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import Forbidden
from msgnode.core.identity import Speaker
from msgnode.core.record import Outcome, TrafficRecord


class NotPermitted(Forbidden):
    """A policy decided against the message."""

    title = "Blocked by policy"

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.reason)
        self.code = decision.code  # type: ignore[misc]  # a limit's is 429
        self.decision = decision


def row_of_fault(
    fault: InvalidFrame, frame: bytes, speaker: Speaker, began: float
) -> TrafficRecord:
    """The row of the traffic record for a frame that is no message, as far as its parts are known.

    Args:
        fault: what is wrong with the frame.
        frame: the frame as it came.
        speaker: who sent it.
        began: `perf_counter` when it was taken.
    """
    return TrafficRecord(
        at=time(),
        session=speaker.session_id,
        id=fault.id.decode(),
        type="",
        sender=fault.sender,
        to=fault.to,
        size=len(frame),
        listeners=0,
        outcome=Outcome.REFUSED,
        code=fault.code,
        latency=perf_counter() - began,
        runtime=speaker.runtime_url,
    )
