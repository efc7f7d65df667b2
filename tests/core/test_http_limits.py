"""Requests over HTTP are counted with other workers while that can be done, else by this one."""

from __future__ import annotations

from collections import Counter

from limits.errors import StorageError
from limits.storage import MemoryStorage

from msgnode.core.http_limits import RETRY_AFTER, HttpLimits
from tests.fakes import Clock


class Storage(MemoryStorage):
    """A storage of `limits` in which no time passes, and that can be out of reach."""

    is_away = False
    asked = 0

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()

    def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        self._look()
        if self._counts[key] + amount > limit:
            return False
        self._counts[key] += amount
        return True

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        self._look()
        return 0, 0.0, self._counts[key], float(expiry)

    def _look(self) -> None:
        self.asked += 1
        if self.is_away:
            raise StorageError(OSError("no answer"))


def sharing(storage: Storage, clock: Clock) -> HttpLimits:
    limits = HttpLimits(clock)
    limits.share(storage)
    return limits


def test_so_many_are_taken_and_the_next_is_told_when_to_come_again() -> None:
    limits = HttpLimits()
    assert [limits.take("reads", "a", 2) for _ in range(2)] == [0, 0]
    assert 0 < limits.take("reads", "a", 2) <= 120
    assert limits.is_spent("reads", "a", 2)
    assert not limits.is_spent("reads", "b", 2)
    assert not limits.is_spent("writes", "a", 2)
    limits.clear()
    assert not limits.is_spent("reads", "a", 2)


def test_what_is_not_spent_is_counted_so_that_no_number_of_guesses_goes_free() -> None:
    limits = HttpLimits()
    for _ in range(3):
        assert not limits.is_spent("guess", "a", 3)
        assert limits.take("guess", "a", 3) == 0
    assert limits.is_spent("guess", "a", 3)


def test_workers_that_share_a_storage_count_together() -> None:
    storage = Storage()
    one, other = (sharing(storage, Clock()) for _ in range(2))
    assert one.take("reads", "a", 2) == other.take("reads", "a", 2) == 0
    assert one.is_spent("reads", "a", 2)
    assert 1 <= other.take("reads", "a", 2) <= 120


def test_while_the_storage_is_away_a_worker_counts_alone_and_does_not_ask_for_each_request() -> (
    None
):
    clock, storage = Clock(), Storage()
    limits = sharing(storage, clock)
    storage.is_away = True
    assert [limits.take("reads", "a", 2) > 0 for _ in range(3)] == [False, False, True]
    assert limits.is_spent("reads", "a", 2)
    assert storage.asked == 1
    storage.is_away = False
    clock.now = RETRY_AFTER
    assert not limits.is_spent("reads", "a", 2)
    assert storage.asked == 2
