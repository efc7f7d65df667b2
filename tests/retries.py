"""Which tests may be tried a second time: only those marked `retry_in_ci(reason="…")`, and only
where CI is set. Each second try is printed as RERUN and counted at the end.

A failure that nobody sees again is a race that passes most builds, so the mark is for what a test
cannot help: a server of others that is slow on a starved machine. `make test-again` finds races.
"""

from __future__ import annotations

import os

import pytest

MARK = "retry_in_ci"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f'{MARK}(reason="…"): with CI set, a failure is tried once more, and reported'
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("flaky") is not None:
            raise pytest.UsageError(f'{item.nodeid}: mark it {MARK}(reason="…") instead of flaky')
        mark = item.get_closest_marker(MARK)
        if mark is None:
            continue
        reason = mark.kwargs.get("reason")
        if mark.args or set(mark.kwargs) != {"reason"} or not str(reason).strip():
            raise pytest.UsageError(f"{item.nodeid}: {MARK} takes a reason, and nothing else")
        if os.environ.get("CI"):
            item.add_marker(pytest.mark.flaky(reruns=1))
            item.user_properties.append((MARK, reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    again = terminalreporter.getreports("rerun")
    if not again:
        return
    terminalreporter.section("tried again")
    for report in again:
        reason = dict(report.user_properties).get(MARK, "no reason given")
        terminalreporter.line(f"RERUN {report.nodeid}: {reason}")
    terminalreporter.line(f"tried again: {len(again)}")
