"""DATA_DIR is full: what needs a commit is answered 503, messages go on, with the space all comes
back by itself; supervision survives it. On a small file system in memory, which root can mount."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from msgnode.launch.programs import Programs
from tests import waiting
from tests.client import ALLOCATION, REGISTRY, Client, code
from tests.e2e.launched import Launched
from tests.node import START_SECONDS, Node, free_port, running

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        failed = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        failed = str(error)
    if failed:
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(f"A tmpfs must be mounted here: {failed}")
        pytest.skip(f"no small file system could be mounted: {failed}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False, timeout=20)


def fill(place: Path) -> Path:
    """Leave no byte; the file that takes them."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1024 * 1024, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return filler


async def test_a_full_disk_is_answered_503_and_forgotten_with_the_space(
    small_disk: Path, template: Path
) -> None:
    with running(small_disk / "node", template, RECORD_MIN_FREE_BYTES=0) as node:
        async with node.ws() as one, node.ws() as other:
            await one.open()
            await other.open()
            filler = fill(small_disk)
            body = {"scheme": "comm", "value": {"number": 200}}
            codes = {code(await one.ask("create", ALLOCATION, body)) for _ in range(5)}
            assert 503 in codes <= {200, 503}
            number, entry = 0, await register(one, 0)
            while entry["code"] == 200 and number < 500:  # what there is room for yet
                number += 1
                entry = await register(one, number)
            assert entry["code"] == 503
            assert "disk is full" in entry["description"]
            refused = await asyncio.to_thread(put, node, number)
            assert refused.code == 503
            assert refused.headers["Retry-After"] == "5"
            assert "disk is full" in json.loads(refused.read())["detail"]
            id_ = await one.send("update", other.runtime_url, {"value": "still here"})
            await other.expect(id=id_)
            assert node.is_running()
            filler.unlink()
            asking = partial(one.ask, "create", ALLOCATION, body)
            await waiting.seen(asking, lambda answer: code(answer) == 200)
            assert node.get("/health/ready") == 200


def put(node: Node, number: int) -> urllib.error.HTTPError:
    """How a registration over HTTP is refused."""
    key = base64.urlsafe_b64encode(f"hyperty://localhost/{number}".encode()).decode().rstrip("=")
    url = f"http://127.0.0.1:{node.port}/api/v1/hyperties/{key}"
    body = json.dumps(entry(number, "runtime://localhost/r")).encode()
    request = urllib.request.Request(  # noqa: S310 (http:)
        url, body, {"Content-Type": "application/json"}, method="PUT"
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)  # noqa: S310
    return refused.value


async def register(client: Client, number: int) -> dict[str, Any]:
    """The body of the answer; a few such entries do not fit into what is left over."""
    value = entry(number, client.runtime_url)
    answer = await client.ask("create", REGISTRY, {"value": value})
    return dict(answer["body"])


def entry(number: int, runtime: str) -> dict[str, Any]:
    return {
        "user": "user://localhost/alice",
        "url": f"hyperty://localhost/{number}",
        "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Chat" + "x" * 1900,
        "expires": 3600,
        "status": "live",
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        "runtime": runtime,
    }


def test_a_node_that_is_started_on_a_full_disk_names_it(small_disk: Path) -> None:
    fill(small_disk)
    with Launched(small_disk / "node", free_port()) as node:
        assert node.status() != 0
        assert "No space left on device" in node.text()
        assert str(small_disk) in node.text()
        assert "Traceback" not in node.text()


def test_a_worker_that_is_started_again_on_a_full_disk_names_it_and_comes_back_with_the_space(
    small_disk: Path, template: Path
) -> None:
    with running(small_disk / "node", template, RECORD_MIN_FREE_BYTES=0) as node:
        node.terminate()  # which leaves no log of the database to write into
        assert node.status() == 0
        filler = fill(small_disk)
        worker = [sys.executable, "-m", "msgnode.servers.main"]
        tried = subprocess.run(
            worker, cwd=ROOT, env=node.environment, capture_output=True, text=True,
            check=False, timeout=START_SECONDS,
        )  # fmt: skip
        assert tried.returncode != 0
        assert f"the disk of DATA_DIR {small_disk / 'node'} is full" in tried.stderr
        filler.unlink()
        node.start()
        assert node.get("/health/ready") == 200


CONFIGURATION = """
[supervisord]
nodaemon=true
silent=true
pidfile=%(ENV_NODE_DATA_DIR)s/supervisord.pid
logfile=%(ENV_NODE_DATA_DIR)s/logs/supervisord.log
logfile_maxbytes=1MB
[unix_http_server]
file=%(ENV_NODE_CONTROL_SOCKET)s
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[program:chatter]
command=%(ENV_NODE_PYTHON)s -m msgnode.launch.pdeathsig KILL sh %(here)s/chatter.sh
stdout_logfile=%(ENV_NODE_DATA_DIR)s/logs/chatter.log
[program:mortal]
command=%(ENV_NODE_PYTHON)s -m msgnode.launch.pdeathsig KILL sleep 0.3
startsecs=0
autorestart=true
"""


CHATTER = "while :; do head -c 3000 /dev/zero | tr '\\0' x; echo; sleep 0.01; done"


def test_supervision_survives_a_disk_that_is_full_for_its_logs(small_disk: Path) -> None:
    (small_disk / "logs").mkdir()
    configuration = small_disk / "supervisord.conf"
    configuration.write_text(CONFIGURATION)
    (small_disk / "chatter.sh").write_text(CHATTER)
    programs = Programs(configuration, small_disk, 5.0)
    with (small_disk / "lock").open("w") as lock:
        programs.start({"PYTHONPATH": str(ROOT)}, lock)
        try:
            waiting.until(lambda: len(programs.look()) == 2, 30)
            filler = fill(small_disk)
            before = {each.pid for each in programs.look() if each.name == "mortal"}
            for _ in range(20):  # it goes on restarting what ends, and would log each of them
                waiting.until(lambda seen=before: mortal(programs) not in {0, *seen}, 30)
                before.add(mortal(programs))
            filler.unlink()
            size = (small_disk / "logs" / "chatter.log").stat().st_size
            waiting.until(lambda: (small_disk / "logs" / "chatter.log").stat().st_size > size, 30)
            before.add(mortal(programs))
            waiting.until(lambda: mortal(programs) not in {0, *before}, 30)
        finally:
            programs.stop()


def mortal(programs: Programs) -> int:
    return next((each.pid for each in programs.look() if each.name == "mortal"), 0)
