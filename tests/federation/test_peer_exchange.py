"""Messages between this node and a peer: a request is answered once, and by who was asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgnode.core import messages
from msgnode.core.messages import Message
from msgnode.federation import exchange
from msgnode.federation.exchange import NotCarried, PeerExchange
from msgnode.federation.queue import PeerQueue

A, B = "a.example", "b.example"
OURS, THEIRS = f"hyperty://{A}/1", f"hyperty://{B}/1"


class Place:
    """An exchange, its clock, and what was answered in the place of the peer."""

    def __init__(self, room: int = 5, answers_all: bool = True) -> None:
        self.now = 0.0
        self.answers: list[dict[str, Any]] = []
        queue = PeerQueue(room, 100_000, lambda: self.now)
        self.exchange = PeerExchange(
            A, B, queue, self._answer, lambda: self.now, answers_all=answers_all
        )

    def _answer(self, frame: bytes) -> None:
        self.answers.append(json.loads(frame))

    def asked(self, id_: object = 1, to: str = THEIRS) -> None:
        """A request has left."""
        self.exchange.put(message(OURS, to, "read", id_))
        assert self.exchange.take() is not None


def message(sender: str, to: str, type_: str = "read", id_: object = 1, **body: Any) -> Message:
    frame = {"id": id_, "type": type_, "from": sender, "to": to, "body": body}
    return messages.parse(json.dumps(frame).encode())


def response(id_: object = 1, sender: str = THEIRS, code: int = 200) -> Message:
    return message(sender, OURS, "response", id_, code=code)


@pytest.fixture
def place() -> Place:
    return Place()


def test_what_passes_at_once_passes_nothing_that_waits_and_is_answered_as_any(place: Place) -> None:
    assert place.exchange.at_once(message(OURS, THEIRS, id_=1)) is not None
    assert place.exchange.at_once(message("hyperty://c.example/1", THEIRS)) is None
    assert place.exchange.at_once(message(OURS, THEIRS, store=True)) is None
    place.exchange.put(message(OURS, THEIRS, id_=2))
    assert place.exchange.at_once(message(OURS, THEIRS, id_=3)) is None
    assert place.exchange.counters.sent == 1
    assert place.exchange.taken_in(response(1))
    with pytest.raises(NotCarried, match="nobody has asked"):
        place.exchange.taken_in(response(3))


def test_a_response_is_taken_in_once(place: Place) -> None:
    place.asked()
    place.now = 2.5
    assert json.loads(place.exchange.taken_in(response()).frame)["from"] == THEIRS
    assert place.exchange.counters.round_trip == 2.5
    with pytest.raises(NotCarried, match="nobody has asked"):
        place.exchange.taken_in(response())


def test_a_provisional_response_is_followed_by_the_final_one(place: Place) -> None:
    place.asked()
    place.exchange.taken_in(response(code=100))
    place.exchange.taken_in(response(code=200))


def test_case_38_a_response_that_nobody_asked_for_is_refused(place: Place) -> None:
    place.asked("seven")
    for wrong in (response(8), response("seven", f"hyperty://{B}/2")):
        with pytest.raises(NotCarried, match="nobody has asked"):
            place.exchange.taken_in(wrong)
    assert place.exchange.counters.received == 0


def test_a_response_long_after_is_still_taken_in_and_then_no_more(place: Place) -> None:
    place.asked(1)
    place.asked(2)
    place.now = 599.0
    place.exchange.expire()
    place.exchange.taken_in(response(1))
    place.now = 601.0
    place.exchange.expire()
    with pytest.raises(NotCarried):
        place.exchange.taken_in(response(2))
    (answer,) = place.answers
    assert (answer["id"], answer["body"]["code"]) == (2, 504)
    assert place.exchange.counters.unanswered == 1
    assert "600 s" in place.exchange.out.error


def test_a_request_to_a_peer_that_is_silent_about_unknown_addresses_is_answered_in_time() -> None:
    place = Place(answers_all=False)
    place.asked(1)  # nothing
    place.asked(2)  # a provisional response: somebody there has it
    place.exchange.taken_in(response(2, code=100))
    place.asked(3)  # answered
    place.exchange.taken_in(response(3))
    place.now = 8.0
    place.exchange.put(message(OURS, THEIRS, "read", 4))
    place.now = 13.9
    place.exchange.expire()
    assert place.answers == []
    assert place.exchange.take() is not None  # after six seconds in the queue
    for now, answered in ((14.0, [1]), (21.9, [1]), (22.0, [1, 4])):
        place.now = now
        place.exchange.expire()
        assert [each["id"] for each in place.answers] == answered
    assert {each["body"]["code"] for each in place.answers} == {504}
    late = place.exchange.taken_in(response(1))
    assert json.loads(late.frame)["id"] == 1, "a late one still passes"
    place.exchange.fail_asked("The stub ended.")
    assert [(each["id"], each["body"]["code"]) for each in place.answers[2:]] == [(2, 503)]
    place.now = 1_000.0
    place.exchange.expire()
    assert len(place.answers) == 3, "each is answered once"


def test_case_36_what_could_not_leave_is_answered_and_what_has_left_is_not(place: Place) -> None:
    place.asked(1)
    place.exchange.put(message(OURS, THEIRS, "read", 2))
    place.exchange.put(message(OURS, f"comm://{B}/1/changes", "update", 3))
    place.now = 10.0
    place.exchange.expire()
    (answer,) = place.answers
    assert (answer["id"], answer["from"], answer["body"]["code"]) == (2, THEIRS, 504)
    assert place.exchange.counters.expired == 1


def test_a_request_that_finds_no_room_is_answered(place: Place) -> None:
    for number in range(6):
        place.exchange.put(message(OURS, THEIRS, "read", number))
    (answer,) = place.answers
    assert (answer["id"], answer["body"]["code"]) == (5, 503)
    assert place.exchange.counters.full == 1


def test_what_makes_room_for_a_request_is_counted() -> None:
    place = Place(room=2)
    for number in range(2):
        place.exchange.put(message(OURS, f"comm://{B}/{number}/status", "update", number))
    for number in range(3):
        place.exchange.put(message(OURS, THEIRS, "read", number))
    assert [answer["id"] for answer in place.answers] == [2]
    assert place.exchange.counters.full == 3


def test_when_the_way_ends_all_that_was_asked_is_answered_and_what_waits_goes_on(
    place: Place,
) -> None:
    for number in range(3):
        place.asked(number)
    place.exchange.put(message(OURS, THEIRS, "read", 9))
    place.exchange.fail_asked("it ended")
    assert [answer["id"] for answer in place.answers] == [0, 1, 2]
    assert {answer["body"]["code"] for answer in place.answers} == {503}
    assert place.exchange.take() is not None
    place.exchange.fail_asked("it ended again")
    assert len(place.answers) == 4


def test_when_a_peer_is_served_no_more_what_waits_is_answered(place: Place) -> None:
    place.asked(1)
    place.exchange.put(message(OURS, THEIRS, "read", 2))
    place.exchange.fail_all("it is paused")
    assert [answer["id"] for answer in place.answers] == [1, 2]
    assert len(place.exchange.queue) == 0


def test_what_is_remembered_of_requests_is_bounded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_ASKED", 3)
    for number in range(5):
        place.asked(number)
    with pytest.raises(NotCarried):
        place.exchange.taken_in(response(0))
    place.exchange.taken_in(response(4))
    assert place.exchange.counters.unanswered == 2


def test_what_an_operator_discards_is_answered_once_and_the_rest_goes_on(place: Place) -> None:
    place.exchange.put(message(OURS, THEIRS, id_=1))
    place.exchange.put(message(OURS, f"comm://{B}/1/changes", "update", id_=2))
    place.exchange.put(message(OURS, THEIRS, id_=3))
    first, change, last = place.exchange.queue.longest(0.0, 5)
    place.exchange.discard([first, change, first])
    place.exchange.discard([first])
    assert [(each["id"], each["body"]["code"]) for each in place.answers] == [(1, 503)]
    assert place.exchange.counters.discarded == 2
    assert list(place.exchange.queue.longest(0.0, 5)) == [last]
    place.exchange.discard(None)
    assert [each["id"] for each in place.answers] == [1, 3]
    assert place.exchange.take() is None


def test_a_request_that_has_left_is_not_discarded(place: Place) -> None:
    place.exchange.put(message(OURS, THEIRS, id_=1))
    (number,) = place.exchange.queue.longest(0.0, 5)
    assert place.exchange.take() is not None
    place.exchange.discard([number])
    assert place.answers == []
    place.exchange.taken_in(response(1))
