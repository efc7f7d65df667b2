"""What the sessions of one source or subject hold together is counted, and bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from msgnode.bus.address_budget import AddressBudget
from msgnode.core.errors import TooMany
from msgnode.core.identity import Identity
from msgnode.core.rates import source_of
from tests.fakes import FakeSession

LIMIT = 10


def session(source: str, subject: str = "") -> FakeSession:
    made = FakeSession("runtime://d/1")
    identity = Identity("https://issuer", subject) if subject else None
    made.speaker = replace(made.speaker, remote_address=source, identity=identity)
    return made


def numbered(number: int) -> list[str]:
    return [f"hyperty://d/{each}" for each in range(number)]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("fe80::1%eth0", "fe80::2%", True),
        ("2001:db8::1", "2001:db8:0:0:8000::1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("", "", True),
    ],
)
def test_sessions_of_one_source_share_a_budget(one: str, other: str, is_same: bool) -> None:
    budget = AddressBudget(LIMIT)
    budget.take(session(one), numbered(LIMIT))
    if is_same:
        with pytest.raises(TooMany, match="of the source together .*MAX_ADDRESSES_PER_SOURCE"):
            budget.check(session(other), numbered(1))
    else:
        budget.check(session(other), numbered(LIMIT))


def test_sessions_of_one_subject_share_a_budget_wherever_they_are() -> None:
    budget = AddressBudget(LIMIT)
    budget.take(session("192.0.2.1", "alice"), numbered(LIMIT))
    with pytest.raises(TooMany, match="of the subject together"):
        budget.check(session("192.0.2.2", "alice"), numbered(1))
    budget.check(session("192.0.2.2", "bob"), numbered(LIMIT))


def test_a_long_address_counts_once_for_each_hundred_characters_begun() -> None:
    budget = AddressBudget(LIMIT)
    one = session("192.0.2.1")
    budget.take(one, ["x" * 100, "x" * 101, "x" * 600])
    assert budget.held_by("192.0.2.1") == 9
    budget.check(one, ["x" * 100])
    with pytest.raises(TooMany):
        budget.check(one, ["x" * 101])


def test_what_is_given_back_or_ends_makes_room() -> None:
    budget = AddressBudget(LIMIT)
    one, other = session("192.0.2.1"), session("192.0.2.1")
    budget.take(one, numbered(6))
    budget.take(other, numbered(4))
    budget.give(one, numbered(2))
    budget.check(other, numbered(2))
    budget.forget(one.id)
    budget.forget(one.id)
    assert budget.held_by("192.0.2.1") == 4
    budget.give(one, numbered(3))
    assert budget.held_by("192.0.2.1") == 4


def test_a_session_of_another_worker_counts_there() -> None:
    budget = AddressBudget(LIMIT)
    one = session("192.0.2.1")
    one.is_here = False
    budget.take(one, numbered(6))
    assert budget.held_by("192.0.2.1") == 0


def test_who_logs_in_counts_from_then_on_for_the_subject_as_well() -> None:
    budget = AddressBudget(LIMIT)
    one = session("192.0.2.1")
    budget.take(one, numbered(6))
    one.speaker = session("192.0.2.2", "alice").speaker
    budget.check(one, numbered(4))  # at once, though nothing was taken since
    with pytest.raises(TooMany, match="of the source together"):
        budget.check(one, numbered(5))
    budget.take(one, numbered(2))
    assert (budget.held_by("192.0.2.1"), budget.held_by("192.0.2.2")) == (0, 8)
    with pytest.raises(TooMany, match="of the subject together"):
        budget.check(session("192.0.2.3", "alice"), numbered(3))
    budget.check(session("192.0.2.1"), numbered(LIMIT))


def test_what_others_of_the_new_source_hold_counts_for_who_comes_to_it() -> None:
    budget = AddressBudget(LIMIT)
    one, other = session("192.0.2.1"), session("192.0.2.2")
    budget.take(one, numbered(3))
    budget.take(other, numbered(5))
    one.speaker = session("192.0.2.2").speaker
    budget.check(one, numbered(2))
    with pytest.raises(TooMany):
        budget.check(one, numbered(3))


def test_what_is_taken_is_added_up_and_what_is_given_is_gone() -> None:
    budget = AddressBudget(LIMIT)
    one = session("192.0.2.1")
    for held in (2, 5, 9):
        budget.take(one, numbered(held - budget.held_by("192.0.2.1")))
        assert budget.held_by("192.0.2.1") == held
    with pytest.raises(TooMany):
        budget.check(one, numbered(2))
    budget.give(one, numbered(9))
    assert budget.held_by("192.0.2.1") == 0
    budget.give(one, numbered(1))
    budget.forget(one.id)
    budget.take(one, [])
    budget.forget(one.id)
    assert budget.held_by("192.0.2.1") == 0
    assert (budget._held, budget._shares) == ({}, {})


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("2001:db8:0:7:1:2:3:4%eth0", "2001:db8:0:7::/64"),
        ("fe80::1%X", "fe80::/64"),
        ("not:an:address", "not:an:address"),
        ("", "unknown"),
        ("192.0.2.1", "192.0.2.1"),
    ],
)
def test_the_source_of_an_address(address: str, source: str) -> None:
    assert source_of(address) == source
