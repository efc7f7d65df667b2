"""A fork of the server is what a process of its own would be, and outlives nobody."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import fork_server, waiting
from tests.fork_server import ROOT, Forked

PROGRAM = """
import atexit, json, os, signal, sys, threading
atexit.register(print, "at its end")
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "cwd": os.getcwd(), "path": sys.path[0],
    "environ": dict(os.environ), "main": __name__,
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "threads": threading.active_count(), "django": "django.core.management" in sys.modules,
    "signals": [signal.getsignal(each) == signal.default_int_handler for each in (2,)],
    "read": sys.stdin.read(),
}))
"""
WAITS = "import sys, time\nprint('up', flush=True)\ntime.sleep(600)"
ENDS = """
import os, subprocess, sys, tempfile
from pathlib import Path
from tests import fork_server
with tempfile.TemporaryFile() as out:
    child = fork_server.start([sys.argv[1]], fork_server.ROOT, os.environ, 1, 2)
print(child.pid, fork_server._server()._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    return str(tmp_path / "program.py")


def is_forked(environment: dict[str, str], cwd: Path = ROOT) -> bool:
    with tempfile.TemporaryFile() as out:
        process = fork_server.start(
            ["-m", "json.tool", "--help"], cwd, environment, out.fileno(), out.fileno()
        )
        assert process.wait(60) == 0
    return isinstance(process, Forked)


def test_a_fork_is_as_a_process_of_its_own(program: str) -> None:
    given = {**os.environ, "DATA_DIR": "/there"}
    done = fork_server.run([program, "a b"], ROOT, given, 60, "what it reads")
    line, _, last = done.stdout.partition("\n")
    assert done.returncode == 0 and done.stderr == "" and last == "at its end\n"
    assert json.loads(line) == {
        "argv": [program, "a b"], "orig_argv": [program, "a b"], "cwd": str(ROOT),
        "path": str(ROOT), "environ": given, "main": "__main__", "descriptors": [0, 1, 2],
        "threads": 1, "django": True, "signals": [True], "read": "what it reads",
    }  # fmt: skip


@pytest.mark.parametrize(
    "change", [{"PYTHONUTF8": "1"}, {"LC_ALL": "C"}, {"COVERAGE_PROCESS_START": "x"}, {}]
)
def test_what_is_read_before_a_fork_takes_a_process_of_its_own(change: dict[str, str]) -> None:
    assert is_forked({**os.environ, **change}) is (not change)


def test_forks_and_server_end_with_the_tests(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WAITS)
    ended = subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path / "program.py")],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=100,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL
    pids = [int(word) for word in re.findall(r"\d+", ended.stdout)]  # beside "up" of the others
    assert len(pids) == 2
    waiting.until(lambda: not any(_runs(pid) for pid in pids), 60.0)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
