"""A real node for tests: `python -m msgnode.servers.main`, a free port, a directory of its own.

A node is started, stopped as an operator would (SIGTERM) or killed (SIGKILL), and started again on
the same directory and port. Its database is a copy of one that was migrated once a test run.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests import fork_server, waiting
from tests.client import Client
from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 110.0
MIGRATE_SECONDS = 300.0  # of a hundred steps, beside other tests
STOP_SECONDS = 120.0

# Nothing of the tests' own settings, and none of the caller's, reaches the node.
_DROPPED = frozenset(
    {"DJANGO_SETTINGS_MODULE", "NODE_MODE", "REDIS_URL", "DATABASE_URL", "SECRET_KEY"}
    | {"ALLOWED_HOSTS", "PORT", "HOST", "DOMAIN", "DATA_DIR"}
)


class Node:
    """One node. `settings` are environment variables, as in `.env.example`."""

    def __init__(self, data_dir: Path, **settings: object) -> None:
        self.data_dir = data_dir
        self.root = ROOT  # of the checkout that runs
        self.host = "127.0.0.1"
        self.port = free_port()
        self.inside: tuple[str, ...] = ()  # what it is started by, where that is another machine
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in _DROPPED},
            "DATA_DIR": str(data_dir),
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "DOMAIN": "localhost",
            "SECRET_KEY": "only for tests",
            **{name: str(value) for name, value in settings.items()},
        }
        self._process: fork_server.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def configure(self, **settings: object) -> None:
        """Further settings, from the next start on."""
        self._environment |= {name: str(value) for name, value in settings.items()}

    def migrate(self) -> None:
        """Make the tables of the database."""
        self.manage("migrate", "--verbosity", "0", seconds=MIGRATE_SECONDS)

    @property
    def environment(self) -> dict[str, str]:
        """What its programs are started with."""
        return dict(self._environment)

    def manage(self, *words: str, seconds: float = START_SECONDS) -> str:
        """What a management command prints, run with the node's settings."""
        done = fork_server.run(["manage.py", *words], self.root, self._environment, seconds)
        done.check_returncode()
        return done.stdout

    def publish(self, document: Path, *words: str) -> None:
        """Publish policies; they are in force at a node of one worker."""
        said = self.manage("policy_import", str(document), *words, "--publish")
        number = said.split("Version ")[1].split()[0]
        waiting.until(lambda: f"Policies of version {number} are in force" in self.log(), 60.0)

    def begin(self) -> None:
        """Start, and do not wait until the node is ready."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        words = ["-m", "msgnode.servers.main"]
        with (self.data_dir / "log").open("ab") as log:
            if self.inside:
                self._process = subprocess.Popen(
                    [*self.inside, sys.executable, *words], cwd=self.root, env=self._environment,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            else:
                output = log.fileno()
                self._process = fork_server.start(
                    words, self.root, self._environment, output, output
                )

    def start(self) -> Node:
        """Start, and return when the node says that it is ready."""
        self.begin()
        assert self._process is not None
        limit = time.monotonic() + START_SECONDS
        while self.get("/health/ready") != 200:
            assert self._process.poll() is None, f"the node ended:\n{self.log()}"
            assert time.monotonic() < limit, f"the node does not get ready:\n{self.log()}"
            time.sleep(0.02)
        return self

    def terminate(self) -> None:
        """Ask the node to stop; `status` waits until it has."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def status(self) -> int:
        """The exit status, waited for."""
        assert self._process is not None
        return self._process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it as a power cut would; nothing is written down any more."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def get(self, path: str) -> int:
        """The status of an HTTP request, 0 if nobody answers."""
        door = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            door.request("GET", path, headers={"Host": "localhost"})
            return door.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            door.close()

    def put(self, path: str, body: object) -> int:
        """The status of an HTTP request with a JSON body."""
        door = http.client.HTTPConnection(self.host, self.port, timeout=20)
        try:
            head = {"Host": "localhost", "Content-Type": "application/json"}
            door.request("PUT", path, json.dumps(body), head)
            return door.getresponse().status
        finally:
            door.close()

    def text(self, path: str) -> str:
        """The body of an HTTP answer."""
        door = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            door.request("GET", path, headers={"Host": "localhost"})
            return door.getresponse().read().decode()
        finally:
            door.close()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query finds in the node's database, if that is SQLite."""
        place = f"file:{self.data_dir / 'node.sqlite3'}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=20)) as database:
            return database.execute(query, values).fetchall()

    def log(self) -> str:
        return (self.data_dir / "log").read_text(errors="replace")

    # --- clients ----------------------------------------------------------------------------------

    def ws(self) -> Client:
        """A client of `/ws`, not yet connected: `async with node.ws() as client`."""
        return Client(f"ws://{self.host}:{self.port}/ws")

    def stub(self, runtime_url: str | None = None) -> Client:
        """A client of `/stub/connect`, with `?runtimeURL=` if a runtime URL is given."""
        return Client(f"ws://{self.host}:{self.port}/stub/connect", runtime_url)


@contextmanager
def running(data_dir: Path, template: Path | None = None, **settings: object) -> Iterator[Node]:
    """A node while the block runs; killed at its end.

    Args:
        data_dir: Its directory.
        template: A migrated database, which is copied unless DATABASE_URL names one that is
            migrated already. Without it the tables are made.
        settings: Of the node.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    node = Node(data_dir, **settings)
    if template is None:
        node.migrate()
    elif "DATABASE_URL" not in settings:
        shutil.copy(template, data_dir / "node.sqlite3")
    try:
        yield node.start()
    finally:
        node.kill()


async def eventually(seconds: float = 10.0) -> None:
    """A pause between two looks at something that no event announces."""
    await asyncio.sleep(min(0.02, seconds))
