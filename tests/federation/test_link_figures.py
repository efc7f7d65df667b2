"""What an operator is told of each peer: rates of the last seconds, and nothing that is old."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import fields
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from msgnode.federation import store
from msgnode.federation.exchange import PeerCounters, Way
from msgnode.federation.monitoring import CARRIER_SECONDS, FIGURES_SECONDS, LinkFigures
from msgnode.federation.queue import PeerQueue
from msgnode.models import Peer
from msgnode.monitoring import peer_figures
from msgnode.sandbox import pipe

pytestmark = pytest.mark.django_db


class Place:
    """A worker that serves one peer, and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.peer = Peer.objects.create(domain="b.example")
        self.counters = PeerCounters()
        self.sandbox: Any = SimpleNamespace(cpu_seconds=1.0, memory_bytes=5 << 20, is_running=True)
        queue = PeerQueue(10, 10_000, lambda: self.now)
        self.out, self.into = Way(), Way()
        exchange = SimpleNamespace(
            queue=queue, counters=self.counters, out=self.out, into=self.into
        )
        self.link: Any = SimpleNamespace(
            exchange=exchange, sandbox=self.sandbox, carrier=lambda: {"way": "stub"}
        )
        self.links: dict[int, Any] = {self.peer.pk: self.link}
        self.written = 0
        self.figures = LinkFigures(self.links, self._blocking, lambda: self.now)

    def follow(self, seconds: float) -> dict[str, Any]:
        self.now += seconds
        follow: Coroutine[Any, Any, None] = self.figures.follow()
        with pytest.raises(StopIteration):  # it waits for nothing here
            follow.send(None)
        self.peer.refresh_from_db()
        return store.figures_of(self.peer)

    async def _blocking(self, call: Callable[[], None]) -> None:
        self.written += 1
        call()


@pytest.fixture
def place(db: None) -> Place:
    return Place()


def test_rates_are_of_the_time_since_the_row_before(place: Place) -> None:
    place.counters.sent = 1_000
    assert place.follow(0) == {}
    place.counters.sent, place.counters.received = 1_050, 20
    place.sandbox.cpu_seconds = 1.5
    told = place.follow(FIGURES_SECONDS)
    assert (told["sent_per_second"], told["received_per_second"]) == (5.0, 2.0)
    assert (told["sandbox_cpu_percent"], told["sandbox_bytes"]) == (5.0, 5 << 20)
    place.counters.received = 120
    assert place.follow(2 * FIGURES_SECONDS)["received_per_second"] == 5.0


def test_what_was_refused_is_shown_without_tokens(place: Place) -> None:
    """Nor with most of one, where the text is shortened."""
    token = "2f4e2b06-3c0c-4b57-9d7a-0f4f6e0f6a11"
    place.follow(0)
    place.out.failed(f"403 runtime://c.example/alice/{token} is not of this domain")
    place.into.failed(f"404 {'x' * 250} runtime://c.example/alice/{token} is not there")
    told = place.follow(FIGURES_SECONDS)
    assert told["out"]["error"] == "403 runtime://c.example/alice is not of this domain"
    assert token[:8] not in told["in"]["error"]
    assert len(told["in"]["error"]) <= pipe.SHOWN


def test_a_row_is_written_once_in_ten_seconds(place: Place) -> None:
    for _ in range(21):
        place.follow(1.0)
    assert place.written == 2


def test_what_carries_the_messages_is_told_as_soon_as_it_is_something_else(place: Place) -> None:
    place.follow(0)
    place.link.carrier = lambda: {"way": "link", "link": {"open": True, "key": "one"}}
    place.counters.sent = 10
    told = place.follow(CARRIER_SECONDS)
    assert (told["way"], told["sent_per_second"]) == ("link", 10.0)
    place.link.carrier = lambda: {"way": "link", "link": {"open": True, "key": "other"}}
    assert place.follow(CARRIER_SECONDS / 2)["link"]["key"] == "one", "rates need some time"
    assert place.follow(CARRIER_SECONDS / 2)["link"]["key"] == "other"
    assert place.written == 2


def test_a_sandbox_that_was_started_anew_has_used_nothing_less_than_nothing(place: Place) -> None:
    place.follow(0)
    place.sandbox.cpu_seconds = 0.2
    assert place.follow(FIGURES_SECONDS)["sandbox_cpu_percent"] == 0.0
    place.link.sandbox = None
    told = place.follow(FIGURES_SECONDS)
    assert (told["sandbox_bytes"], told["sandbox_cpu_percent"]) == (0, 0.0)


def test_a_peer_that_is_served_here_again_begins_anew(place: Place) -> None:
    place.follow(0)
    del place.links[place.peer.pk]
    place.follow(FIGURES_SECONDS)
    place.counters.sent = 10_000
    place.links[place.peer.pk] = place.link
    assert place.follow(FIGURES_SECONDS) == {}, "how long that took is not known"
    assert place.follow(FIGURES_SECONDS)["sent_per_second"] == 0.0


def test_what_was_told_half_a_minute_ago_is_told_no_more(place: Place) -> None:
    place.follow(0)
    assert place.follow(FIGURES_SECONDS)
    Peer.objects.update(figures_at=timezone.now() - timedelta(seconds=31))
    place.peer.refresh_from_db()
    assert store.figures_of(place.peer) == {}


def test_case_72_either_way_is_told_by_itself_and_what_has_not_happened_is_not() -> None:
    place = Place()
    place.follow(0.0)
    figures = place.follow(FIGURES_SECONDS)
    assert (figures["out"], figures["in"]) == ({}, {})
    place.out.passed()
    place.into.failed("403 \0 not permitted")
    figures = place.follow(FIGURES_SECONDS)
    assert set(figures["out"]) == {"passed_at"}
    assert set(figures["in"]) == {"failed_at", "error"}
    assert figures["in"]["error"] == "403   not permitted"


class Counted:
    """A link of which everything was counted three times."""

    peer, state, sandbox = SimpleNamespace(domain="b.example"), "live", None
    subscriptions = ()

    def __init__(self, counted: set[str]) -> None:
        counters = PeerCounters(**dict.fromkeys(counted, 3))
        self.exchange = SimpleNamespace(queue=PeerQueue(10, 10_000), counters=counters)


def test_the_metrics_of_a_peer_have_whatever_is_counted() -> None:
    counted = {each.name for each in fields(PeerCounters)} - {"restarts", "round_trip"}
    federation: Any = SimpleNamespace(links={1: Counted(counted)})
    found = {each.name: each for each in peer_figures.peers(federation)}
    samples = found["msgnode_peer_messages"].samples
    assert {each.labels["outcome"] for each in samples} == counted
    assert {each.value for each in samples} == {3}
