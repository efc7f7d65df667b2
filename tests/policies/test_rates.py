"""Rate counters: sliding windows, bounded memory."""

from __future__ import annotations

from policies.rates import Rates


class Clock:
    now = 600.0

    def __call__(self):
        return self.now


def test_counts_within_a_window():
    rates = Rates(Clock())
    assert [rates.note(("a",), 60) for _ in range(3)] == [1, 2, 3]
    assert rates.count(("a",), 60) == 3
    assert rates.count(("b",), 60) == 0


def test_a_burst_at_the_end_of_a_window_still_counts_in_the_next():
    clock = Clock()
    rates = Rates(clock)
    clock.now = 659.0
    for _ in range(10):
        rates.note(("a",), 60)
    clock.now = 666.0
    assert rates.count(("a",), 60) == 9.0
    clock.now = 690.0
    assert rates.count(("a",), 60) == 5.0


def test_two_windows_later_nothing_is_left():
    clock = Clock()
    rates = Rates(clock)
    rates.note(("a",), 60)
    clock.now += 121
    assert rates.count(("a",), 60) == 0


def test_memory_is_bounded_and_what_is_in_use_stays():
    clock = Clock()
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
