"""A token bucket, on a clock of the test's."""

from __future__ import annotations

from msgnode.core.token_bucket import TokenBucket
from tests.fakes import Clock


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
