"""The limit of a wait for the database: the process's, or a shorter one of what runs now."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from msgnode.core import database_limit
from msgnode.core.database_limit import at_most, limit_process, seconds


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(database_limit, "_process", float("inf"))
    yield


@pytest.mark.usefixtures("unlimited")
def test_the_shortest_limit_holds_and_only_within_its_block() -> None:
    assert seconds() is None
    with at_most(3):
        assert seconds() == 3
        with at_most(5):
            assert seconds() == 3
        limit_process(2)
        assert seconds() == 2
    assert seconds() == 2


@pytest.mark.usefixtures("unlimited")
def test_a_thread_of_its_own_has_the_limit_of_the_process_alone() -> None:
    limit_process(30)
    found: list[float | None] = []
    with at_most(1):
        thread = threading.Thread(target=lambda: found.append(seconds()))
        thread.start()
        thread.join(10)
    assert found == [30]
