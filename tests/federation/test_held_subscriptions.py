"""What is subscribed at a peer: once, in batches, and again in a new session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgnode.core import messages
from msgnode.federation.held_subscriptions import (
    ANSWER_SECONDS,
    MAX_WRITERS,
    RENEWAL_SECONDS,
    WRITER_SECONDS,
    Answered,
    HeldSubscriptions,
    WriterSubscriptions,
)

B = "b.example"
US = "runtime://a.example/mn-1"
SM = f"domain://msg-node.{B}/sm"


class Place:
    """What is subscribed at a peer, what it was asked, and what the observers were told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[dict[str, Any]] = []
        self.answers: list[Answered] = []
        self.gaps: list[str] = []
        self.held = HeldSubscriptions(
            B, US, self._posted, self, lambda: self.held.pump(), lambda: self.now
        )

    def _posted(self, frame: bytes) -> None:
        self.asked.append(json.loads(frame))

    def answered(self, domain: str, answer: Answered) -> None:
        self.answers.append(answer)

    def missed(self, domain: str, addresses: list[str]) -> None:
        self.gaps += addresses

    def say(self, code: Any = 200, sender: str = SM, **more: Any) -> bool:
        """The peer answers the last request."""
        last = self.asked[-1]
        frame = {
            "id": last["id"], "type": "response", "from": sender, "to": last["from"],
            "body": {"code": code, "description": "so it is"}, **more,
        }  # fmt: skip
        return self.held.take(messages.parse(json.dumps(frame).encode()))

    @property
    def last(self) -> tuple[str, list[str]]:
        return self.asked[-1]["type"], self.asked[-1]["body"]["resources"]


def changes(*numbers: int) -> list[str]:
    return [f"comm://{B}/{number}/changes" for number in numbers]


@pytest.fixture
def place() -> Place:
    return Place()


def test_case_47_an_address_is_subscribed_once_for_all(place: Place) -> None:
    place.held.want(changes(1))
    place.held.want(changes(1))
    assert place.last == ("subscribe", changes(1))
    assert place.asked[0]["from"] == f"{US}/sm"
    assert place.say()
    place.held.want(changes(1))
    assert len(place.asked) == 1
    assert place.answers == [Answered(changes(1), 200, "so it is")]
    place.held.leave(changes(1))
    place.held.pump()
    assert place.last == ("unsubscribe", changes(1))
    assert not place.gaps


def test_case_51_a_thousand_addresses_are_asked_in_batches_one_at_a_time(place: Place) -> None:
    place.held.want(changes(*range(1_000)))
    assert len(place.asked) == 1
    while len(place.held.held) < 1_000:
        place.say()
    sizes = [len(each["body"]["resources"]) for each in place.asked]
    assert sum(sizes) == 1_000
    assert max(sizes) == 200


def test_case_48_what_a_batch_is_refused_for_is_asked_singly(place: Place) -> None:
    place.held.want(["x:0"])
    place.held.want(changes(1, 2, 3))
    place.say()
    place.say(404)
    for code in (200, 403, 200):
        assert len(place.last[1]) == 1
        place.say(code)
    assert [(each.addresses, each.code) for each in place.answers[1:]] == [
        (changes(1), 200), (changes(2), 403), (changes(3), 200)
    ]  # fmt: skip
    assert list(place.held.held) == ["x:0", *changes(1, 3)]


def test_case_49_in_a_new_session_all_is_asked_again_and_then_there_is_a_gap(place: Place) -> None:
    place.held.want(changes(1, 2))
    place.say()
    place.say()
    place.held.renew()
    assert not place.gaps, "who reads the object now would read it too early"
    place.held.want(changes(3))
    assert place.last == ("subscribe", changes(1, 2, 3))
    place.say()
    assert place.gaps == changes(1, 2), "who has just subscribed has missed nothing"


def test_what_is_not_granted_again_is_a_gap_too(place: Place) -> None:
    place.held.want(changes(1))
    place.say()
    place.held.renew()
    place.held.pump()
    place.say(403)
    assert place.gaps == changes(1)
    assert not place.held.held


def test_what_another_worker_held_is_a_gap_after_a_takeover(place: Place) -> None:
    place.held.want(changes(1), were_held=True)
    place.say()
    assert place.gaps == changes(1)


def test_a_request_that_is_not_answered_is_asked_again_later_and_later(place: Place) -> None:
    place.held.want(changes(1))
    for count in range(1, 5):
        assert len(place.asked) == count
        place.now += ANSWER_SECONDS
        place.held.pump()
        place.now += 2.0**count
        place.held.pump()
    place.say()
    assert list(place.held.held) == changes(1)


def test_what_was_under_way_when_the_session_ended_is_asked_again(place: Place) -> None:
    place.held.want(changes(1))
    place.held.renew()
    place.held.pump()
    assert len(place.asked) == 2
    late = {**place.asked[0]}
    place.asked.append(late)
    assert place.say(), "it is not carried on either"
    assert not place.held.held, "an answer to the first session says nothing of the second"


@pytest.mark.parametrize(("sender", "code"), [(f"hyperty://{B}/1", 200), (SM, 100), (SM, 199)])
def test_what_is_no_final_answer_of_the_one_asked_changes_nothing(
    place: Place, sender: str, code: int
) -> None:
    place.held.want(changes(1))
    assert place.say(code, sender)
    assert not place.held.held
    assert place.say()
    assert list(place.held.held) == changes(1)


@pytest.mark.parametrize("code", [None, "200", True, 1e9, [200], {}])
def test_an_answer_without_a_code_is_a_refusal(place: Place, code: Any) -> None:
    place.held.want(changes(1))
    place.say(code)
    assert [each.code for each in place.answers] == [502]


def test_what_nobody_wants_any_more_when_it_is_granted_is_given_back(place: Place) -> None:
    place.held.want(changes(1))
    place.held.leave(changes(1))
    place.say()
    assert place.last == ("unsubscribe", changes(1))


def test_a_peer_that_says_again_and_again_that_it_lost_something_is_asked_once_a_second(
    place: Place,
) -> None:
    place.held.want(changes(1))
    place.say()
    for _ in range(100):
        place.held.suspect()
        place.held.pump()
    assert len(place.asked) == 2
    place.say()
    for _ in range(100):
        place.now += 0.1
        place.held.suspect()
        place.held.pump()
        place.say()
    assert len(place.asked) <= 13


def test_what_is_held_is_gone_through_once_however_often_something_was_lost(place: Place) -> None:
    class Held(dict[str, None]):
        gone_through = 0

        def keys(self) -> Any:  # what `update` of a set or a dict takes of it
            self.gone_through += 1
            return super().keys()

        def __iter__(self) -> Any:
            self.gone_through += 1
            return super().__iter__()

    place.held.want(changes(1, 2))
    place.say()
    place.held.suspect()
    place.held.pump()  # is asked again, which may be done once in a second
    place.say()
    place.held.held = held = Held(place.held.held)
    for _ in range(100):
        place.held.suspect()
    assert held.gone_through == 1
    place.held.leave(changes(1))
    place.say()
    place.held.want(changes(3))
    place.say()
    place.held.suspect()
    assert held.gone_through == 2
    assert place.held._suspected == set(changes(2, 3))


def test_why_a_peer_refuses_is_told_in_words_that_every_database_stores(place: Place) -> None:
    place.held.want(changes(1))
    place.say(403, body={"code": 403, "description": "no\0\n" + "x" * 9_999})
    assert place.answers[0].description.startswith("no  x")
    assert len(place.answers[0].description) <= 300


def test_what_is_granted_after_a_loss_has_lost_nothing(place: Place) -> None:
    place.held.want(changes(1))
    place.say()
    for _ in range(2):  # the second time it waits for the end of a second
        place.held.suspect()
        place.held.pump()
        place.say()
    place.held.want(changes(2))
    place.say()
    assert place.gaps == changes(1)
    place.now += RENEWAL_SECONDS
    place.held.pump()
    assert place.last == ("subscribe", changes(1, 2))
    place.say()
    assert place.gaps == changes(1, 1)
    place.held.renew()
    place.held.pump()
    place.say()
    assert place.gaps == changes(1, 1, 1, 2), "a new session has lost what both could hear"


def test_a_runtime_does_not_end_at_the_peer_what_others_observe(place: Place) -> None:
    place.held.want(changes(1))
    place.say()

    def asks(*named: str) -> Any:
        frame = {
            "id": 1, "type": "unsubscribe", "from": "hyperty://a.example/1", "to": SM,
            "body": {"resources": list(named)},
        }  # fmt: skip
        return place.held.kept(messages.parse(json.dumps(frame).encode()))

    assert asks(*changes(1)) is None
    assert asks(*changes(1, 2)).fields()["resources"] == changes(2)
    assert asks(*changes(2)).fields()["resources"] == changes(2)
    assert asks() is not None, "the peer says what is wrong with it"


def test_a_peer_is_asked_in_the_field_that_it_reads(place: Place) -> None:
    place.held = HeldSubscriptions(
        B, US, place._posted, place, lambda: place.held.pump(), lambda: place.now, list_field=""
    )
    place.held.want(changes(1))
    assert place.asked[-1]["body"] == {"subscribe": changes(1)}
    place.say()
    place.held.leave(changes(1))
    place.held.pump()
    assert place.asked[-1]["body"] == {"unsubscribe": changes(1)}


class Writers:
    """The writers at a peer, and what it was asked: (type, addresses)."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[tuple[str, list[str]]] = []
        self.own = WriterSubscriptions(B, US, self._posted, clock=lambda: self.now)

    def _posted(self, frame: bytes) -> None:
        message = json.loads(frame)
        assert (message["to"], message["from"]) == (SM, self.own.address)
        self.asked.append((message["type"], message["body"]["resources"]))


def ours(*numbers: int) -> list[str]:
    return [f"hyperty://a.example/{number}" for number in numbers]


def test_who_writes_is_subscribed_once_until_it_has_not_written_for_long() -> None:
    writers = Writers()
    for number in (1, 2, 1):
        writers.own.wrote(*ours(number))
    assert writers.asked == [("subscribe", ours(1)), ("subscribe", ours(2))]
    writers.now = WRITER_SECONDS
    writers.own.wrote(*ours(2))
    writers.own.sweep()
    assert len(writers.asked) == 2
    writers.now += 1
    writers.own.sweep()
    assert writers.asked[2:] == [("unsubscribe", ours(1))]
    writers.own.wrote(*ours(1))
    assert writers.asked[3:] == [("subscribe", ours(1))]


def test_of_too_many_writers_the_one_that_wrote_longest_ago_makes_room() -> None:
    writers = Writers()
    for number in range(MAX_WRITERS + 1):
        writers.own.wrote(*ours(number))
    assert writers.asked[-1] == ("unsubscribe", ours(0))
    assert writers.own.addresses == ours(*range(1, MAX_WRITERS + 1))


def test_in_a_new_session_writers_are_subscribed_again_and_at_the_end_released() -> None:
    writers = Writers()
    for number in range(450):
        writers.own.wrote(*ours(number))
    del writers.asked[:]
    writers.own.renew()
    assert [(type_, len(named)) for type_, named in writers.asked] == [
        ("subscribe", 200), ("subscribe", 200), ("subscribe", 50),
    ]  # fmt: skip
    del writers.asked[:]
    writers.own.release()
    assert sum(len(named) for type_, named in writers.asked if type_ == "unsubscribe") == 450
    assert writers.own.addresses == []
