"""Rows of the traffic record: made, counted, shown to an observer and passed on to be stored."""

from __future__ import annotations

from collections import defaultdict
from time import perf_counter, time

from msgnode.core.addresses import MAX_LENGTH, is_p2p_stub
from msgnode.core.decision import Decision
from msgnode.core.envelope import MAX_ID_LENGTH, InvalidFrame
from msgnode.core.histogram import Histogram
from msgnode.core.identity import Speaker
from msgnode.core.message_types import TYPES
from msgnode.core.messages import Message
from msgnode.core.record import OTHER_TYPE, Outcome, TrafficRecord

from .ports import MessageObserver, Recorder


class CountingRecorder:
    """Counts messages by type and outcome, bytes, and seconds.

    Args:
        onward: stores each row; None stores none.
    """

    def __init__(self, onward: Recorder | None = None) -> None:
        self.messages: defaultdict[tuple[str, Outcome], int] = defaultdict(int)
        self.invitations: defaultdict[Outcome, int] = defaultdict(int)  # to P2P connections
        self.bytes = self.copies = self.bytes_out = 0
        self.latencies = Histogram((20e-6, 50e-6, 100e-6, 300e-6, 1e-3, 3e-3, 10e-3, 0.1))
        self._onward = onward.note if onward is not None else None

    def note(self, record: TrafficRecord) -> None:
        """Count a row, and pass it on."""
        type_, outcome, size, listeners = (
            record.type, record.outcome, record.size, record.listeners,
        )  # fmt: skip
        self.messages[type_, outcome] += 1
        if type_ == "create" and "/p2phandler/" in record.to and is_p2p_stub(record.to):
            self.invitations[outcome] += 1
        self.bytes += size
        self.copies += listeners
        self.bytes_out += size * listeners
        self.latencies.observe(record.latency)
        if self._onward is not None:
            self._onward(record)


class Rows:
    """Makes the rows. One instance per pipeline; `tap` is shown each row and the original body."""

    def __init__(self, recorder: Recorder) -> None:
        self.tap: MessageObserver | None = None
        self._keep = recorder.note

    def note(
        self,
        message: Message,
        to: str,
        speaker: Speaker,
        decision: Decision,
        began: float,
        outcome: Outcome,
        listeners: int = 0,
        component: str = "",
        code: int = 0,
    ) -> None:
        """Note the outcome of a message at one recipient.

        Args:
            message: the message.
            to: the recipient.
            speaker: its sender.
            decision: the decision of the policies.
            began: `perf_counter` when the frame was read.
            outcome: the outcome at this recipient.
            listeners: how many accepted it.
            component: name of the component that answered, if one did.
            code: code of the answer, 0 without one.
        """
        record = TrafficRecord(
            time(),
            speaker.session_id,
            message.id.decode(),
            message.type if message.type in TYPES else OTHER_TYPE,
            message.sender,
            to,
            len(message.frame),
            listeners,
            outcome,
            component,
            code,
            decision.effect,
            decision.deciding[-1] if decision.deciding else "",
            speaker.identity is not None,
            perf_counter() - began,
            speaker.runtime_url,
        )
        self._keep(record)
        if self.tap is not None:
            self.tap(record, message.body)

    def note_fault(self, fault: InvalidFrame, frame: bytes, speaker: Speaker, began: float) -> None:
        """Note an invalid frame, with those of its parts that are known and can be shown.

        Args:
            fault: what is wrong with the frame.
            frame: the frame as it came.
            speaker: its sender.
            began: `perf_counter` when the frame was read.
        """
        record = TrafficRecord(
            at=time(),
            session=speaker.session_id,
            id=fault.id[:MAX_ID_LENGTH].decode(errors="replace"),
            type="",
            sender=_shown(fault.sender),
            to=_shown(fault.to),
            size=len(frame),
            listeners=0,
            outcome=Outcome.REFUSED,
            code=fault.code,
            latency=perf_counter() - began,
            runtime=speaker.runtime_url,
        )
        self._keep(record)
        if self.tap is not None:
            self.tap(record, b"")


def _shown(address: str) -> str:
    """The text in the place of an address, cut to size and with printable characters only."""
    cut = address[:MAX_LENGTH]
    if cut.isprintable():
        return cut
    return "".join(character if character.isprintable() else "\ufffd" for character in cut)
