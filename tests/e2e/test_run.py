"""`manage.py run` and `make run`: one command starts everything and leaves nothing."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from msgnode.launch.readiness import read_address
from tests import waiting
from tests.e2e.launched import Launched, command_of
from tests.services import free_port


@pytest.fixture
def data(tmp_path: Path, template: Path) -> Path:
    """A node's directory with a migrated database: its start is not about the tables."""
    place = tmp_path / "data"
    place.mkdir()
    shutil.copy(template, place / "node.sqlite3")
    return place


@pytest.mark.long
def test_it_says_ready_once_everything_answers_and_leaves_nothing_behind_twice(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / ("long " * 20)  # longer than the path of a Unix socket may be
    port = free_port()
    with Launched(data_dir, port) as node:
        line = node.line_with("ready:")
        assert node.get("/health/ready") == 200  # whatever is still to start
        node.line_with("in the background: worker and beat")
        place = f"127.0.0.1:{port}"
        assert node.get("/") == 200
        for address in (f"http://{place}/", f"http://{place}/admin/", f"ws://{place}/ws"):
            assert address in line.split()
        assert node.get("/health/live") == 200
        assert node.get("/health/ready") == 200
        assert read_address(data_dir) == (place, "localhost")
        for words in ("supervisord", "msgnode.servers.main", "msgnode worker", "msgnode beat"):
            assert node.program(words).is_running()
        _ends(node, signal.SIGTERM)
        assert _tells(node) == (True, True), node.text()
    assert read_address(data_dir) is None
    assert stat.S_IMODE((data_dir / "secret_key").stat().st_mode) == 0o600
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700, "personal data is in it"

    with Launched(data_dir, port) as node:
        node.ready()
        _ends(node, signal.SIGINT)
        assert _tells(node) == (False, False), node.text()


def _ends(node: Launched, turn: signal.Signals) -> None:
    """Told to, it stops as it should and leaves no process."""
    node.signal(turn)
    assert node.status() == 0, node.text()
    assert node.survivors() == []
    assert "Traceback" not in node.text()


def _tells(node: Launched) -> tuple[bool, bool]:
    """Whether it has made the tables, and told a password."""
    assert "starting: node, worker, beat" in node.lines
    is_prepared = any(line.startswith("preparing:") for line in node.lines)
    return is_prepared, bool(re.search(r"password \S{16} ", node.text()))


@pytest.mark.long
def test_a_second_node_is_started_beside_the_first_with_one_word(tmp_path: Path) -> None:
    port = free_port(beside=1)  # the first's
    command = (sys.executable, "manage.py", "run", "--second")
    with Launched(tmp_path / "data", port, command) as node:
        line = node.line_with("two domains:")
        named = f"?with=second.localhost@http://localhost:{port + 1}"
        assert line == f"two domains: http://localhost:{port}/{named}#two-domains"
        second = tmp_path / "data" / "second"
        assert read_address(second) == (f"127.0.0.1:{port + 1}", "second.localhost")
        node.signal(signal.SIGTERM)
        assert node.status() == 0, node.text()
        assert node.survivors() == []
    assert not (tmp_path / "data" / "node.sqlite3").exists()


@pytest.mark.long
def test_a_port_in_use_is_named_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Launched(tmp_path / "data", port) as node:
            assert node.status() == 1
    (line,) = node.lines
    assert line.startswith(f"CommandError: port {port} of 127.0.0.1 is in use. Stop what listens")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        # short: read before Django, by its checks, and by asking a server
        ("PORT", "http", "PORT cannot be read"),
        ("DOMAIN", "http://example.org", "(msgnode.E002) DOMAIN 'http://example.org'"),
        ("DATA_DIR", "/dev/null/data", "Not a directory: '/dev/null/data"),
        ("DATABASE_URL", "nonsense", "DATABASE_URL is not the URL of a database"),
        pytest.param(
            "DATABASE_URL",
            "postgres://node:secret@127.0.0.1:1/node",
            "the database refuses",
            marks=pytest.mark.long,
        ),
        ("REDIS_URL", "redis://:secret@127.0.0.1:1/0", "Redis at redis://:…@127.0.0.1:1/0"),
        ("NODE_MODE", "prod", "NODE_MODE is 'prod'"),
        ("ROLE", "www", "ROLE is 'www'"),
    ],  # fmt: skip
)
def test_a_broken_setting_is_named(tmp_path: Path, name: str, value: str, said: str) -> None:
    with Launched(tmp_path / "data", free_port(), environment={name: value}) as node:
        assert node.status() == 1
    assert said in node.text()
    assert "Traceback" not in node.text()
    assert "secret" not in node.text()


def test_a_database_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    place = tmp_path / "data" / "node.sqlite3"
    place.parent.mkdir()
    place.write_bytes(b"of another program " * 1_000)
    with Launched(place.parent, free_port()) as node:
        assert node.status() == 1
    assert f"the database {place} refuses: file is not a database" in node.text()
    assert "Traceback" not in node.text()


@pytest.mark.long
def test_it_runs_on_postgresql_and_redis(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    production = {
        "NODE_MODE": "production",
        "DATABASE_URL": postgres_url,
        "REDIS_URL": redis_url,
        "SECRET_KEY": "a key of fifty characters or more for this one test",
        "ALLOWED_HOSTS": "console.example.org,localhost",
    }
    with Launched(tmp_path, free_port(), environment=production) as node:
        node.ready()
        assert node.get("/health/ready") == 200
        node.signal(signal.SIGTERM)
        assert node.status() == 0, node.text()
        assert node.survivors() == []
    assert not (tmp_path / "node.sqlite3").exists()
    assert not (tmp_path / "secret_key").exists()


@pytest.mark.long
def test_a_second_node_in_the_same_place_is_refused_and_nothing_survives_a_killed_supervisord(
    data: Path,
) -> None:
    with Launched(data, free_port()) as node:
        node.ready()
        with Launched(data, free_port()) as second:
            assert second.status() == 1
            assert f"a node already runs in {data} (process {node.pid})" in second.text()
        assert node.get("/health/ready") == 200
        node.program("supervisord").kill()
        assert node.status() == 1
        assert "supervisord ended" in node.text()
        assert node.survivors(60) == []


ENDS_AT_ONCE = """import os, sys
if "celery" in sys.orig_argv and "msgnode.launch.pdeathsig" not in sys.orig_argv:
    print("no room for Celery", flush=True)
    os._exit(1)
"""


@pytest.mark.long
def test_the_node_serves_while_worker_and_beat_cannot_start(tmp_path: Path, data: Path) -> None:
    fault = tmp_path / "sitecustomize.py"
    fault.write_text(ENDS_AT_ONCE)
    with Launched(data, free_port(), environment={"PYTHONPATH": str(tmp_path)}) as node:
        node.line_with("ready:")
        said = {node.line_with("does not start: no room for Celery") for _ in range(2)}
        assert {line.partition(" ")[0] for line in said} == {"beat", "worker"}
        waiting.until(lambda: len(_alarms(data)) == 2, 30)
        assert all(str(data / "logs") in text for text in _alarms(data).values())
        assert _ready(node) == (200, False)
        fault.unlink()
        node.line_with("in the background:")
        waiting.until(lambda: _ready(node) == (200, True), 30)
        waiting.until(lambda: not _alarms(data), 30)
        assert node.text().count("does not start") == 2, "one line for each"
        node.signal(signal.SIGTERM)
        assert node.status() == 0, node.text()


def _ready(node: Launched) -> tuple[int, bool]:
    """The status of /health/ready, and whether the background jobs run."""
    with httpx.Client(headers={"Host": "localhost"}, timeout=10) as client:
        said = client.get(f"http://127.0.0.1:{node.port}/health/ready")
    return said.status_code, said.json()["checks"]["jobs"]


def _alarms(data: Path) -> dict[str, str]:
    """The alarms about worker and beat that stand: their texts by subject."""
    with closing(sqlite3.connect(data / "node.sqlite3", timeout=10)) as database:
        rows = database.execute(
            "SELECT subject, text FROM msgnode_alarm"
            " WHERE kind = 'background-stopped' AND cleared_at IS NULL"
        )
        return dict(rows.fetchall())


@pytest.mark.long
@pytest.mark.parametrize("turn", [signal.SIGTERM, signal.SIGINT], ids=lambda turn: turn.name)
def test_it_stops_when_make_is_told_to(data: Path, turn: signal.Signals) -> None:
    binaries = Path(sys.executable).parent
    make = ("make", "--old-file=.venv/.start", f"BIN={binaries}", "run")
    with Launched(data, free_port(), command=make) as node:
        node.ready()
        node.signal(turn)
        assert node.status() == -turn  # as make does, after its child has ended
        assert "stopped" in node.text()
        assert "Warning" not in node.text()
        assert node.survivors() == []


@pytest.mark.long
def test_several_workers_share_a_port_and_a_redis_and_what_ends_is_started_again(
    data: Path,
) -> None:
    with Launched(data, free_port(), environment={"WORKERS": "2"}) as node:
        node.ready()
        for words in ("redis-server", "msgnode.servers.main"):
            assert node.program(words).is_running()
        nodes = [one for one in node.family if _serves(command_of(one))]
        assert len(nodes) == 2
        nodes[0].kill()
        node.line_with("ended and was started again")
        node.program("msgnode beat").kill()
        assert "beat has ended" in node.line_with("it is tried again")
        assert "beat runs again" in node.line_with("runs again")
        node.program("msgnode beat").suspend()  # as one that misses the signal
        node.signal(signal.SIGINT)
        assert node.status(15) == 0, node.text()
        assert node.survivors() == []
    assert stat.S_IMODE((data / "redis.conf").stat().st_mode) == 0o600


def _serves(command: list[str]) -> bool:
    return command[1:] == ["-m", "msgnode.servers.main"]
