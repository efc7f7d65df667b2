"""Looks a second time at tests that failed: by chance, or because something is wrong?

Rules
- When all tests have run, each that failed is run again twice: alone, in a process of its own, with
  the same seed, one after the other. The second time is left out if it fails the first.
- One that passes both times is *unsteady*. Unsteady tests alone do not fail the run: it ends with
  their names, reasons and durations, and with the lines to add by hand to `tests/unsteady.toml`.
- A test whose name is in that file already fails the run; it is not run again.
- If more than MOST fail, nothing is run again: that is no chance.
- Nothing is run again either where tests were not collected or the run was broken off (`-x`,
  Ctrl-C), and with `--no-second-look`.

A name is that of a test function in its file: all of its parameters are one test.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

LIST = "tests/unsteady.toml"
MOST, TIMES = 10, 2
LIMIT = 900.0  # seconds for one test alone, with what it starts
_KEYS = {"since": datetime.date, "reason": str}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a failure stand, for whoever counts failures."""
    parser.addoption(
        "--no-second-look", action="store_true", help="do not run again what has failed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Look at failures where they are gathered, which is not in xdist's workers."""
    option = config.option
    has_workers = not hasattr(config, "workerinput")
    is_whole = not (option.maxfail or option.usepdb or option.collectonly)
    if has_workers and is_whole and not option.no_second_look:
        known = listed(config.rootpath / LIST)
        config.pluginmanager.register(SecondLook(config, known), "second look")


def listed(path: Path) -> dict[str, str]:
    """The tests that have been unsteady before, each with since when and why.

    Args:
        path: of the list, which may be missing.

    Returns:
        What is said of a test, by its name.

    Raises:
        pytest.UsageError: a line is not what it should be.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except tomllib.TOMLDecodeError as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    for name, entry in entries.items():
        is_table = isinstance(entry, dict) and entry.keys() == _KEYS.keys()
        if not is_table or not all(isinstance(entry[key], _KEYS[key]) for key in _KEYS):
            raise pytest.UsageError(f'{path}: "{name}" needs since = <date> and reason = "…"')
    return {name: f"since {entry['since']}: {entry['reason']}" for name, entry in entries.items()}


@dataclass
class _Failed:
    """A test that failed: what was reported of it, how long it took, and how long alone."""

    nodeid: str
    reports: list[pytest.TestReport] = field(default_factory=list)
    seconds: float = 0.0
    alone: list[float] = field(default_factory=list)
    outcome: str = "not run again"

    @property
    def name(self) -> str:
        return self.nodeid.partition("[")[0]

    @property
    def reason(self) -> str:
        """One line: what its first failure said."""
        shown = self.reports[0].longrepr
        crash = getattr(shown, "reprcrash", None)
        lines = str(crash.message if crash else shown).strip().splitlines()
        return (lines[0] if crash else lines[-1])[:300] if lines else "nothing was said"


class SecondLook:
    """Runs again what has failed once all else is done, and says what came of it."""

    def __init__(self, config: pytest.Config, known: dict[str, str]) -> None:
        self._config = config
        self._known = known
        self._failed: list[_Failed] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Run again what has failed; if nothing but chance is left, the run has passed."""
        shown = self._config.pluginmanager.getplugin("terminalreporter")
        if exitstatus != pytest.ExitCode.TESTS_FAILED or shown is None:
            return
        reports = [*shown.stats.get("failed", ()), *shown.stats.get("error", ())]
        if not all(isinstance(report, pytest.TestReport) for report in reports):
            return
        self._failed = _by_test(reports, shown.stats.values())
        if len(self._failed) <= MOST:
            for test in self._failed:
                if test.name not in self._known:
                    self._run_again(test, shown)
        unsteady = [test for test in self._failed if test.outcome == "passed"]
        for test in unsteady:
            shown.stats.setdefault("unsteady", []).append(test.reports[0])
        excused = {id(report) for test in unsteady for report in test.reports}
        for outcome in ("failed", "error"):
            left = [each for each in shown.stats.pop(outcome, ()) if id(each) not in excused]
            if left:
                shown.stats[outcome] = left
        if unsteady and len(unsteady) == len(self._failed):
            session.exitstatus = pytest.ExitCode.OK

    def _run_again(self, test: _Failed, shown: pytest.TerminalReporter) -> None:
        shown.ensure_newline()
        for _ in range(TIMES):
            began = time.monotonic()
            test.outcome = "passed" if _passes_alone(self._config, test.nodeid) else "failed"
            test.alone.append(time.monotonic() - began)
            took = f"{test.alone[-1]:.1f} s"
            shown.write_line(f"alone, {test.nodeid} {test.outcome} after {took}")
            if test.outcome == "failed":
                return

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, None, None]:
        """After all else, what came of the second look."""
        yield
        if not self._failed:
            return
        unsteady = [test for test in self._failed if test.outcome == "passed"]
        for test in unsteady:
            terminalreporter.section(f"failed once, passed {TIMES} times alone: {test.nodeid}")
            for report in test.reports:
                report.toterminal(terminalreporter._tw)
        terminalreporter.section("second look")
        if len(self._failed) > MOST:
            line = f"{len(self._failed)} tests failed; more than {MOST} are not run again"
            terminalreporter.line(line)
        for test in self._failed:
            terminalreporter.line(self._told(test))
        if unsteady:
            terminalreporter.line(f"\nAdd to {LIST}, or mend it at once:")
            for test in {each.name: each for each in unsteady}.values():
                terminalreporter.line(_entry(test))

    def _told(self, test: _Failed) -> str:
        known = self._known.get(test.name)
        if known is not None:
            return f"FAILED, and unsteady {known} ({LIST}): {test.nodeid}: {test.reason}"
        words = {"passed": "UNSTEADY", "failed": "FAILED AGAIN"}.get(test.outcome, "FAILED")
        alone = "".join(f", alone {seconds:.1f} s" for seconds in test.alone)
        return f"{words} {test.nodeid} ({test.seconds:.1f} s{alone}): {test.reason}"


def _by_test(reports: list[pytest.TestReport], gathered: Iterable[list[object]]) -> list[_Failed]:
    """The tests that failed, in order; a test may fail in itself and in what it leaves."""
    failed: dict[str, _Failed] = {}
    for report in reports:
        nodeid = _without_group(report.nodeid)
        failed.setdefault(nodeid, _Failed(nodeid)).reports.append(report)
    for each in (report for those in gathered for report in those):
        if isinstance(each, pytest.TestReport) and _without_group(each.nodeid) in failed:
            failed[_without_group(each.nodeid)].seconds += each.duration
    return list(failed.values())


def _without_group(nodeid: str) -> str:
    """The id of a test without what xdist has added: `…::test_it[4]@group`."""
    at = nodeid.rfind("@")
    return nodeid[:at] if at > nodeid.rfind("]") else nodeid


def _passes_alone(config: pytest.Config, nodeid: str) -> bool:
    """Whether a test passes in a process of its own."""
    given = config.known_args_namespace.plugins or ()
    options = [word for name in given for word in ("-p", name)]
    if config.inipath is not None:
        options += ["-c", str(config.inipath)]
    seed = getattr(config.option, "randomly_seed", None)
    if isinstance(seed, int):
        options.append(f"--randomly-seed={seed}")
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--no-second-look", "--color=no", *options),
        *(f"--rootdir={config.rootpath}", nodeid),
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")
    }
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        try:
            done = subprocess.run(
                command, cwd=config.rootpath, env=environment, timeout=LIMIT, check=False,
                stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        said.seek(0)
        last = said.read().strip().rpartition("\n")[2]
    return done.returncode == 0 and " passed" in f" {last}"  # and was not skipped


def _entry(test: _Failed) -> str:
    """What the list says of an unsteady test."""
    today = datetime.datetime.now(datetime.UTC).date()
    reason = test.reason.replace("\\", "\\\\").replace('"', '\\"')
    plain = "".join(letter if letter.isprintable() else " " for letter in reason)
    return f'["{test.name}"]\nsince = {today}\nreason = "{plain}"'
