"""The rows of what waits for peers: what waits now, no more of it, and no token in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from msgnode.core import messages
from msgnode.core.redaction import without_tokens
from msgnode.federation import monitoring
from msgnode.federation.exchange import PeerExchange
from msgnode.federation.monitoring import MOST, SHOWN_AFTER, WaitingMessages
from msgnode.federation.queue import PeerQueue
from msgnode.models import ControlMessage, Peer, PeerMessage

from .test_peer_exchange import response

A, B = "a.example", "b.example"

pytestmark = pytest.mark.django_db


def done(what: Coroutine[Any, Any, None]) -> None:
    """Do what waits for nothing here; in no event loop, where Django would refuse its queries."""
    with pytest.raises(StopIteration):
        what.send(None)


class Place:
    """A worker that serves one peer, and its clock."""

    def __init__(self, peer: int) -> None:
        self.now = 0.0
        self.peer = peer
        self.hurries = 0
        self.answers: list[Any] = []
        self.written = 0
        self.links: dict[int, Any] = {}
        self.serve()
        self.waiting = WaitingMessages(self.links, without_tokens, self._blocking)

    def serve(self) -> None:
        """Serve the peer from now on, with a queue of its own."""
        queue = PeerQueue(2_000, 10_000_000, lambda: self.now)
        self.exchange = PeerExchange(
            A, B, queue, lambda frame: self.answers.append(json.loads(frame)), lambda: self.now
        )
        self.links[self.peer] = SimpleNamespace(
            peer=SimpleNamespace(domain=B), exchange=self.exchange, hurry=self._hurry
        )

    def put(self, id_: int, **body: Any) -> None:
        frame = {"id": id_, "type": "read", "from": f"hyperty://{A}/1", "to": f"hyperty://{B}/1"}
        self.exchange.put(messages.parse(json.dumps({**frame, "body": body}).encode()))

    def follow(self, seconds: float = 0.0) -> list[PeerMessage]:
        self.now += seconds
        done(self.waiting.follow())
        return list(PeerMessage.objects.order_by("number"))

    def order(self, kind: str, *rows: PeerMessage) -> None:
        """What an operator orders reaches the worker."""
        ControlMessage.objects.all().delete()
        monitoring.order(kind, rows)
        self.apply()

    def apply(self) -> None:
        for row in ControlMessage.objects.all():
            self.waiting.handlers()[row.kind](row.payload)

    async def _blocking(self, call: Callable[[], None]) -> None:
        self.written += 1
        call()

    def _hurry(self) -> None:
        self.hurries += 1


@pytest.fixture
def place(db: None) -> Place:
    return Place(Peer.objects.create(domain=B).pk)


def test_what_passes_at_once_gets_no_row(place: Place) -> None:
    place.put(1)
    assert place.follow(SHOWN_AFTER / 2) == []
    place.exchange.take()
    place.exchange.taken_in(response(1))
    assert place.follow(10) == []
    assert place.written == 1, "the rows of a worker before"
    place.follow()
    assert place.written == 1


def test_a_row_comes_and_goes_with_its_message_and_holds_no_token(place: Place) -> None:
    place.put(1, accessToken="secret", value=5)
    (row,) = place.follow(SHOWN_AFTER)
    assert (row.kind, row.type, row.to) == ("request", "read", f"hyperty://{B}/1")
    assert "secret" not in row.text
    assert json.loads(row.text)["body"]["value"] == 5
    assert 0 < (row.until - timezone.now()).total_seconds() <= 9.5
    assert 0.5 < (timezone.now() - row.since).total_seconds() < 5
    place.exchange.take()
    assert place.follow() == []


def test_of_a_large_message_the_head_alone_is_shown(place: Place) -> None:
    place.put(1, value="x" * 10_000)
    (row,) = place.follow(SHOWN_AFTER)
    assert len(row.text) < 300
    assert row.size > 10_000


def test_of_many_the_first_are_shown_and_others_follow(place: Place) -> None:
    for number in range(MOST + 20):
        place.put(number)
    rows = place.follow(SHOWN_AFTER)
    assert len(rows) == MOST
    for _ in range(30):
        place.exchange.take()
    later = place.follow()
    assert len(later) == MOST + 20 - 30
    assert later[0].number == rows[30].number


def test_a_retried_message_waits_its_whole_time_and_the_peer_is_tried_at_once(
    place: Place,
) -> None:
    place.put(1)
    place.put(2)
    first, second = place.follow(8.0)
    place.order(monitoring.RETRY, first)
    assert place.hurries == 1
    place.now += 8.0
    place.exchange.expire()
    assert [each["id"] for each in place.answers] == [2]
    (left,) = place.follow()
    assert left.number == first.number
    assert left.until > first.until


def test_a_discarded_message_is_answered_and_its_row_goes_at_once(place: Place) -> None:
    place.put(1)
    place.put(2)
    first, _ = place.follow(SHOWN_AFTER)
    place.order(monitoring.DISCARD, first)
    assert [row.number for row in PeerMessage.objects.all()] == [first.number + 1]
    assert [(each["id"], each["body"]["code"]) for each in place.answers] == [(1, 503)]
    place.order(monitoring.DISCARD, first)
    assert len(place.answers) == 1, "ordered by two operators, it is done once"


def test_an_order_about_a_queue_that_is_no_more_does_nothing(place: Place) -> None:
    """The worker was killed between look and order: another one has a message of this number."""
    place.put(1)
    (row,) = place.follow(SHOWN_AFTER)
    place.serve()
    place.put(7)
    place.order(monitoring.DISCARD, row)
    place.order(monitoring.RETRY, row)
    assert place.answers == []
    assert place.hurries == 0
    assert len(place.exchange.queue) == 1


def test_who_serves_a_peer_next_forgets_what_waited_for_it_before(place: Place) -> None:
    place.put(1)
    place.follow(SHOWN_AFTER)
    other = Place(place.peer)
    assert other.follow() == []
    other.put(2)
    assert len(other.follow(SHOWN_AFTER)) == 1


def test_all_that_waits_is_discarded_rows_or_not(place: Place) -> None:
    for number in range(MOST + 20):
        place.put(number)
    place.follow(SHOWN_AFTER)
    monitoring.discard_all(Peer.objects.get())
    place.apply()
    assert len(place.answers) == MOST + 20
    assert not PeerMessage.objects.exists()


def test_a_peer_that_is_served_no_more_has_no_rows(place: Place) -> None:
    place.put(1)
    place.follow(SHOWN_AFTER)
    done(place.waiting.forget(place.peer))
    assert not PeerMessage.objects.exists()
