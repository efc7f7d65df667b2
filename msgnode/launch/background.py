"""Judges the programs that run beside the node, Celery's worker and beat, by their signs of life.

The node serves without them, so nothing they do ends it. What is wrong with one is printed in one
line and written to `background.json`, which the node reads: then `/health/ready` says
`jobs: false`, and an alarm is raised (monitoring/background_programs.py).

Rules
- A program runs when the mark in its file `<name>.started`, which it renews, is its own process's.
- Until then its log, its processor time and its mark are its signs of life, then the mark alone: so
  a slow machine gets the time it needs.
- One without a sign of life for QUIET seconds has stopped; after STUCK seconds it is started again,
  and waited for twice as long the next time.
- supervisord starts one that ends again, each time a second later.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .programs import Program

NAMES = ("beat", "worker")
QUIET = 60.0
STUCK = 300.0
_FAILED = ("BACKOFF", "FATAL", "UNKNOWN")
_LONGEST = 300


class Supervised(Protocol):
    """The programs as supervisord has them."""

    data_dir: Path

    def log(self, name: str) -> Path: ...  # noqa: D102
    def cause(self, program: Program) -> str: ...  # noqa: D102
    def restart(self, name: str) -> None: ...  # noqa: D102


def signs_of_life(pid: int, *files: Path) -> tuple[object, ...]:
    """What changes while a process does something: its processor time, and its files."""
    signs: list[object] = [pid]
    with suppress(OSError, IndexError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        signs += words[11:15]  # of it and of its children
    for file in files:
        with suppress(OSError):
            seen = file.stat()
            signs += [seen.st_size, seen.st_mtime_ns]
    return tuple(signs)


@dataclass(slots=True)
class _State:
    """What is known of one program."""

    signs: tuple[object, ...] = ()
    changed_at: float = 0.0
    patience: float = STUCK
    runs: bool = False
    problem: str = ""


class Background:
    """The programs beside the node.

    Args:
        programs: supervisord.
        say: prints one line for the user.
        now: a clock in seconds.
    """

    def __init__(
        self,
        programs: Supervised,
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._programs = programs
        self._say = say
        self._now = now
        self._states = {name: _State(changed_at=now()) for name in NAMES}
        self._written = ""

    @property
    def all_run(self) -> bool:
        """Whether all of them run."""
        return all(state.runs for state in self._states.values())

    def has_problem(self, name: str) -> bool:
        """Whether a program does not run for a reason that was printed."""
        return name in self._states and bool(self._states[name].problem)

    def look(self, seen: Mapping[str, Program]) -> None:
        """Judge them as supervisord sees them now."""
        for name, state in self._states.items():
            if name in seen:
                self._judge(seen[name], state)

    def _judge(self, program: Program, state: _State) -> None:
        now = self._now()
        mark = self._programs.data_dir / f"{program.name}.started"
        is_marked = program.pid > 0 and _read(mark) == str(program.pid)
        log = self._programs.log(program.name)
        signs: tuple[object, ...] = (program.pid, _modified(mark))
        if not is_marked:
            signs = signs_of_life(program.pid, log, mark)
        if signs != state.signs:
            state.signs, state.changed_at = signs, now
        quiet = now - state.changed_at
        if program.state in _FAILED:
            self._fail(program, state, "does not start" if not state.runs else "has ended")
        elif quiet > QUIET:
            self._fail(program, state, f"has shown no sign of life for {quiet:.0f} seconds")
            if quiet > state.patience and program.state in ("STARTING", "RUNNING"):
                state.patience *= 2
                self._programs.restart(program.name)
        elif is_marked:
            if state.problem:
                self._say(f"{program.name} runs again")
            state.runs, state.problem, state.patience = True, "", STUCK

    def _fail(self, program: Program, state: _State, what: str) -> None:
        state.runs = False
        if state.problem:
            return
        cause = self._programs.cause(program)[:_LONGEST]
        log = self._programs.log(program.name)
        state.problem = f"{program.name} {what}: {cause} (log {log})"
        self._say(f"{state.problem}; the node serves, and it is tried again")

    def write(self, supervisord: int) -> None:
        """Write what does not run where the node finds it, with the reason if there is one.

        Args:
            supervisord: its process, which is the node's parent: another node ignores the file.
        """
        absent = {name: each.problem for name, each in self._states.items() if not each.runs}
        text = json.dumps({"supervisord": supervisord, "absent": absent})
        if text == self._written:
            return
        file = self._programs.data_dir / "background.json"
        made = file.with_name(f".background.{os.getpid()}")
        with suppress(OSError):  # a full disk: at the next look
            made.write_text(text, encoding="utf-8")
            made.replace(file)
            self._written = text


def _read(file: Path) -> str:
    with suppress(OSError, ValueError):
        return file.read_text()
    return ""


def _modified(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_mtime_ns
    return 0
