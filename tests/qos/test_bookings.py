"""Bookings: never more than there is, whoever asks at once, and only for who owns them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from msgnode.core.errors import BadMessage, Forbidden, NodeError, NotFound, TooMany, Unavailable
from msgnode.qos import bookings, capacity
from msgnode.qos.bookings import Book, Extend, Free, Limits
from msgnode.qos.broker import Order, Owner
from msgnode.qos.models import Reservation, RoundTrip, TurnServer
from tests.node import ROOT

from . import rows
from .rows import VIDEO

LIMITS = Limits()


def book(order: Order | None = None, owner: Owner | None = None) -> Any:
    return one(Book(order or rows.video(), owner or rows.owner()))


def one(command: bookings.Command) -> Any:
    outcome = bookings.apply([command], LIMITS)[0]
    if isinstance(outcome, NodeError):
        raise outcome
    return outcome


@pytest.mark.django_db
def test_case_24_a_booking_takes_room_and_its_release_gives_it_back() -> None:
    server = rows.server()
    owner = rows.owner()
    row = book(owner=owner)
    assert (row.state, row.bitrate, row.traffic_class) == ("held", VIDEO, "video")
    assert capacity.booked() == {server.pk: VIDEO}
    one(Free(row.id, owner))
    assert capacity.booked() == {}


@pytest.mark.django_db
def test_case_25_the_third_for_room_for_two_is_refused_and_books_nothing() -> None:
    server = rows.server(capacity=2 * VIDEO)
    book()
    book()
    with pytest.raises(Unavailable, match="class video"):
        book()
    assert capacity.booked() == {server.pk: 2 * VIDEO}
    assert Reservation.objects.count() == 2


@pytest.mark.django_db
def test_a_refused_booking_leaves_the_others_of_its_group_alone() -> None:
    rows.server(capacity=VIDEO)
    commands = [Book(rows.video(), rows.owner()), Book(rows.video(), rows.owner())]
    first, second = bookings.apply([*commands], LIMITS)
    assert isinstance(first, Reservation)
    assert isinstance(second, Unavailable)


@pytest.mark.django_db(transaction=True)
def test_case_25_of_20_at_once_exactly_two_get_room_for_two() -> None:
    rows.server(capacity=2 * VIDEO)
    owners = [rows.owner() for _ in range(20)]
    outcomes = _at_once([partial(book, owner=owner) for owner in owners])
    assert sorted(type(each).__name__ for each in outcomes) == (
        ["Reservation"] * 2 + ["Unavailable"] * 18
    )
    assert sum(capacity.booked().values()) == 2 * VIDEO


def _at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """What each gave or raised, each in a thread of its own with its own connection."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait(30)
        try:
            return call()
        except NodeError as refusal:
            return refusal
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


@pytest.mark.long
@pytest.mark.timeout(320)
def test_case_25_the_same_on_postgresql(postgres_url: str, tmp_path: Path) -> None:
    """The tests of bookings, run once more on the other database."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long"),
            *("tests/qos/test_bookings.py", "tests/qos/test_sweep.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "DATABASE_TEST_URL": postgres_url, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.django_db
def test_a_server_of_the_class_comes_before_one_of_all_and_one_of_another_never() -> None:
    rows.server("any")
    mine = rows.server("video", traffic_class="video")
    rows.server("audio", traffic_class="audio")
    assert book().server == mine


def measured() -> dict[str, TurnServer]:
    """The round trips that the field's own example has, of four networks to three servers."""
    table = {
        "turn1": {"an1": 15, "an2": 20, "an3": 50, "an4": 80},
        "turn2": {"an1": 150, "an2": 20, "an3": 20, "an4": 60},
        "turn3": {"an1": 30, "an2": 80, "an3": 10, "an4": 10},
    }
    servers = {name: rows.server(name, capacity=100 * VIDEO) for name in table}
    for name, trips in table.items():
        for network, milliseconds in trips.items():
            RoundTrip.objects.create(
                network=network, server=servers[name], milliseconds=milliseconds
            )
    return servers


def chosen(*near: str) -> str:
    row = bookings.apply([Book(rows.video(near=near), rows.owner())], Limits())[0]
    assert isinstance(row, Reservation) and row.server is not None
    return row.server.name


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("near", "nearest"),
    [(("an1", "an4"), "turn3"), (("an1", "an2"), "turn1"), (("an2", "an3"), "turn2")],
)
def test_case_9_the_server_on_the_shortest_way_is_taken(
    near: tuple[str, str], nearest: str
) -> None:
    measured()
    assert {chosen(*near) for _ in range(5)} == {nearest}


@pytest.mark.django_db
def test_case_9_without_round_trips_and_with_equal_ones_the_emptiest_is_taken() -> None:
    servers = measured()
    RoundTrip.objects.filter(network="an4").delete()
    assert {chosen("an1", "an4") for _ in range(3)} == set(servers)  # nobody knows an4
    RoundTrip.objects.filter(network="an1").update(milliseconds=10)
    assert {chosen("an1") for _ in range(3)} == set(servers)
    RoundTrip.objects.filter(server=servers["turn1"]).delete()
    assert "turn1" not in {chosen("an1") for _ in range(4)}


@pytest.mark.django_db
def test_case_9_the_nearest_has_to_be_up_and_to_have_room() -> None:
    servers = measured()
    TurnServer.objects.filter(name="turn3").update(state="down")
    assert chosen("an1", "an4") == "turn1"
    TurnServer.objects.filter(name="turn1").update(capacity=VIDEO)
    assert chosen("an1", "an4") == "turn2"
    assert capacity.distances(["an1", "an4"])[servers["turn3"].pk] == 40


@pytest.mark.django_db
def test_the_emptiest_server_is_taken_and_none_that_is_down() -> None:
    rows.server("down", state="down")
    rows.server("off", is_enabled=False)
    first, second = rows.server("one"), rows.server("two")
    assert {book().server, book().server} == {first, second}


@pytest.mark.django_db
def test_without_a_server_that_is_up_the_answer_says_so() -> None:
    rows.server(state="down")
    with pytest.raises(Unavailable, match="No TURN server for class video is up"):
        book()


@pytest.mark.django_db
def test_case_39_an_unknown_class_and_too_much_bandwidth_are_named() -> None:
    rows.server()
    with pytest.raises(BadMessage, match="no traffic class smell; there are audio"):
        book(Order(media=("smell",)))
    with pytest.raises(BadMessage, match=f"at most {VIDEO}"):
        book(rows.video(bitrate=VIDEO + 1))
    with pytest.raises(BadMessage, match="lasts at most"):
        book(rows.video(seconds=LIMITS.max_seconds + 1))
    assert book(Order(media=("audio", "video"))).bitrate == VIDEO + 100_000


@pytest.mark.django_db
def test_case_38_the_fifth_of_a_session_and_the_21st_of_a_subject_are_too_many() -> None:
    rows.server(capacity=100 * VIDEO)
    owner = rows.owner()
    for _ in range(4):
        book(owner=owner)
    with pytest.raises(TooMany, match="4 reservations"):
        book(owner=owner)
    for _ in range(5):
        of_session = rows.owner("alice")
        for _ in range(4):
            book(owner=of_session)
    with pytest.raises(TooMany, match="20 reservations"):
        book(owner=rows.owner("alice"))


@pytest.mark.django_db
def test_case_28_only_the_owner_releases_and_only_once() -> None:
    rows.server()
    owner, other = rows.owner(), rows.owner()
    row = book(owner=owner)
    with pytest.raises(Forbidden):
        one(Free(row.id, other))
    one(Free(row.id, owner))
    with pytest.raises(NotFound, match="has ended"):
        one(Free(row.id, owner))
    with pytest.raises(NotFound, match="no reservation"):
        one(Free("nothing", owner))


@pytest.mark.django_db(transaction=True)
def test_case_28_of_two_releases_at_once_one_is_told_404() -> None:
    rows.server()
    owner = rows.owner()
    row = book(owner=owner)
    outcomes = _at_once([lambda: one(Free(row.id, owner))] * 4)
    assert sorted(type(each).__name__ for each in outcomes) == ["NotFound"] * 3 + ["Reservation"]


@pytest.mark.django_db
def test_case_40_a_verified_subject_owns_it_from_whatever_session() -> None:
    rows.server(capacity=10 * VIDEO)
    mine = book(owner=rows.owner("alice"))
    assert bookings.find(mine.id, rows.owner("alice")).id == mine.id
    with pytest.raises(Forbidden):
        bookings.find(mine.id, rows.owner("bob"))
    anonymous = rows.owner()
    with pytest.raises(Forbidden):
        bookings.find(mine.id, anonymous)
    theirs = book(owner=anonymous)
    assert [row.id for row in bookings.open_of(anonymous)] == [theirs.id]
    assert [row.id for row in bookings.open_of(rows.owner("alice"))] == [mine.id]


@pytest.mark.django_db
def test_case_30_a_renewal_gives_a_later_end_and_one_more_user_name() -> None:
    rows.server()
    owner = rows.owner()
    row = book(rows.video(seconds=60), owner)
    later = one(Extend(row.id, 600, owner))
    assert later.expires_at > row.expires_at
    assert len(later.users) == 2
    shorter = one(Extend(row.id, 5, owner))
    assert shorter.expires_at == later.expires_at


@pytest.mark.django_db
def test_case_31_who_has_used_up_the_quota_gets_nothing_more() -> None:
    rows.server(capacity=10 * VIDEO)
    csp = rows.customer(quota=1000)
    owner = rows.owner()
    row = book(rows.video(customer="csp1"), owner)
    csp.used = 1000
    csp.save()
    with pytest.raises(Forbidden, match="used up"):
        book(rows.video(customer="csp1"))
    with pytest.raises(Forbidden, match="used up"):
        one(Extend(row.id, 60, owner))
    with pytest.raises(NotFound, match="no customer nobody"):
        book(rows.video(customer="nobody"))
    rows.customer("closed", is_enabled=False)
    with pytest.raises(Forbidden, match="may not reserve"):
        book(rows.video(customer="closed"))
