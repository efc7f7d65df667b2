"""The events of a device: order, confirmation, bounds and gaps, whatever is done in what order."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from msgnode.devices.events import GAP, HISTORY_BYTES, OVERHEAD, EventBuffer, EventId, read_id

LIMIT = 2_000


def test_an_id_of_another_buffer_is_a_gap_and_loses_nothing_that_is_here() -> None:
    buffer = EventBuffer(LIMIT, None)
    buffer.append(b"a")
    buffer.resume(EventId("elsewhere", 7))
    assert buffer.take_gap()
    assert not buffer.take_gap()
    assert [frame for _, frame in buffer.take(3, 100)] == [b"a"]


def test_an_id_that_was_never_given_is_a_gap() -> None:
    buffer = EventBuffer(LIMIT, None)
    buffer.append(b"a")
    buffer.resume(EventId(buffer.epoch, 2))
    assert buffer.take_gap()


def test_one_event_larger_than_a_portion_is_still_taken() -> None:
    buffer = EventBuffer(LIMIT, None)
    buffer.append(b"x" * 500)
    buffer.append(b"y")
    assert [len(frame) for _, frame in buffer.take(9, 10)] == [500]


def test_an_id_is_read_as_it_was_written() -> None:
    id_ = EventId("3f9c", 12)
    assert read_id(str(id_)) == id_
    assert [read_id(text) for text in ("", "-", "-1", "a-", "a-x", "a-²", "a" * 70 + "-1")] == (
        [None] * 7
    )


def test_what_was_sent_and_given_up_unconfirmed_is_a_gap_for_who_has_no_id() -> None:
    buffer = EventBuffer(LIMIT, None)
    for _ in range(10):
        buffer.append(b"x" * 500)
        buffer.take(1, 10**9)
    buffer.rewind()
    assert buffer.take_gap()
    told = buffer.last_sent
    buffer.rewind()
    assert buffer.take_gap(), "nobody has said that it was heard"
    buffer.resume(told)
    buffer.rewind()
    assert not buffer.take_gap()


def test_a_gap_stands_where_something_was_lost_and_goes_along_until_it_is_confirmed() -> None:
    buffer = EventBuffer(LIMIT, None)
    buffer.append(b"a")
    (first, _), *_ = buffer.take(1, 100)
    buffer.has_gap = True
    buffer.append(b"b")
    assert buffer.take_gap()
    assert [(id_.number, frame) for id_, frame in buffer.take(9, 100)] == [(3, b"b")]
    moved = EventBuffer(LIMIT, None)
    moved.unpack(buffer.pack())
    moved.resume(first)  # the answer with the gap was lost
    assert moved.take(9, 100) == []
    assert moved.take_gap()
    assert [(id_.number, frame) for id_, frame in moved.take(9, 100)] == [(3, b"b")]
    moved.resume(moved.last_sent)
    assert not moved.take_gap()


def test_a_gap_that_was_not_said_goes_along_to_another_worker() -> None:
    buffer = EventBuffer(LIMIT, None)
    buffer.has_gap = True
    moved = EventBuffer(LIMIT, None)
    moved.unpack(buffer.pack())
    assert moved.take_gap()


def test_of_a_long_history_the_newest_goes_along_and_the_rest_is_a_gap() -> None:
    buffer = EventBuffer(10 * HISTORY_BYTES, None)
    for _ in range(20):
        buffer.append(b"x" * 10_000)
    buffer.take(20, 10**9)
    moved = EventBuffer(10 * HISTORY_BYTES, None)
    moved.unpack(buffer.pack())
    moved.resume(EventId(buffer.epoch, 18))
    assert not moved.take_gap()
    assert [id_.number for id_, _ in moved.take(9, 10**9)] == [19, 20]
    moved.resume(EventId(buffer.epoch, 3))
    assert moved.take_gap()


class Reading(RuleBasedStateMachine):
    """A device that takes, confirms and comes back, beside a list of all that was ever kept."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = EventBuffer(LIMIT, None)
        self.kept: list[bytes] = []
        self.next = 1  # what the device expects, if nothing is lost
        self.newest = 0  # what it was sent at most
        self.confirmed = 0

    @rule(size=st.integers(0, 900))
    def keep(self, size: int) -> None:
        frame = b"%d " % len(self.kept) + b"x" * size
        self.buffer.append(frame)
        self.kept.append(frame)

    @rule(at_most=st.integers(1, 5), size=st.integers(1, 1_500))
    def take(self, at_most: int, size: int) -> None:
        self.hear_gap()
        for id_, frame in self.buffer.take(at_most, size):
            assert id_.number == self.next
            assert frame == self.kept[id_.number - 1]
            self.next += 1
            self.newest = max(self.newest, id_.number)

    @rule(share=st.floats(0, 1))
    def come_back(self, share: float) -> None:
        """Confirms something between what it confirmed before and the newest it was sent."""
        after = self.confirmed + int((self.newest - self.confirmed) * share)
        self.buffer.resume(EventId(self.buffer.epoch, after))
        self.confirmed = after
        if not self.hear_gap():  # or what followed was sent once, and given up for others
            self.next = after + 1

    def hear_gap(self) -> bool:
        """It has a number, and what comes next the number after that."""
        if not self.buffer.take_gap():
            return False
        number = self.buffer.last_sent.number
        if number > len(self.kept) or self.kept[number - 1] != GAP:
            self.kept.insert(number - 1, GAP)
        self.next = number + 1
        self.newest = max(self.newest, number)
        return True

    @rule()
    def move(self) -> None:
        """The session goes to another worker: what was not sent with its queue."""
        unsent, packed = self.buffer.give_back(), self.buffer.pack()
        self.buffer = EventBuffer(LIMIT, None)
        self.buffer.unpack(packed)
        for frame in unsent:
            self.buffer.append(frame)

    @invariant()
    def counts_hold(self) -> None:
        events = list(self.buffer._events)
        assert self.buffer.waiting_bytes == sum(len(each) + OVERHEAD for each in events)
        unsent = events[self.buffer._next - self.buffer._first :]
        assert self.buffer.unsent_bytes == sum(len(each) + OVERHEAD for each in unsent)

    @invariant()
    def only_what_was_never_sent_may_exceed_the_limit(self) -> None:
        assert self.buffer.waiting_bytes <= max(LIMIT, self.buffer.unsent_bytes)


Reading.TestCase.settings = hypothesis_settings(max_examples=60, deadline=None)
TestReading = Reading.TestCase
