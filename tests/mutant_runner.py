"""Runs mutants: one process imports and collects everything once, and forks a child for each.

A plugin of pytest for the copy of the tree that mutmut makes, in which each function chooses by the
name of the mutant under test between itself and its mutants. `tests/mutants.py` starts it:
`python -m pytest -p tests.mutant_runner --mutants NAMES --verdicts FILE …`.

Rules
- The first child runs all tests without a mutant; all must pass. It says which tests reach which
  function, so that is never out of date.
- The child of a mutant runs the tests that reach its function, the quick ones first, until one
  fails. One that takes far longer than these tests did is ended, and counts as killed.
- A verdict is written down at once. It is an exit status as mutmut keeps it.
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import select
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest
from mutmut.mutation import trampoline
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.utils.format_utils import mangled_name_from_mutant_name

KILLED, SURVIVED, FAULT, UNREACHED, TIMEOUT = 1, 0, 3, 33, 36
_LEAST, _MULTIPLE = 5.0, 10.0  # seconds of the processor for a mutant, and for one of its tests
_WALL = 12.0  # times as long may pass: this process runs at low priority, beside others


class _Reach(NamedTuple):
    """By function the tests that reach it, as their places in the collection; seconds by test."""

    tests: dict[str, list[int]]
    seconds: list[float]


class _Child(NamedTuple):
    """A process that runs a mutant, and until when it may."""

    name: str
    pid: int
    until: float


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `tests/mutants.py` says."""
    group = parser.getgroup("mutants")
    group.addoption("--mutants", type=Path, help="a file with their names, one a line")
    group.addoption("--verdicts", type=Path, help="a file to which verdicts are added")
    group.addoption("--at-once", type=int, default=1, help="how many are run at once")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the mutants instead of the tests."""
    if session.testsfailed:
        pytest.exit("not all tests could be collected", 1)
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all
    gc.collect()
    gc.freeze()  # so that a child writes to less of what it shares
    reach = _reached(session)
    options = session.config.option
    names = options.mutants.read_text().split()
    by_time = sorted(names, key=lambda name: sum(reach.seconds[at] for at in _of(name, reach)))
    with options.verdicts.open("a", buffering=1) as verdicts:
        _run_all(session, by_time, reach, verdicts, options.at_once)
    return True


# --- which tests reach what -----------------------------------------------------------------------


def _reached(session: pytest.Session) -> _Reach:
    """Run all tests without a mutant, and note what they reach; ends all if one fails."""
    reading, writing = os.pipe()
    pid = _fork(session, partial(_note_reach, session, writing))
    os.close(writing)
    with os.fdopen(reading) as found:
        said = found.read()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or not said:
        pytest.exit("the tests could not be run without a mutant", 1)
    told = json.loads(said)
    if told["failed"]:
        pytest.exit(f"without a mutant these fail: {told['failed']}", 1)
    return _Reach(told["tests"], told["seconds"])


def _note_reach(session: pytest.Session, writing: int) -> int:
    hits: set[str] = set()
    trampoline.record_trampoline_hit = (  # type: ignore[attr-defined]
        lambda name, caller=None: hits.add(name)
    )
    set_mutant_under_test("stats")
    tests, seconds, failed = defaultdict(list), [], []
    for at, (item, following) in enumerate(_with_next(session.items)):
        began, before = time.perf_counter(), session.testsfailed
        _run(item, following)
        seconds.append(time.perf_counter() - began)
        for name in hits:
            tests[name].append(at)
        hits.clear()
        if session.testsfailed > before:
            failed.append(item.nodeid)
    with os.fdopen(writing, "w") as told:
        json.dump({"tests": tests, "seconds": seconds, "failed": failed}, told)
    return 0


def _of(name: str, reach: _Reach) -> list[int]:
    """The tests that reach the function of a mutant, the quick ones first."""
    found = reach.tests.get(mangled_name_from_mutant_name(name), [])
    return sorted(found, key=reach.seconds.__getitem__)


# --- the mutants ----------------------------------------------------------------------------------


def _run_all(
    session: pytest.Session, names: list[str], reach: _Reach, verdicts: TextIO, at_once: int
) -> None:
    running: dict[int, _Child] = {}  # by a descriptor that says when it has ended

    def note(name: str, verdict: int) -> None:
        verdicts.write(json.dumps([name, verdict]) + "\n")

    try:
        for name in names:
            if not (tests := _of(name, reach)):
                note(name, UNREACHED)
                continue
            while len(running) >= at_once:
                _wait(running, note)
            limit = _LEAST + _MULTIPLE * sum(reach.seconds[at] for at in tests)
            items = [session.items[at] for at in tests]
            pid = _fork(session, partial(_try, session, name, items, limit))
            child = _Child(name, pid, time.monotonic() + _WALL * limit)
            running[os.pidfd_open(pid)] = child
        while running:
            _wait(running, note)
    finally:
        for child in running.values():
            _end(child)


def _wait(running: dict[int, _Child], note: Callable[[str, int], None]) -> None:
    """Note those that have ended, and end those whose time is over."""
    left = min(child.until for child in running.values()) - time.monotonic()
    ended, _, _ = select.select(running, [], [], max(0.0, left))
    late = [each for each, child in running.items() if child.until < time.monotonic()]
    for each in {*ended, *late}:
        child = running.pop(each)
        os.close(each)
        status = _end(child)
        note(child.name, TIMEOUT if status in (-signal.SIGKILL, -signal.SIGXCPU) else status)


def _end(child: _Child) -> int:
    """End a child, if it has not, and all that it has started; its exit status."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])


def _try(session: pytest.Session, name: str, items: list[pytest.Item], limit: float) -> int:
    """Whether a test kills a mutant."""
    seconds = math.ceil(limit + time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    set_mutant_under_test(name)
    before = session.testsfailed
    for item, following in _with_next(items):
        _run(item, following)
        if session.testsfailed > before:
            session._setupstate.teardown_exact(None)
            return KILLED
    return SURVIVED


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _with_next(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _fork(session: pytest.Session, work: Callable[[], int]) -> int:
    """Do some work in a child, silently; its process id. The child's exit status is the result."""
    pid = os.fork()
    if pid:
        return pid
    status = FAULT
    try:
        os.setpgid(0, 0)
        plugins = session.config.pluginmanager
        plugins.unregister(plugins.get_plugin("terminalreporter"))
        status = work()
    finally:
        os._exit(status)
