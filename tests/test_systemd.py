"""The units of deploy/systemd: systemd takes them, they are shut in, and what they start serves.

Nothing here is started by systemd itself, which has to be the first process of a machine: the units
are checked by systemd-analyze, and their commands are run with their environment, unable to make
memory executable where the unit forbids that.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from msgnode.launch.pdeathsig import tie
from tests.databases import database
from tests.node import ROOT, free_port
from tests.production import settings
from tests.services import needs_program
from tests.waiting import until

UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
SERVICES = [path for path in UNITS if path.suffix == ".service"]
EXPOSURE = 20  # tenths; systemd calls what is below 2.5 OK
PROGRAMS = {
    "/opt/messaging-node/bin/python": sys.executable,
    "/opt/messaging-node/bin/messaging-node": f"{sys.executable} {ROOT / 'manage.py'}",
}
PR_SET_MDWE = 65


def analyze(*words: object) -> None:
    needs_program("systemd-analyze")
    done = subprocess.run(
        ["systemd-analyze", *map(str, words)], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """With programs that are there in the place of those that an installation has."""
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        for ours in PROGRAMS:
            text = text.replace(ours, str(shutil.which("true")))
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    analyze("verify", "--man=no", *sorted(tmp_path.iterdir()))


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.stem)
def test_a_service_may_do_little(unit: Path) -> None:
    analyze("security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", unit)


def settings_of(unit: Path) -> dict[str, str]:
    """The lines of a unit; the words of several of one name are joined."""
    told: dict[str, str] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        name, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            told[name] = f"{told[name]} {value}" if name in told else value
    return told


def test_an_upgrade_migrates_and_a_database_that_comes_late_keeps_nothing_from_starting() -> None:
    """What is required takes others with it when it fails or is restarted."""
    target = (ROOT / "deploy" / "systemd" / "messaging-node.target").read_text(encoding="utf-8")
    for unit in SERVICES:
        told = settings_of(unit)
        assert "Requires" not in told, unit.name
        assert told["PartOf"] == "messaging-node.target", unit.name  # stopped and started with it
        if unit.stem != "messaging-node-migrate":
            assert "messaging-node-migrate.service" in told["Wants"].split(), unit.name
            assert "messaging-node-migrate.service" in told["After"].split(), unit.name
            assert told["Restart"] == "always", unit.name
        else:
            assert told["Restart"] == "on-failure"
    assert "-migrate" not in target  # only who serves wants it, and waits for it


class Started:
    """The services of a node, started as their units say."""

    def __init__(self, place: Path, common: dict[str, str]) -> None:
        self.place = place
        self.common = common
        self._stack = ExitStack()

    def command(self, unit: str, **specifiers: str) -> tuple[list[str], dict[str, str], bool]:
        """Command, environment, and whether memory may not be made executable."""
        told = settings_of(ROOT / "deploy" / "systemd" / f"messaging-node{unit}.service")
        line, variables = told["ExecStart"], told["Environment"]
        for name, value in specifiers.items():
            line, variables = (text.replace(f"%{name}", value) for text in (line, variables))
        for ours, theirs in PROGRAMS.items():
            line = line.replace(ours, theirs)
        assert "%" not in line + variables
        assert told["StateDirectory"] == "messaging-node"
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = dict(each.split("=", 1) for each in shlex.split(variables))
        environment |= {"DATA_DIR": str(self.place), "PYTHONPATH": str(ROOT)}
        return (
            shlex.split(line),
            {**kept, **self.common, **environment},
            told.get("MemoryDenyWriteExecute") == "yes",
        )

    def start(self, unit: str, port: int = 0, **specifiers: str) -> subprocess.Popen[bytes]:
        command, environment, is_denied = self.command(unit, **specifiers)
        if port:
            environment["PORT"] = str(port)
        with (self.place / f"{unit}{port}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=self.place, stdout=log, stderr=log,
                preexec_fn=lambda: shut_in(is_denied),
            )  # fmt: skip
        self._stack.callback(process.wait, 20)
        self._stack.callback(process.kill)
        return process

    def stop(self) -> None:
        self._stack.close()


def shut_in(is_denied: bool) -> None:
    """Nobody outlives the test; no memory that is both written and run, where the kernel can."""
    import signal

    tie(signal.SIGKILL)
    if is_denied:
        ctypes.CDLL(None).prctl(PR_SET_MDWE, 1, 0, 0, 0)


@pytest.fixture
def node(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[Started]:
    with database(postgres_url) as url:
        made = Started(tmp_path, settings(url, redis_url))
        try:
            yield made
        finally:
            made.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_the_units_start_serves(node: Started) -> None:
    assert node.start("-migrate").wait(200) == 0, (node.place / "-migrate0.log").read_text()
    ports = free_port(), free_port(), free_port()
    processes = [
        node.start("@", ports[0], i="8000"),
        node.start("@", ports[1], i="8001"),
        node.start("-web", ports[2]),
        node.start("-worker", H=socket.gethostname()),
        node.start("-beat"),
    ]

    def said() -> str:
        return "\n".join(log.read_text()[-2000:] for log in node.place.glob("*.log"))

    def is_ready(port: int) -> Callable[[], bool]:
        def look() -> bool:
            assert [process.poll() for process in processes] == [None] * len(processes), said()
            try:
                answer = httpx.get(
                    f"http://127.0.0.1:{port}/health/ready", headers={"Host": "localhost"},
                    trust_env=False,
                )  # fmt: skip
            except httpx.TransportError:
                return False
            return answer.status_code == 200 and answer.json()["workers"] == 2

        return look

    for port in ports:
        until(is_ready(port), 100, said)
    until(lambda: b" ready." in (node.place / "-worker0.log").read_bytes(), 100, said)
    until((node.place / "beat.started").exists, 100, said)
    for process in processes:
        process.terminate()
    assert [process.wait(40) for process in processes[:3]] == [0, 0, 0], said()
