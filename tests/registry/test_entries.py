"""The rules of an entry's life, without a database."""

from __future__ import annotations

import doctest
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from msgnode.core.errors import Forbidden, NotFound
from registry import entries, records
from registry.entries import Cause, Change, Entry, Kind
from registry.global_registry import guids
from registry.rest import paths

START = datetime(2030, 1, 1, tzinfo=UTC)


def entry(**other: object) -> Entry:
    plain = Entry(Kind.HYPERTY, "hyperty://d/1", "live", 10, START, START, user="alice")
    return replace(plain, **other)  # type: ignore[arg-type]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize("module", [records, guids, paths])
def test_the_examples_in_the_code_are_true(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize(("seconds", "alive"), [(0, True), (10.999, True), (11, False)])
def test_an_entry_lives_through_the_second_in_which_its_time_ends(
    seconds: float, alive: bool
) -> None:
    after, changes = entries.settled(entry(), at(seconds))
    assert after.is_available is alive
    assert bool(changes) is not alive


def test_an_entry_with_no_time_lives_through_its_second() -> None:
    assert entries.settled(entry(expires=0), at(0.9))[0].is_available
    assert not entries.settled(entry(expires=0), at(1))[0].is_available


@pytest.mark.parametrize("status", ["disconnected", "dead"])
def test_what_has_ended_does_not_expire_again(status: str) -> None:
    ended = entry(status=status, ended=START)
    assert entries.settled(ended, at(100)) == (ended, ())


def test_ending_twice_is_one_change() -> None:
    once, changes = entries.disconnected(entry(), at(1), Cause.DELETED)
    assert [change.after for change in changes] == ["disconnected"]
    assert once.ended == at(1)
    assert entries.disconnected(once, at(2), Cause.DELETED) == (once, ())


def test_a_sign_of_life_revives_the_dead_and_clears_the_news() -> None:
    dead = entry(status="dead", ended=START, is_news=True)
    alive, changes = entries.kept_alive(dead, at(5))
    assert (alive.status, alive.ended, alive.is_news) == ("live", None, False)
    assert [(c.before, c.after, c.cause) for c in changes] == [("dead", "live", Cause.REFRESHED)]


def test_an_update_that_leaves_a_disconnected_entry_so_keeps_since_when() -> None:
    ended = entry(status="disconnected", ended=at(1))
    after, changes = entries.updated(ended, {"descriptor": "new"}, at(5), {})
    assert (after.ended, changes) == (at(1), ())


def test_a_registration_as_disconnected_has_ended_at_once() -> None:
    facts = {"status": "disconnected", "expires": 10}
    new, _ = entries.registered(Kind.HYPERTY, "hyperty://d/1", "alice", facts, None, START, {})
    assert new.ended == START
    assert new.expires_at is None


def test_a_hyperty_of_another_user_is_not_found() -> None:
    with pytest.raises(NotFound):
        entries.registered(Kind.HYPERTY, "hyperty://d/1", "bob", {}, entry(), START, {})


@pytest.mark.parametrize(
    ("owners", "allowed"),
    [
        ({"a": "alice", "b": "alice"}, True),
        ({"a": "alice", "b": "bob"}, False),
        ({"a": "alice"}, False),
        ({"b": "alice"}, False),
        ({}, False),
    ],
)
def test_a_reporter_is_replaced_by_one_of_the_same_known_owner(
    owners: dict[str, str], allowed: bool
) -> None:
    chat = entry(kind=Kind.OBJECT, url="comm://d/1", reporter="a", user="")
    if allowed:
        assert entries.updated(chat, {"reporter": "b"}, START, owners)[0].reporter == "b"
    else:
        with pytest.raises(Forbidden):
            entries.updated(chat, {"reporter": "b"}, START, owners)


@pytest.mark.parametrize(
    ("before", "after", "announced"),
    [
        ("live", "disconnected", True),
        ("disconnected", "live", True),
        ("created", "live", True),
        ("", "live", False),
        ("live", "created", False),
        ("disconnected", "dead", False),
    ],
)
def test_observers_hear_of_live_and_disconnected_only(
    before: str, after: str, announced: bool
) -> None:
    change = Change(Kind.HYPERTY, "hyperty://d/1", before, after, Cause.UPDATED, START)
    assert change.is_announced is announced


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 404),
        (["live"], 200),
        (["created"], 200),
        (["disconnected"], 408),
        (["disconnected", "dead"], 408),
        (["dead", "live"], 200),
    ],
)
def test_the_code_of_a_search_follows_from_the_statuses(statuses: list[str], code: int) -> None:
    assert entries.outcome([entry(status=status) for status in statuses]) == code


def test_data_objects_are_found_whatever_their_status() -> None:
    assert entries.outcome([entry(kind=Kind.OBJECT, status="disconnected")]) == 200
