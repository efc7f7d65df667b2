"""What several tests share is started once, in one process, and in a time of its own.

The limit of a test is not meant for what all tests share, such as the migrated database: on a busy
machine the first test that asked for it failed at its limit, and with it all the others.

pytest-xdist 3.8 writes the group behind `item._nodeid`; pytest from 9.1 on takes the id from
elsewhere, so the groups were void: two Sparks and two pairs of workers ran where one was meant.

Among several processes, files whose tests may take long come first: one of them that is begun last
is waited for by all processes.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

START_SECONDS = 600.0
"""For a fixture that tests share, with those that it asks for."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Stop the clock of the test (pytest-timeout's, which is an alarm) while others profit."""
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if fixturedef.scope == "function" or not left:
        return (yield)
    signal.setitimer(signal.ITIMER_REAL, START_SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After xdist's own hook: have the id of an item be what xdist has written."""
    if hasattr(config, "workerinput"):
        put_dear_files_first(items)
    for item in items:
        written = getattr(item, "_nodeid", item.nodeid)
        if written != item.nodeid:
            item._id = type(item._id).parse(written)  # type: ignore[attr-defined]


def put_dear_files_first(items: list[pytest.Item]) -> None:
    """Those first of whose tests one may take longest; what is equal stays as it is."""
    most: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        most[item.path] = max(most.get(item.path, 0.0), marker.args[0] if marker else 0.0)
    items.sort(key=lambda item: -most[item.path])
