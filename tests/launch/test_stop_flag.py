"""Who is told to stop stops, however often and in the middle of whatever it is told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from msgnode.launch.stop_flag import StopFlag

ROOT = Path(__file__).resolve().parents[2]

# Tells itself to stop, and again in the middle of being told, before each line of `set`.
PROGRAM = """
import signal, sys
from msgnode.launch.stop_flag import StopFlag
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
