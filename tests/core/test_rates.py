"""Rate counters: sliding windows, bounded memory, one sum over workers.

A token bucket, on a clock of the test's.
"""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from msgnode.core.rates import LockedRates, Rates, Report
from msgnode.core.token_bucket import TokenBucket
from tests.fakes import Clock


def test_counts_within_a_window():
    rates = Rates(Clock(600.0))
    assert [rates.note(("a",), 60) for _ in range(3)] == [1, 2, 3]
    assert rates.count(("a",), 60) == 3
    assert rates.count(("b",), 60) == 0


def test_a_burst_at_the_end_of_a_window_still_counts_in_the_next():
    clock = Clock(600.0)
    rates = Rates(clock)
    clock.now = 659.0
    for _ in range(10):
        rates.note(("a",), 60)
    clock.now = 666.0
    assert rates.count(("a",), 60) == 9.0
    clock.now = 690.0
    assert rates.count(("a",), 60) == 5.0


def test_two_windows_later_nothing_is_left():
    clock = Clock(600.0)
    rates = Rates(clock)
    rates.note(("a",), 60)
    clock.now += 121
    assert rates.count(("a",), 60) == 0


def test_memory_is_bounded_and_what_is_in_use_stays():
    clock = Clock(600.0)
    rates = Rates(clock, max_keys=10)
    for number in range(10):
        rates.note((str(number),), 60)
    clock.now += 180
    rates.note(("used",), 60)
    for number in range(9):
        rates.note((f"new{number}",), 60)
    assert len(rates) == 10
    assert rates.count(("used",), 60) == 1
    rates.note(("one more",), 60)
    assert len(rates) == 10


def test_full_of_keys_in_use_it_forgets_the_oldest_and_stays_quick():
    rates = Rates(Clock(600.0), max_keys=160)
    for number in range(161):
        rates.note((str(number),), 60)
    assert len(rates) == 151
    assert rates.count(("0",), 60) == 0
    assert rates.count(("160",), 60) == 1


def test_a_clock_that_is_set_back_a_little_forgets_nothing_and_a_lot_holds_nothing_up():
    clock = Clock(600.0)
    rates = Rates(clock)
    rates.note(("a",), 60)
    clock.now -= 1
    assert rates.note(("a",), 60) == 2
    clock.now -= 3600
    assert rates.count(("a",), 60) == 0


def test_a_request_is_granted_within_the_limit_or_told_when_it_would_be():
    clock = Clock(600.0)
    rates = Rates(clock)
    assert [rates.grant(("a",), 60, 3) for _ in range(3)] == [0, 0, 0]
    for _ in range(4):
        wait = rates.grant(("a",), 60, 3)
        assert 0 < wait <= 120
        clock.now += wait - 0.1
        assert rates.grant(("a",), 60, 3) > 0
        clock.now += 0.2
        assert rates.grant(("a",), 60, 3) == 0
    assert rates.grant(("b",), 60, 0) == 60


# --- several workers ------------------------------------------------------------------------------

WORKERS = ("one", "other", "third")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.integers(0, 2), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.just("say"), st.integers(0, 2), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("hear"), st.integers(0, 2), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 200), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def reports(rates: Rates) -> list[Report]:
    return [report for each in rates.everything() if (report := each.report()) is not None]


@given(STEPS)
def test_workers_that_have_told_each_other_all_count_like_one_that_counted_all(steps):
    """Reports are heard late, twice, out of order and through others, and come to the same."""
    clock = Clock(600.0)
    workers = [Rates(clock) for _ in WORKERS]
    alone = Rates(clock)
    on_their_way: list[tuple[str, list[Report]]] = []
    for what, first, second, third in steps:
        if what == "note":
            for _ in range(third):
                workers[first].note((f"key {second}",), 60)
                alone.note((f"key {second}",), 60)
        elif what == "say" and second:
            on_their_way.append((WORKERS[first], reports(workers[first])))
        elif what == "say":  # what it knows of another
            of = WORKERS[first - 1]
            told = [each.report_of(of) for each in workers[first].everything()]
            on_their_way.append((of, [each for each in told if each is not None]))
        elif what == "hear" and on_their_way:
            who, said = on_their_way[second % len(on_their_way)]
            if who != WORKERS[first]:
                workers[first].hear(who, said)
            if third:
                on_their_way.remove((who, said))
        elif what == "wait":
            clock.now += first
    for teller, name in zip(workers, WORKERS, strict=True):
        for listener in workers:
            if listener is not teller:
                listener.hear(name, reports(teller))
    for key in (("key 0",), ("key 1",)):
        assert [each.count(key, 60) for each in workers] == [alone.count(key, 60)] * 3


def test_what_was_told_is_not_told_again():
    rates = Rates(Clock(600.0))
    rates.note(("before",), 60)
    rates.share()
    rates.note(("a",), 60)
    rates.note(("a",), 60)
    assert [each.key for each in rates.take_changed()] == [("before",), ("a",)]
    assert rates.take_changed() == []
    rates.note(("a",), 60)
    assert [each.report() for each in rates.take_changed()] == [(("a",), 60, 10, 3, 0)]


def test_what_a_clock_ahead_of_ours_reports_counts_now_and_once():
    rates = Rates(Clock(600.0))
    rates.hear("ahead", [(("a",), 60, 11, 4, 2)])
    rates.hear("ahead", [(("a",), 60, 11, 4, 2)])
    assert rates.count(("a",), 60) == 6


def test_what_is_over_is_not_heard_and_takes_no_room():
    rates = Rates(Clock(600.0))
    rates.hear("slow", [(("a",), 60, 8, 4, 2)])
    assert len(rates) == 0


def test_of_ever_new_workers_only_so_many_are_remembered():
    rates = Rates(Clock(600.0))
    for number in range(100):
        rates.hear(str(number), [(("a",), 60, 10, 1, 0)])
    (counter,) = rates.everything()
    assert len(counter.others) == 64
    assert rates.count(("a",), 60) == 100


def test_threads_lose_no_count():
    rates = LockedRates(Clock(600.0))

    def visit() -> None:
        for _ in range(2000):
            rates.note(("a",), 60)

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rates.count(("a",), 60) == 8000


def test_it_gives_its_rate_at_once_and_then_as_it_refills() -> None:
    clock = Clock(100.0)
    bucket = TokenBucket(8, clock)
    assert [bucket.take() for _ in range(9)] == [True] * 8 + [False]
    clock.now += 0.125
    assert (bucket.take(), bucket.take()) == (True, False)


def test_it_never_holds_more_than_one_second_is_worth() -> None:
    clock = Clock(100.0)
    bucket = TokenBucket(3, clock)
    clock.now += 1000
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_a_debt_is_waited_for() -> None:
    clock = Clock(100.0)
    bucket = TokenBucket(8, clock)
    bucket.left -= 12
    assert bucket.seconds_until(0.125) == 0.625
    clock.now += 0.625
    bucket.refill()
    assert (bucket.left, bucket.seconds_until(0.125)) == (1, 0.0)


def test_a_rate_of_nothing_gives_nothing() -> None:
    assert not TokenBucket(0).take()
