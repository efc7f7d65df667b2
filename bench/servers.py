"""The servers that are compared: the node, and the bare relay on stock Daphne or the node's own."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from .processes import ROOT, Server, free_port
from .rules import document

NODE = "node daphne"
NODE_WITHOUT_RULES = "node daphne, no rules"
NODE_WITHOUT_RECORD = "node daphne, no record"
NODE_STRICT = "node daphne, strict"
NODE_RELAXED = "node daphne, any response"
BARE = "bare daphne"
BARE_FAST = "bare, the node's daphne"
_BARE = {BARE: "daphne", BARE_FAST: "fast"}


class Servers:
    """Makes servers whose files lie below one temporary directory.

    `root` has the files of the version that runs.
    """

    def __init__(self, directory: Path, root: Path = ROOT) -> None:
        self.directory = directory
        self.root = root
        self._made = 0
        self._template: Path | None = None

    def make(
        self,
        name: str,
        database_url: str = "",
        issuer: dict[str, Any] | None = None,
        **settings: str,
    ) -> Server:
        """A server of this name with a fresh database and the policy; not started yet. `issuer` is
        the row of one it believes (SQLite), `settings` are environment variables."""
        self._made += 1
        home = self.directory / f"{self._made}-{re.sub('[^a-z]+', '-', name)}"
        home.mkdir()
        port = free_port()
        if name in _BARE:
            arguments = ["-m", "bench.bare_relay", _BARE[name], str(port)]
            return Server(name, arguments, port, home / "log")
        environment = {**_node_environment(home, port, database_url), **settings}
        if name == NODE_WITHOUT_RECORD:
            environment["RECORD"] = "false"
        if name == NODE_WITHOUT_RULES:
            manage(environment, "migrate", "--verbosity", "0", root=self.root)
        else:
            self._prepare(environment, database_url)
        if issuer is not None:
            _insert(home / "node.sqlite3", "msgnode_issuer", issuer)
        if name == NODE_STRICT:
            environment["ADMISSION"] = "strict"
        if name == NODE_RELAXED:
            environment["STRICT_RESPONSES"] = "false"
        return self._node(name, port, home / "log", environment)

    def make_pair(
        self, redis_url: str, database_url: str = "", **settings: str
    ) -> tuple[Server, Server]:
        """Two workers of one node, each on a port of its own; not started yet."""
        self._made += 1
        home = self.directory / f"{self._made}-pair"
        home.mkdir()
        environment = {**_node_environment(home, free_port(), database_url), **settings}
        environment["REDIS_URL"] = redis_url
        self._prepare(environment, database_url)
        one, other = (self._worker(environment, home / f"log-{each}") for each in (1, 2))
        return one, other

    def _worker(self, environment: Mapping[str, str], log: Path) -> Server:
        port = free_port()
        return self._node(NODE, port, log, {**environment, "PORT": str(port)})

    def _node(self, name: str, port: int, log: Path, environment: Mapping[str, str]) -> Server:
        is_old = not (self.root / "msgnode" / "servers").exists()
        arguments = ["-m", "msgnode.server" if is_old else "msgnode.servers.main"]
        return Server(name, arguments, port, log, environment, root=self.root)

    def _prepare(self, environment: dict[str, str], database_url: str) -> None:
        """Tables and policy; for SQLite made once, other nodes begin with a copy."""
        database = Path(environment["DATA_DIR"]) / "node.sqlite3"
        if not database_url and self._template is not None:
            shutil.copyfile(self._template, database)
            return
        manage(environment, "migrate", "--verbosity", "0", root=self.root)
        policy = self.directory / "policy.json"
        policy.write_text(json.dumps(document()))
        manage(environment, "policy_import", str(policy), "--publish", root=self.root)
        if not database_url:
            self._template = self.directory / "template.sqlite3"
            with closing(sqlite3.connect(database)) as made:
                made.execute("VACUUM INTO ?", (str(self._template),))


def _insert(database: Path, table: str, row: dict[str, Any]) -> None:
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    with closing(sqlite3.connect(database)) as made, made:
        sql = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 (names of ours)
        made.execute(sql, list(row.values()))


def _node_environment(home: Path, port: int, database_url: str) -> dict[str, str]:
    return {
        "DATA_DIR": str(home),
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "DOMAIN": "localhost",
        "NODE_MODE": "embedded",
        "LOG_LEVEL": "WARNING",
        "DJANGO_SETTINGS_MODULE": "msgnode.settings",
        "DATABASE_URL": database_url or f"sqlite:///{home / 'node.sqlite3'}",
        "REDIS_URL": "",
    }


def manage(environment: Mapping[str, str], *arguments: str, root: Path = ROOT) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"The database cannot be prepared:\n{done.stderr[-2000:]}")
