"""Where supervisord is asked, whatever the data directory is called.

Who is told to stop stops, however often and in the middle of whatever it is told.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from msgnode.launch.programs import Programs
from msgnode.launch.stopping import StopFlag
from msgnode.resources import SHARED


@pytest.mark.parametrize(("letter", "is_in_data_dir"), [("u", True), ("ü", False)])
def test_a_path_that_is_too_long_for_a_socket_is_measured_in_bytes(
    letter: str, is_in_data_dir: bool
) -> None:
    data_dir = Path("/srv") / (60 * letter)
    programs = Programs(Path("supervisord.conf"), data_dir, 1)
    assert len(os.fsencode(programs._socket)) < 100
    assert (programs._socket.parent == data_dir) is is_in_data_dir
    programs._short.close()


READ = """
from supervisor.options import ServerOptions
options = ServerOptions()
options.realize(["-c", "supervisord.conf"])
print(options.logfile)
for group in options.process_group_configs:
    for program in group.process_configs:
        print(program.stdout_logfile)
"""


@pytest.mark.parametrize("name", ["100%", "a b", "Ü #1;"])
def test_supervisord_finds_the_logs_whatever_the_directory_is_called(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name / "logs").mkdir(parents=True)
    programs = Programs(SHARED / "supervisord.conf", tmp_path / name, 1)
    numbers = dict.fromkeys(("NODE_OWN_REDIS", "NODE_MORE_WORKERS"), "1")
    words = dict.fromkeys(("NODE_WORKER_NAME", "NODE_REDIS", "NODE_REDIS_CONF"), "x")
    done = subprocess.run(
        [sys.executable, "-c", READ],
        cwd=SHARED,
        env={"PATH": os.environ["PATH"], **programs.places(), **numbers, **words},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    logs = {Path(line) for line in done.stdout.splitlines()}
    assert {path.parent for path in logs} == {tmp_path / name / "logs"}
    assert {"supervisord.log", "node.log", "node-2.log", "redis.log"} <= {p.name for p in logs}


ROOT = Path(__file__).resolve().parents[2]

# Tells itself to stop, and again in the middle of being told, before each line of `set`.
PROGRAM = """
import signal, sys
from msgnode.launch.stopping import StopFlag
stop, told = StopFlag(), []

def handler(*_):
    told.append(1)
    stop.set()

def again(frame, event, _):
    if event == "line" and len(told) < 20:  # not for ever
        signal.raise_signal(signal.SIGINT)
    return again

signal.signal(signal.SIGTERM, handler)
signal.signal(signal.SIGINT, handler)
sys.settrace(lambda frame, *_: again if frame.f_code.co_name == "set" else None)
signal.raise_signal(signal.SIGTERM)
sys.settrace(None)
print(stop.wait(60.0), len(told) > 2)
"""


def test_being_told_again_in_the_middle_of_being_told_stops_nothing_but_the_program() -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT, text=True, capture_output=True, timeout=20, check=True,
    )  # fmt: skip
    assert told.stdout == "True True\n"


def test_a_wait_ends_when_it_is_told_and_when_its_time_is_over() -> None:
    stop = StopFlag()
    assert not stop.wait(0.0)
    signal.signal(signal.SIGALRM, lambda *_: stop.set())
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    began = time.monotonic()
    try:
        assert stop.wait(60.0)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert time.monotonic() - began < 30
    assert stop.wait(60.0)
