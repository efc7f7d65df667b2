"""The outbox: in order, once, within its bound, whatever the socket does."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from msgnode.bus.ports import DeliveryResult
from msgnode.sessions.outbox import Outbox
from tests.fakes import FakeLink

LIMIT = 1_000


class OutboxModel(RuleBasedStateMachine):
    """Frames are numbered; what sockets have taken and what waits is what was accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.overflows = 0
        self.outbox = Outbox(LIMIT, True, self._overflow)
        self.link: FakeLink | None = None
        self.number = 0
        self.accepted: list[bytes] = []
        self.written: list[bytes] = []
        self.lost = False

    def _overflow(self) -> None:
        self.overflows += 1

    @rule(size=st.integers(0, 300))
    def put(self, size: int) -> None:
        frame = b"%d:" % self.number + b"x" * size
        self.number += 1
        before = self.overflows
        outcome = self.outbox.put(frame)
        if outcome is DeliveryResult.DROPPED:
            self.lost = True
            assert self.overflows == before + (self.link is not None)
            return
        if self.link is None:
            assert outcome is DeliveryResult.QUEUED
        else:
            assert outcome is (
                DeliveryResult.BEHIND if self.outbox.is_behind else DeliveryResult.WRITTEN
            )
        self.accepted.append(frame)

    @precondition(lambda self: self.link is None)
    @rule(room=st.integers(0, 5))
    def attach(self, room: int) -> None:
        self.link = FakeLink(room)
        self.outbox.attach(self.link)

    @precondition(lambda self: self.link is not None)
    @rule(room=st.integers(0, 5))
    def drain(self, room: int) -> None:
        assert self.link is not None
        self.link.drain(room)

    @precondition(lambda self: self.link is not None)
    @rule()
    def detach(self) -> None:
        assert self.link is not None
        self.outbox.detach()
        self.written += self.link.frames
        self.link = None

    @invariant()
    def the_frames_leave_in_order_and_once(self) -> None:
        out = self.written + (self.link.frames if self.link else [])
        assert out == self.accepted[: len(out)]
        waiting = self.accepted[len(out) :]
        assert self.outbox.waiting_bytes >= sum(map(len, waiting))
        assert (self.outbox.waiting_bytes == 0) == (not waiting)

    @invariant()
    def the_bound_holds_and_a_loss_is_known(self) -> None:
        assert self.outbox.waiting_bytes <= LIMIT + LIMIT // 4
        assert self.outbox.has_gap is self.lost


TestOutbox = OutboxModel.TestCase
TestOutbox.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=40, deadline=None
)


def test_an_outbox_that_keeps_nothing_drops_what_comes_without_a_socket() -> None:
    outbox = Outbox(LIMIT, False, lambda: None)
    assert outbox.put(b"x") is DeliveryResult.DROPPED
    link = FakeLink()
    outbox.attach(link)
    assert outbox.put(b"y") is DeliveryResult.WRITTEN
    assert link.frames == [b"y"]


def test_what_a_socket_never_sent_comes_before_what_waits() -> None:
    outbox = Outbox(LIMIT, True, lambda: None)
    link = FakeLink(2)
    outbox.attach(link)
    for frame in (b"1", b"2", b"3"):
        outbox.put(frame)
    outbox.put_back(link.frames)
    outbox.detach()
    outbox.put(b"4")
    after = FakeLink()
    outbox.attach(after)
    assert after.frames == [b"1", b"2", b"3", b"4"]
    assert outbox.waiting_bytes == 0
    assert not outbox.has_gap


def test_a_cleared_outbox_has_forgotten_what_waited() -> None:
    outbox = Outbox(LIMIT, True, lambda: None)
    outbox.put(b"x")
    outbox.clear()
    link = FakeLink()
    outbox.attach(link)
    assert (link.frames, outbox.waiting_bytes) == ([], 0)


def test_who_comes_back_to_a_full_queue_has_room_for_what_comes_before_senders_pause() -> None:
    ended: list[None] = []
    outbox = Outbox(LIMIT, True, lambda: ended.append(None))
    frame = b"x" * 36
    while outbox.put(frame) is DeliveryResult.QUEUED:
        pass
    assert outbox.has_gap
    outbox.attach(FakeLink(0))
    assert [outbox.put(frame), outbox.put(frame)] == [DeliveryResult.BEHIND] * 2
    assert not ended
    assert outbox.put(frame) is DeliveryResult.DROPPED
    assert len(ended) == 1
