"""What a session remembers of its requests: bounded, in time and number, without a timer."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from msgnode.bus.open_requests import DEFAULT_LIMITS, OpenRequests, RequestLimits

LIMITS = RequestLimits(seconds=10.0, capacity=100)


def test_only_who_was_asked_counts() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    requests.add("a", b"1", "bob", 0.0)
    assert requests.was_asked("a", "1", "bob", 1.0)
    for wrong in (("a", "1", "eve"), ("a", "2", "bob"), ("b", "1", "bob"), ("a", "1", "")):
        assert not requests.was_asked(*wrong, 1.0)


def test_a_request_may_be_answered_for_its_time_and_not_after_twice_that() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    requests.add("a", b"1", "bob", 9.0)
    assert requests.was_asked("a", "1", "bob", 19.0)
    assert not requests.was_asked("a", "1", "bob", 29.0)


def test_after_a_long_silence_nothing_is_open() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    requests.add("a", b"1", "bob", 0.0)
    requests.add("a", b"2", "bob", 100.0)
    assert not requests.was_asked("a", "1", "bob", 100.0)
    assert requests.was_asked("a", "2", "bob", 100.0)


def test_a_list_of_many_recipients_is_remembered_whole() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    names = [f"s{number}" for number in range(90)]
    for name in names:
        requests.add("a", b"1", name, 0.0)
    assert all(requests.was_asked("a", "1", name, 0.0) for name in names)
    assert not requests.was_asked("a", "1", "eve", 0.0)


def test_listeners_of_one_address_cost_one_set_for_all_requests() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    group = frozenset(f"s{number}" for number in range(40))
    for number in range(10):
        requests.add_group("a", b"%d" % number, group, 0.0)
    assert all(requests.was_asked("a", str(number), "s7", 0.0) for number in range(10))
    requests.add("a", b"0", "another", 0.0)
    assert "another" not in group
    assert requests.was_asked("a", "0", "another", 0.0)
    assert requests.was_asked("a", "0", "s7", 0.0)
    assert not requests.was_asked("a", "1", "another", 0.0)


def test_of_requests_to_one_each_the_newest_are_kept() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    for number in range(1000):
        requests.add("a", b"%d" % number, "bob", 0.0)
    assert 50 <= len(requests) <= 100
    assert requests.was_asked("a", "999", "bob", 0.0)
    assert not requests.was_asked("a", "800", "bob", 0.0)


asks = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.sampled_from("xyz"), st.floats(0, 3)),
    max_size=300,
)


@given(asks)
def test_what_is_kept_is_bounded_and_nothing_is_made_up(said: list) -> None:
    requests = OpenRequests(RequestLimits(10.0, 20), 0.0)
    now, asked = 0.0, {}
    for sender, number, whom, passed in said:
        now += passed
        requests.add(sender, b"%d" % number, whom, now)
        asked[sender, str(number), whom] = now
        assert sum(_asked_sessions(requests, now)) <= 20
        assert requests.was_asked(sender, str(number), whom, now)
    for sender in "ab":
        for number in range(61):
            for whom in "xyz":
                if requests.was_asked(sender, str(number), whom, now):
                    assert now - asked[sender, str(number), whom] <= 20.0


def _asked_sessions(requests: OpenRequests, now: float) -> Iterator[int]:
    _, *generations = requests.dump(now)
    for generation in generations:
        for items in generation.values():
            yield from (1 if isinstance(asked, str) else len(asked) for asked in items[1::2])


@given(asks, st.floats(0, 1e6))
def test_it_is_the_same_with_another_worker_and_its_clock(said: list, clock: float) -> None:
    requests = OpenRequests(RequestLimits(10.0, 20), 0.0)
    now = 0.0
    for sender, number, whom, passed in said:
        now += passed
        requests.add(sender, b"%d" % number, whom, now)
    turns_in, newer, older = requests.dump(now)
    moved = OpenRequests.loaded(RequestLimits(10.0, 20), turns_in, newer, older, clock)
    for sender, number, whom, _ in said:
        here = requests.was_asked(sender, str(number), whom, now)
        assert moved.was_asked(sender, str(number), whom, clock) == here


def test_a_group_that_was_asked_goes_along_to_another_worker() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    group = frozenset(f"s{number}" for number in range(40))
    requests.add_group("a", b"1", group, 0.0)
    requests.add("a", b"2", "bob", 0.0)
    turns_in, newer, older = json.loads(json.dumps(requests.dump(4.0)))
    assert turns_in == 6.0
    moved = OpenRequests.loaded(LIMITS, turns_in, newer, older, 100.0)
    assert all(moved.was_asked("a", "1", name, 100.0) for name in group)
    assert moved.was_asked("a", "2", "bob", 100.0)
    assert not moved.was_asked("a", "1", "bob", 100.0)
    for number in range(10):  # 41 of 50 were taken: the ninth of these begins a new generation
        moved.add("b", b"%d" % number, "bob", 100.0)
    assert moved.was_asked("a", "1", "s1", 105.9)
    moved.add_group("b", b"x", frozenset(f"t{number}" for number in range(60)), 100.0)
    moved.add("b", b"y", "bob", 100.0)
    assert not moved.was_asked("a", "1", "s1", 100.0)


def test_requests_to_one_each_count_one_each_with_another_worker() -> None:
    limits = RequestLimits(seconds=10.0, capacity=10)
    requests = OpenRequests(limits, 0.0)
    for number in range(8):  # the sixth begins a new generation
        requests.add("a", b"%d" % number, "bob", 0.0)
    moved = OpenRequests.loaded(limits, *requests.dump(0.0), 0.0)
    for number in (8, 9):
        moved.add("a", b"%d" % number, "bob", 0.0)
    assert moved.was_asked("a", "0", "bob", 0.0)
    moved.add("a", b"10", "bob", 0.0)
    assert not moved.was_asked("a", "0", "bob", 0.0)


def test_what_is_asked_at_the_end_of_a_turn_is_open_for_all_of_the_next() -> None:
    """Turns are due by the clock: what was asked at the end of one is open for all of the next."""
    requests = OpenRequests(LIMITS, 0.0)
    requests.add("a", b"1", "bob", 9.9)
    requests.add("a", b"2", "bob", 10.0)  # the first turn
    assert requests.dump(10.0)[0] == 10.0
    assert requests.was_asked("a", "1", "bob", 19.9)
    assert not requests.was_asked("a", "1", "bob", 20.0)  # the second
    assert requests.was_asked("a", "2", "bob", 29.9)
    assert not requests.was_asked("a", "2", "bob", 30.0)


def test_a_turn_that_comes_late_is_followed_by_the_next_at_its_due_time() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    requests.add("a", b"1", "bob", 15.0)  # due at 10
    assert requests.dump(15.0)[0] == 5.0
    late = OpenRequests(LIMITS, 0.0)
    late.add("a", b"1", "bob", 5.0)
    late.add("a", b"2", "bob", 20.0)  # a whole turn has passed: all is forgotten
    assert not late.was_asked("a", "1", "bob", 20.0)
    assert late.dump(20.0)[0] == 10.0
    assert late.was_asked("a", "2", "bob", 39.9)


def test_an_odd_capacity_is_rounded_down_and_one_keeps_one() -> None:
    for capacity, kept in ((1, 2), (2, 2), (3, 2), (5, 4)):
        requests = OpenRequests(RequestLimits(seconds=10.0, capacity=capacity), 0.0)
        for number in range(20):
            requests.add("a", b"%d" % number, "bob", 0.0)
        assert len(requests) == kept, capacity


def test_a_group_weighs_its_members_once_for_as_long_as_it_is_the_same() -> None:
    limits = RequestLimits(seconds=10.0, capacity=12)
    group = frozenset("abcd")
    requests = OpenRequests(limits, 0.0)
    for number in range(3):  # 4 + 1 + 1: the half is full
        requests.add_group("a", b"%d" % number, group, 0.0)
    requests.add("a", b"3", "bob", 0.0)
    for number in range(4, 9):
        requests.add("a", b"%d" % number, "bob", 0.0)
    assert requests.was_asked("a", "0", "c", 0.0)
    requests.add("a", b"9", "bob", 0.0)
    assert not requests.was_asked("a", "0", "c", 0.0)
    assert requests.was_asked("a", "3", "bob", 0.0)


def test_a_group_weighs_all_its_members_again_after_a_turn() -> None:
    requests = OpenRequests(RequestLimits(seconds=10.0, capacity=12), 0.0)
    group = frozenset("abcd")
    requests.add_group("a", b"0", group, 0.0)
    requests.add("a", b"1", "bob", 10.0)  # a turn
    requests.add_group("a", b"2", group, 10.0)  # 1 + 4
    requests.add("a", b"3", "bob", 10.0)
    requests.add("a", b"4", "bob", 10.0)  # the next turn, for the number
    assert not requests.was_asked("a", "0", "a", 10.0)
    assert requests.was_asked("a", "2", "a", 10.0)


def test_several_that_were_asked_one_after_the_other_may_all_answer() -> None:
    requests = OpenRequests(LIMITS, 0.0)
    requests.add("a", b"1", "one", 0.0)
    assert requests.was_asked("a", "1", "one", 0.0)  # it is indexed
    requests.add("a", b"1", "two", 0.0)
    assert requests.was_asked("a", "1", "two", 0.0)
    requests.add("a", b"1", "three", 0.0)
    for who in ("one", "two", "three"):
        assert requests.was_asked("a", "1", who, 0.0)
    assert not requests.was_asked("a", "1", "t", 0.0)


def test_what_comes_from_another_worker_weighs_as_it_did_there() -> None:
    limits = RequestLimits(seconds=10.0, capacity=12)
    requests = OpenRequests(limits, 0.0)
    requests.add("a", b"0", "bob", 0.0)
    requests.add_group("a", b"1", frozenset("abc"), 0.0)
    requests.add("b", b"2", "eve", 0.0)  # 1 + 3 + 1
    turns_in, newer, older = requests.dump(1.0)
    moved = OpenRequests.loaded(limits, turns_in, newer, older, 100.0)
    assert len(moved) == 3
    moved.add("a", b"3", "bob", 100.0)  # the half is full
    moved.add("a", b"4", "bob", 100.0)  # a turn
    assert moved.was_asked("a", "1", "c", 100.0)
    assert not moved.was_asked("a", "1", "abc", 100.0)
    assert moved.was_asked("b", "2", "eve", 100.0)
    assert not moved.was_asked("b", "2", "e", 100.0)
    for number in range(5, 11):
        moved.add("a", b"%d" % number, "bob", 100.0)
    assert not moved.was_asked("a", "1", "c", 100.0)
    assert moved.was_asked("a", "4", "bob", 100.0)


def test_what_comes_from_another_worker_takes_little_memory_for_each_request() -> None:
    requests = OpenRequests(DEFAULT_LIMITS, 0.0)
    for number in range(5_000):
        requests.add("hyperty://d/1", b'"%d"' % number, SESSIONS[number % 2], 1.0)
    packed = msgspec.msgpack.encode(requests.dump(1.0))
    tracemalloc.start()
    turns_in, newer, older = msgspec.msgpack.decode(packed)
    moved = OpenRequests.loaded(DEFAULT_LIMITS, turns_in, newer, older, 1.0)
    del newer, older
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(moved) == 5_000
    assert kept / 5_000 < 100, "the id alone; who was asked is kept once"


SESSIONS = ("a" * 32, "b" * 32)
