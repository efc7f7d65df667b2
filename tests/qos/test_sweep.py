"""What ends reservations besides their owners, and who is told."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from msgnode.models import Session, Worker
from msgnode.qos import bookings, capacity, sweep, turn_state
from msgnode.qos.bookings import Book, Free, Limits
from msgnode.qos.broker import Owner
from msgnode.qos.models import Reservation, TurnServer
from msgnode.storage.claims import NotHolder

from . import rows
from .rows import VIDEO

pytestmark = pytest.mark.django_db

ME, OTHER = "epoch of mine", "epoch of another"
UNUSED, GRACE = 60.0, 120.0


@pytest.fixture(autouse=True)
def supervises() -> None:
    for epoch in (ME, OTHER):
        rows.worker(epoch)
    assert turn_state.hold_claim(ME)


def reserve(owner: Owner | None = None, **order: object) -> Reservation:
    row = bookings.apply([Book(rows.video(**order), owner or rows.owner())], Limits())[0]
    assert isinstance(row, Reservation), row
    return row


def swept() -> dict[str, str]:
    """What has ended, and why, after one look."""
    sweep.sweep(ME, UNUSED, GRACE)
    ended = Reservation.objects.filter(state="ended")
    return {row.pk: row.reason for row in ended}


def moved(row: Reservation, **columns: object) -> None:
    Reservation.objects.filter(pk=row.pk).update(**columns)


def ago(seconds: float) -> object:
    return timezone.now() - timedelta(seconds=seconds)


def test_case_18_and_29_an_end_that_is_reached_ends_it_and_frees_the_room() -> None:
    server = rows.server(capacity=VIDEO)
    row = reserve()
    moved(row, state="active", expires_at=ago(1))
    assert capacity.booked() == {server.pk: VIDEO}
    assert swept() == {row.pk: "expired"}
    assert capacity.booked() == {}
    reserve()


def test_case_36_what_is_held_and_not_used_is_freed() -> None:
    rows.server()
    old, young = reserve(), reserve()
    moved(old, created_at=ago(61))
    assert swept() == {old.pk: "unused"}
    moved(young, created_at=ago(61), state="active")
    assert swept() == {old.pk: "unused"}


def test_case_36_not_while_its_server_cannot_say_whether_it_is_used() -> None:
    server = rows.server(command_line="127.0.0.1:5766", polled_at=ago(50))
    row = reserve()
    moved(row, created_at=ago(100))
    assert swept() == {}
    TurnServer.objects.filter(pk=server.pk).update(polled_at=timezone.now())
    assert swept() == {row.pk: "unused"}


def test_case_31_all_of_a_customer_whose_quota_is_used_up_end() -> None:
    rows.server(capacity=10 * VIDEO)
    csp = rows.customer(quota=1000)
    mine, other = reserve(customer="csp1"), reserve()
    csp.used = 1000
    csp.save()
    assert swept() == {mine.pk: "exceeded"}
    assert Reservation.objects.get(pk=other.pk).state == "held"


def test_case_35_what_is_on_a_server_that_is_down_is_lost() -> None:
    first, second = rows.server("one"), rows.server("two")
    mine, other = reserve(), reserve()
    TurnServer.objects.filter(reservation=mine).update(state="down")
    assert swept() == {mine.pk: "lost"}
    assert other.server_id in (first.pk, second.pk)


def test_case_37_it_outlives_its_session_by_the_grace_period() -> None:
    rows.server()
    owner = rows.owner()
    row = reserve(owner)
    session = Session.objects.filter(pk=owner.session_id)
    session.update(state="closed", closed_at=ago(GRACE - 20))
    assert swept() == {}
    session.update(state="open", closed_at=None)  # it has come back
    assert swept() == {}
    session.update(state="closed", closed_at=ago(GRACE + 1))
    assert swept() == {row.pk: "closed"}


def test_case_37_one_whose_session_is_detached_or_at_another_worker_stays() -> None:
    rows.server()
    owner = rows.owner()
    reserve(owner)
    session = Session.objects.filter(pk=owner.session_id)
    session.update(state="detached", worker="another", epoch=OTHER, detached_at=ago(10_000))
    assert swept() == {}


def test_one_whose_session_is_not_even_known_any_more_ends() -> None:
    rows.server()
    owner = rows.owner()
    row = reserve(owner)
    Session.objects.filter(pk=owner.session_id).delete()
    assert swept() == {row.pk: "closed"}


def test_a_subject_keeps_it_with_another_session() -> None:
    rows.server()
    owner = rows.owner("alice")
    row = reserve(owner)
    Session.objects.filter(pk=owner.session_id).update(state="closed", closed_at=ago(GRACE + 1))
    rows.owner("bob")
    again = rows.owner("alice")
    assert swept() == {}
    row.refresh_from_db()
    assert (str(row.session_id), row.runtime_url) == (again.session_id, again.runtime_url)


def test_two_workers_that_sweep_at_once_end_each_once() -> None:
    rows.server()
    row = reserve()
    moved(row, expires_at=ago(1))
    assert not turn_state.hold_claim(OTHER)
    with pytest.raises(NotHolder):
        sweep.sweep(OTHER, UNUSED, GRACE)
    assert sweep.sweep(ME, UNUSED, GRACE) == 1
    assert sweep.sweep(ME, UNUSED, GRACE) == 0


def test_a_supervisor_that_was_frozen_writes_nothing_after_another_took_over() -> None:
    rows.server()
    moved(reserve(), expires_at=ago(1))
    Worker.objects.filter(epoch=ME).delete()
    assert turn_state.hold_claim(OTHER)
    with pytest.raises(NotHolder):
        sweep.sweep(ME, UNUSED, GRACE)
    assert not turn_state.hold_claim(ME)
    assert Reservation.objects.filter(state="ended").count() == 0
    turn_state.give_up_claim(OTHER)
    rows.worker(ME)
    assert turn_state.hold_claim(ME)
    assert sweep.sweep(ME, UNUSED, GRACE) == 1


def test_one_look_is_bounded_and_the_rest_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "LIMIT", 2)
    rows.server(capacity=10 * VIDEO)
    for _ in range(5):
        moved(reserve(), expires_at=ago(1))
    assert [sweep.sweep(ME, UNUSED, GRACE) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("released", "released"),
        ("exceeded", "exceeded"),
        ("lost", "lost"),
        ("expired", "ended"),
        ("unused", "ended"),
        ("operator", "ended"),
    ],
)
def test_who_is_to_be_told_what_is_read_from_the_rows(reason: str, status: str) -> None:
    rows.server()
    owner = rows.owner()
    row = reserve(owner)
    assert sweep.to_tell() == []
    moved(row, state="ended", reason=reason, ended_at=timezone.now())
    (ended,) = sweep.to_tell()
    assert ended[:5] == (row.pk, uuid.UUID(owner.session_id).hex, owner.runtime_url, status, reason)
    sweep.told([row.pk])
    assert sweep.to_tell() == []


def test_a_clock_that_was_set_back_ends_nothing_early_and_counts_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows.server()
    owner = rows.owner()
    row = reserve(owner, seconds=100)
    real = bookings.now()
    monkeypatch.setattr(bookings, "now", lambda: real - timedelta(days=1))
    assert swept() == {}
    later = bookings.apply([bookings.Extend(row.id, 50, owner)], Limits())[0]
    assert later.expires_at == row.expires_at  # never an earlier end than was promised
    monkeypatch.setattr(bookings, "now", lambda: real + timedelta(seconds=101))
    assert swept() == {row.pk: "expired"}
    refusal = bookings.apply([Free(row.id, owner)], Limits())[0]
    assert refusal.code == 404


def test_what_ended_long_ago_is_forgotten_unless_its_owner_or_server_is_still_to_be_told() -> None:
    server = rows.server(capacity=10 * VIDEO)
    long_ago = ago(100)
    old, untold, uncut, recent, open_ = (reserve() for _ in range(5))
    for row in (old, untold, uncut, recent):
        moved(row, state="ended", ended_at=long_ago, told_at=long_ago, cut_at=long_ago)
    moved(untold, told_at=None)
    moved(uncut, cut_at=None)
    moved(recent, ended_at=timezone.now())
    assert server.pk == uncut.server_id
    assert sweep.forget(ME, timedelta(seconds=50)) == 1
    left = set(Reservation.objects.values_list("pk", flat=True))
    assert left == {untold.pk, uncut.pk, recent.pk, open_.pk}
    with pytest.raises(NotHolder):
        sweep.forget(OTHER, timedelta(seconds=50))
