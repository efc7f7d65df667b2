"""Work longer than one turn of the loop is queued, fairly between all connections."""

from __future__ import annotations

import asyncio

from msgnode.sessions.turn_queue import TURN, TurnQueue
from tests.fakes import Clock


class Job:
    """Takes `steps` steps of `seconds` each, as a connection does."""

    def __init__(self, queue: TurnQueue, clock: Clock, steps: int, seconds: float = TURN) -> None:
        self.left = steps
        self.took: list[float] = []
        self._queue, self._clock, self._seconds = queue, clock, seconds

    def go(self) -> None:
        self._queue.enter()
        while self.left:
            if self._queue.must_wait:
                self._queue.wait(self.go)
                return
            self.left -= 1
            self.took.append(self._clock.now)
            self._clock.now += self._seconds


async def until(done: list[Job]) -> int:
    turns = 0
    while any(job.left for job in done):
        await asyncio.sleep(0)
        turns += 1
        assert turns < 1000
    return turns


async def test_what_fits_is_done_at_once() -> None:
    clock = Clock()
    queue = TurnQueue(clock)
    job = Job(queue, clock, 3, TURN / 10)
    job.go()
    assert not job.left


async def test_all_together_take_no_more_of_a_turn_than_one_alone() -> None:
    clock = Clock()
    queue = TurnQueue(clock)
    jobs = [Job(queue, clock, 2, TURN * 0.6) for _ in range(50)]
    for job in jobs:
        job.go()
    assert sum(len(job.took) for job in jobs) == 2
    before = clock.now
    await asyncio.sleep(0)
    assert clock.now - before <= 2 * TURN
    assert await until(jobs) >= 48


async def test_they_take_turns_and_who_comes_later_goes_behind_them() -> None:
    clock = Clock()
    queue = TurnQueue(clock)
    first, second = Job(queue, clock, 4, TURN * 1.1), Job(queue, clock, 4, TURN * 1.1)
    first.go()
    second.go()
    await asyncio.sleep(0)
    late = Job(queue, clock, 1, TURN * 1.1)
    late.go()
    await until([first, second, late])
    order = sorted((at, name) for name, job in (("1", first), ("2", second), ("late", late))
                   for at in job.took)  # fmt: skip
    names = [name for _, name in order]
    assert names == ["1", "1", "2", "1", "late", "2", "1", "2", "2"]


async def test_one_that_fails_keeps_nobody_else_from_its_turn() -> None:
    clock = Clock()
    queue = TurnQueue(clock)
    busy, good = Job(queue, clock, 2, TURN * 1.1), Job(queue, clock, 1)

    def fails() -> None:
        raise ValueError("not mine")

    busy.go()
    queue.wait(fails)
    good.go()
    await until([busy, good])
    assert good.took
