"""Where supervisord is asked, whatever the data directory is called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msgnode.launch.programs import Programs
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
