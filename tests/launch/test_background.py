"""Worker and beat are judged by their signs of life; the processes are real, the clock is not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgnode.launch.background import QUIET, STUCK, Background
from msgnode.launch.programs import Program


class Stage:
    """supervisord's view of the programs, with a clock that a test sets."""

    def __init__(self, data_dir: Path, pid: int) -> None:
        self.data_dir = data_dir
        self.pid = pid
        self.now = 0.0
        self.states = {"beat": "RUNNING", "worker": "RUNNING"}
        self.lines: list[str] = []
        self.restarted: list[str] = []
        self.background = Background(self, self.lines.append, lambda: self.now)
        self.marked("worker")

    def log(self, name: str) -> Path:
        return self.data_dir / f"{name}.log"

    def cause(self, program: Program) -> str:
        return f"the last line of {program.name}"

    def restart(self, name: str) -> None:
        self.restarted.append(name)

    def marked(self, name: str) -> None:
        """It has renewed its mark."""
        file = self.data_dir / f"{name}.started"
        file.write_text(str(self.pid))
        os.utime(file, (self.now, self.now))

    def look(self, seconds: float = 0.0) -> None:
        """Look each second, for so many; the worker always runs."""
        for _ in range(int(seconds) + 1):
            self.now += 1
            self.marked("worker")
            self.background.look(
                {name: Program(name, state, self.pid, "") for name, state in self.states.items()}
            )

    def absent(self) -> dict[str, str]:
        self.background.write(1)
        found: dict[str, str] = json.loads((self.data_dir / "background.json").read_text())[
            "absent"
        ]
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        yield Stage(tmp_path, sleeper.pid)
        sleeper.kill()


def test_one_that_sleeps_is_named_once_and_started_again_later_each_time(stage: Stage) -> None:
    stage.look(QUIET - 5)
    assert stage.absent() == {"beat": ""}, "it may be starting"
    stage.look(10)
    (line,) = stage.lines
    assert line.startswith("beat has shown no sign of life for 6")
    assert "the last line of beat" in line
    assert str(stage.log("beat")) in line
    assert line.startswith(stage.absent()["beat"])
    stage.look(STUCK)
    assert stage.restarted == ["beat"]
    stage.states["beat"] = "STOPPING"
    stage.look()
    assert not stage.background.all_run
    stage.states["beat"] = "STARTING"
    with subprocess.Popen(["sleep", "600"]) as next_one:
        stage.pid = next_one.pid
        stage.look(STUCK + QUIET)
        assert stage.restarted == ["beat"]
        stage.look(STUCK)
        assert stage.restarted == ["beat", "beat"]
        assert len(stage.lines) == 1
        next_one.kill()


def test_one_that_ends_at_once_is_named_once_until_it_runs(stage: Stage) -> None:
    for state in ("BACKOFF", "STARTING", "BACKOFF", "FATAL", "STARTING"):
        stage.states["beat"] = state
        stage.look(5)
        assert stage.background.has_problem("beat")
    assert len(stage.lines) == 1
    assert stage.lines[0].startswith("beat does not start: the last line of beat")
    stage.marked("beat")
    stage.look()
    assert stage.lines[1:] == ["beat runs again"]
    assert stage.absent() == {}
    assert stage.restarted == []


def test_one_that_writes_its_log_on_a_slow_machine_gets_the_time_it_needs(stage: Stage) -> None:
    for number in range(20):
        stage.log("beat").write_text(number * "imported\n")
        stage.look(QUIET - 5)
    assert stage.lines == []
    assert not stage.background.all_run


def test_one_that_is_frozen_is_named_and_is_there_again_when_it_wakes(stage: Stage) -> None:
    stage.marked("beat")
    stage.look()
    assert stage.background.all_run
    stage.log("beat").write_text("what its log says is no sign of life any more")
    stage.look(QUIET + 1)
    assert not stage.background.all_run
    stage.marked("beat")
    stage.look()
    assert stage.background.all_run
    assert [line.split()[:2] for line in stage.lines] == [["beat", "has"], ["beat", "runs"]]
