"""A tied program ends with its parent, and otherwise is what it would have been."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]

# A parent that starts a tied child, says the child's process id and waits to be killed.
PARENT = """
import subprocess, sys
tied = [sys.executable, "-m", "msgnode.launch.pdeathsig", "KILL"]
child = subprocess.Popen([*tied, sys.executable, "-c", "print('up', flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


def test_a_killed_parent_takes_its_program_along() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.ppid() == parent.pid
        parent.kill()
    gone, alive = psutil.wait_procs([child], timeout=10)
    assert alive == []


def test_arguments_environment_and_status_pass_through() -> None:
    program = "import os, sys; print(sys.argv[1:], os.environ['MARK']); sys.exit(7)"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "msgnode.launch.pdeathsig", "TERM"),
            *(sys.executable, "-c", program, "a b", "c"),
        ],
        cwd=ROOT,
        env={**os.environ, "MARK": "here"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout.strip(), done.returncode) == ("['a b', 'c'] here", 7)
