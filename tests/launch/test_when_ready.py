"""What is run once the node is ready: its end is said, and it ends with the launcher."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from msgnode.launch.when_ready import VARIABLE, WhenReady

LIMIT = 20.0


def python(program: str) -> str:
    return shlex.join([sys.executable, "-c", program])


def until(is_so: Callable[[], bool], look: Callable[[], None]) -> None:
    end = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < end
        look()


@pytest.mark.parametrize(
    ("program", "told"), [("", "reports can be made"), ("raise SystemExit(3)", "ended with 3")]
)
def test_its_end_is_said_once(program: str, told: str) -> None:
    said: list[str] = []
    command = WhenReady(python(program), said.append)
    command.start()
    until(lambda: len(said) == 2, command.look)
    command.look()
    command.stop()
    assert told in said[1] and len(said) == 2


def test_it_ends_with_the_launcher() -> None:
    command = WhenReady(python("import time; time.sleep(600)"), lambda _: None)
    command.start()
    process = command._process
    assert process is not None
    command.stop()
    assert process.returncode


def test_what_it_has_started_ends_with_it_though_it_ignores_that() -> None:
    inner = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    command = WhenReady(python(outer), lambda _: None)
    command.start()
    assert command._process is not None
    process = psutil.Process(command._process.pid)
    until(lambda: bool(process.children()), lambda: None)
    (started,) = process.children()
    command.stop()
    until(lambda: not started.is_running() or started.status() == "zombie", lambda: None)


def test_a_program_that_there_is_not_is_said() -> None:
    said: list[str] = []
    command = WhenReady("/no/such/program", said.append)
    command.start()
    until(lambda: len(said) == 2, command.look)
    assert "there are no reports before it" in said[1]


def test_without_a_command_nothing_is_said_or_run() -> None:
    said: list[str] = []
    command = WhenReady("", said.append)
    command.start()
    command.look()
    command.stop()
    assert not said


def test_what_is_started_does_not_inherit_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "make setup")
    command = WhenReady.of_environment(lambda _: None)
    assert command._words == ["make", "setup"]
    assert VARIABLE not in os.environ
