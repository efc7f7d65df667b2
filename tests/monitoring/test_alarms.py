"""An alarm that cannot be written while the database is away is written when it is back.

An alarm stands while the failures of a part repeat.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from msgnode.bus.writing import Change, Together
from msgnode.core.errors import InternalFault, NodeError, Unavailable
from msgnode.core.faults import FAULTS, REPEATS, WINDOW, Faults
from msgnode.monitoring.fault_alarms import KIND, FaultAlarms
from msgnode.node import alarms
from msgnode.node.alarms import Alarms
from msgnode.storage.fence import Fenced
from tests import waiting


class Database:
    """A writer whose next submissions fail."""

    def __init__(self, *errors: NodeError | None) -> None:
        self.errors = list(errors)
        self.written: list[str] = []
        self.tried = 0

    def submit(self, *changes: Change, result: Any = None) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        self.tried += 1
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            done.set_exception(error)
        else:
            (change,) = changes
            raised = isinstance(change, Together)
            self.written.append(change.item.subject if raised else "cleared")
            done.set_result(result)
        return done


async def test_what_could_not_be_written_comes_later_with_all_that_followed_it() -> None:
    database = Database(Unavailable(), None)
    told = Alarms(database, again=0.01)
    told.raise_alarm("k", "first", "text")
    told.raise_alarm("k", "second", "text")
    told.clear_alarm("k", "first")
    told.raise_alarm("k", "third", "text")
    await waiting.so(lambda: database.written[-1:] == ["third"])
    assert database.written == ["first", "second", "cleared", "third"]


async def test_a_clearing_never_comes_before_what_it_clears() -> None:
    database = Database(None, Unavailable(), None)
    told = Alarms(database, again=0.01)
    told.raise_alarm("k", "before", "text")
    await asyncio.sleep(0)
    told.raise_alarm("k", "lost", "text")
    told.clear_alarm("k", "lost")
    await waiting.so(lambda: database.written.count("lost") == 1)
    await waiting.so(lambda: database.written[-1] == "cleared")


@pytest.mark.parametrize("error", [InternalFault(), Fenced()])
async def test_what_will_never_be_written_is_not_tried_again(error: NodeError) -> None:
    database = Database(error)
    told = Alarms(database, again=0.0)
    told.raise_alarm("k", "bad", "text")
    await asyncio.sleep(0.05)
    assert (database.written, database.tried) == ([], 1)


async def test_what_waits_has_a_bound_and_what_is_lost_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alarms, "KEPT", 3)
    before = FAULTS.counts["alarm that could not be written"]
    database = Database(Unavailable())
    told = Alarms(database, again=0.05)
    for number in range(6):
        told.raise_alarm("k", str(number), "text")
    await waiting.so(lambda: len(database.written) >= 3)
    assert database.written == ["3", "4", "5"]
    assert FAULTS.counts["alarm that could not be written"] == before + 3


async def test_the_bound_holds_for_as_long_as_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alarms, "KEPT", 3)
    database = Database(*(Unavailable() for _ in range(10_000)))
    told = Alarms(database, again=0.0)
    for number in range(100):
        told.raise_alarm("k", str(number), "text")
        await asyncio.sleep(0)
    database.errors.clear()
    await waiting.so(lambda: database.written[-1:] == ["99"])
    assert database.written == ["97", "98", "99"]


def test_an_alarm_stands_while_failures_repeat_and_is_cleared_afterwards() -> None:
    now = [0.0]
    faults = Faults(lambda: now[0])
    raised: list[tuple[str, str, str]] = []
    cleared: list[tuple[str, str]] = []
    alarms = FaultAlarms(
        faults, "host:1", lambda *alarm: raised.append(alarm), lambda *alarm: cleared.append(alarm)
    )
    for _ in range(REPEATS):
        alarms.look()
        faults.note("link")
    assert raised == []
    alarms.look()
    alarms.look()
    assert [each[:2] for each in raised] == [(KIND, "host:1 link")]
    now[0] = WINDOW + 1
    alarms.look()
    assert cleared == [(KIND, "host:1 link")]
    alarms.look()
    assert len(cleared) == 1
