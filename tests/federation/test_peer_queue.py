"""What waits for a peer: in order, bounded, and not for ever."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from msgnode.core import messages
from msgnode.core.messages import Message
from msgnode.federation.queue import MessageClass, PeerQueue, class_of
from tests.fakes import Clock


def message(type_: str = "read", to: str = "hyperty://b.example/1", value: object = 1) -> Message:
    frame = {
        "id": 1,
        "type": type_,
        "from": "hyperty://a.example/1",
        "to": to,
        "body": {"v": value},
    }
    return messages.parse(json.dumps(frame).encode())


def queue(clock: Clock | None = None, messages_: int = 10, size: int = 100_000) -> PeerQueue:
    return PeerQueue(messages_, size, clock or Clock())


def test_messages_are_of_four_classes() -> None:
    assert class_of(message("execute")) is MessageClass.REQUEST
    assert class_of(message("response")) is MessageClass.RESPONSE
    assert class_of(message("update", "comm://b.example/1/changes")) is MessageClass.CHANGE
    assert class_of(message("update", "comm://b.example/1/children/x")) is MessageClass.CHANGE
    assert class_of(message("update", "hyperty://b.example/1/status")) is MessageClass.EPHEMERAL
    assert class_of(message("create", "comm://b.example/1/changes")) is MessageClass.REQUEST


def test_messages_leave_in_the_order_they_came() -> None:
    waiting = queue()
    for number in range(5):
        assert waiting.put(message(value=number))
    assert [waiting.take().message.fields()["v"] for _ in range(5)] == [0, 1, 2, 3, 4]  # type: ignore[union-attr]
    assert waiting.take() is None
    assert waiting.bytes == 0


def test_a_message_whose_time_is_over_does_not_leave() -> None:
    clock = Clock()
    waiting = queue(clock)
    waiting.put(message())
    waiting.put(message("update", "comm://b.example/1/changes"))
    clock.now = 10.0
    assert [one.class_ for one in waiting.expire()] == [MessageClass.REQUEST]
    assert waiting.take().message.type == "update"  # type: ignore[union-attr]
    assert waiting.dropped == 1


def test_of_a_status_only_the_newest_waits() -> None:
    waiting = queue()
    to = "hyperty://b.example/1/status"
    for number in range(3):
        waiting.put(message("update", to, number))
    assert len(waiting) == 1
    assert waiting.take().message.fields()["v"] == 2  # type: ignore[union-attr]


def test_case_56_what_is_ephemeral_makes_room_first_and_then_nothing_is_taken() -> None:
    waiting = queue(messages_=3)
    waiting.put(message("update", "hyperty://b.example/1/status"))
    for _ in range(3):
        assert waiting.put(message())
    assert not waiting.put(message())
    assert len(waiting) == 3
    assert waiting.dropped == 2


def test_what_has_waited_is_told_oldest_first_and_stays() -> None:
    clock = Clock()
    waiting = queue(clock)
    for number in range(3):
        waiting.put(message(value=number))
        clock.now += 1.0
    told = waiting.longest(2.0, 10)
    assert [one.message.fields()["v"] for one in told.values()] == [0, 1]
    assert list(waiting.longest(0.0, 2)) == list(told)
    assert len(waiting) == 3


def test_a_renewed_message_has_its_whole_time_again_in_its_place() -> None:
    clock = Clock()
    waiting = queue(clock)
    for number in range(2):
        waiting.put(message(value=number))
    clock.now = 9.0
    first, second = waiting.longest(0.0, 10)
    assert waiting.renew([first, 99]) == 1
    clock.now = 18.0
    assert [one.message.fields()["v"] for one in waiting.expire()] == [1]
    assert waiting.left(waiting.longest(0.0, 1)[first]) == 1.0
    assert waiting.renew([second]) == 0, "it has gone"


def test_what_is_removed_leaves_room_and_is_counted() -> None:
    waiting = queue(messages_=2)
    waiting.put(message(value=0))
    waiting.put(message("update", "hyperty://b.example/1/status"))
    numbers = list(waiting.longest(0.0, 10))
    assert [one.message.type for one in waiting.remove([*numbers, *numbers])] == ["read", "update"]
    assert (len(waiting), waiting.bytes, waiting.dropped) == (0, 0, 2)
    assert waiting.put(message("update", "hyperty://b.example/1/status"))


@given(
    st.lists(
        st.sampled_from(["put", "status", "change", "take", "wait", "expire", "first"]), max_size=60
    ),
    st.integers(1, 6),
    st.integers(300, 3_000),
)
def test_a_queue_is_never_larger_than_it_may_be(steps: list[str], most: int, size: int) -> None:
    clock = Clock()
    waiting = PeerQueue(most, size, clock)
    for number, step in enumerate(steps):
        match step:
            case "put":
                waiting.put(message(value="x" * number))
            case "status":
                waiting.put(message("update", f"hyperty://b.example/{number % 3}/status"))
            case "change":
                waiting.put(message("update", "comm://b.example/1/changes"))
            case "take":
                waiting.take()
            case "wait":
                clock.now += 7.0
            case "expire":
                waiting.expire()
            case "first":
                first = list(waiting.longest(0.0, 2))
                waiting.renew(first[:1])
                waiting.remove(first[1:])
        assert len(waiting) <= most
        assert 0 <= waiting.bytes <= size
        assert (waiting.bytes == 0) == (len(waiting) == 0)
    waiting.clear()
    assert waiting.bytes == len(waiting) == 0
