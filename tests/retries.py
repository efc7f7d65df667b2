"""Which tests may be tried a second time: only those that wait for real servers, each with its
reason, and only where CI is set. Each second try is printed as RERUN and counted at the end.

A failure that nobody sees again is a race that passes most builds. So whatever runs in the tests'
own process fails at once, and what waits for a server that a starved machine starts or schedules
late may be tried once more: by what it uses (`BY_FIXTURE`), by the room whose tests start servers
themselves (`BY_ROOM`), or marked `retry_in_ci(reason="…")`. `make test-again` finds races.

What the tests of a file share (fixtures of module scope) is made anew for the second try: the first
has left names that are taken, rows that are there already, and servers that it has stopped.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import cast

import pytest

MARK = "retry_in_ci"

_NODE = "waits for a node, which is a process of its own"
_WORKERS = "waits for several workers, their leases and links"
_SERVICE = "waits for a server of others"
_BROWSER = "waits for a browser"

BY_FIXTURE: Mapping[str, str] = {
    "chromium": _BROWSER,
    "spark": "waits for Spark",
    "redis_url": _SERVICE,
    "postgres_url": _SERVICE,
    "nodejs": "waits for Node.js",
    "node": _NODE,
    "start_node": _NODE,
    "idnode": _NODE,
    "issuer": _SERVICE,
    "template": _NODE,
}
BY_ROOM: Mapping[str, str] = {
    "msgnode/runtime/python/tests": "waits for sandboxes, which are processes of their own",
    "tests/adversary": _NODE,
    "tests/backup/test_backup.py": _NODE,
    "tests/backup/test_postgresql.py": _SERVICE,
    "tests/conformance/test_liveness.py": _WORKERS,
    "tests/connectors": "waits for registries, which are servers of their own",
    "tests/devices": "waits for a broker, or for what two workers tell each other",
    "tests/e2e": _WORKERS,
    "tests/fuzz": _NODE,
    "tests/launch": "waits for processes that it starts",
    "tests/qos": "waits for a broker, or for what several workers tell each other",
    "tests/redis": _SERVICE,
    "tests/runtime": "waits for runtimes, which are processes of their own",
    "tests/servers/test_collector.py": "waits for a process that it starts",
    "tests/spark": "waits for Spark",
    "tests/stubs": "waits for runtimes, which are processes of their own",
    "tests/test_deployment.py": "waits for processes that it starts",
    "tests/test_docs.py": "waits for processes that it starts",
    "tests/test_groups.py": "waits for processes that it starts",
    "tests/test_prometheus.py": "waits for processes that it starts",
    "tests/traffic/test_recorder.py": "waits for a process that it starts",
    "tests/workers": _WORKERS,
}
_LONG = "starts several servers, or is about much at once"
_HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # The plugin tells its count to the first process in small packets, each of which would wait for
    # the acknowledgement of the one before it: 40 ms.
    to_first = getattr(getattr(config, "failures_db", None), "sock", None)
    if to_first is not None and hasattr(config, "workerinput"):
        to_first.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config.addinivalue_line(
        "markers", f'{MARK}(reason="…"): with CI set, a failure is tried once more, and reported'
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("flaky") is not None:
            raise pytest.UsageError(f'{item.nodeid}: mark it {MARK}(reason="…") instead of flaky')
        reason = _reason(item, config.rootpath)
        if reason and os.environ.get("CI"):
            item.add_marker(pytest.mark.flaky(reruns=1))
            item.user_properties.append((MARK, reason))


def _reason(item: pytest.Item, top: Path) -> str:
    """Why a test may be tried once more, "" if it may not."""
    mark = item.get_closest_marker(MARK)
    if mark is not None:
        reason = str(mark.kwargs.get("reason", "")).strip()
        if mark.args or set(mark.kwargs) != {"reason"} or not reason:
            raise pytest.UsageError(f"{item.nodeid}: {MARK} takes a reason, and nothing else")
        return reason
    used = getattr(item, "fixturenames", ())
    by_fixture = next((why for name, why in BY_FIXTURE.items() if name in used), "")
    if by_fixture:
        return by_fixture
    place = item.path.relative_to(top) if item.path.is_relative_to(top) else item.path
    rooms = {str(each) for each in (place, *place.parents)}
    by_room = next((why for room, why in BY_ROOM.items() if room in rooms), "")
    return by_room or (_LONG if item.get_closest_marker("long") is not None else "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when != "teardown":
        item.stash[_HAS_FAILED] = report.failed
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End what its file shares before the plugin keeps it for the second try."""
    if item.stash.get(_HAS_FAILED, False) and item.get_closest_marker("flaky") is not None:
        setup = item.session._setupstate
        if item in setup.stack:
            try:
                setup.teardown_exact(cast("pytest.Item", _Elsewhere(item)))
            finally:
                setup.stack[item] = ([], None)  # the plugin looks for it there


class _Elsewhere:
    """Stands for a next test that shares with this one what is wider than its file, and no more."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def listchain(self) -> list[pytest.Collector | pytest.Item]:
        """The collectors that this test is in, down to its folder."""
        chain = self._item.listchain()
        file = next((at for at, each in enumerate(chain) if isinstance(each, pytest.File)), -1)
        return chain[:file]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    again = terminalreporter.getreports("rerun")
    if not again:
        return
    terminalreporter.section("tried again")
    for report in again:
        reason = dict(report.user_properties).get(MARK, "no reason given")
        terminalreporter.line(f"RERUN {report.nodeid}: {reason}")
    terminalreporter.line(f"tried again: {len(again)}")
