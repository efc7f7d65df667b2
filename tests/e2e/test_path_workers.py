"""Readiness of several workers: a message goes to each other one and back, and the trouble of one
is not the other's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pair import Pair
from tests.node import Node, running
from tests.waiting import until

pytestmark = pytest.mark.long

SETTINGS = {"PROBE_INTERVAL": 0.2, "PROBE_TIMEOUT": 5}  # as a machine that is busy needs it
ALARMS = "SELECT kind, subject, cleared_at IS NULL FROM msgnode_alarm WHERE kind = 'path-broken'"


@pytest.fixture
def pair(tmp_path: Path, template: Path, redis_url: str) -> Iterator[Pair]:
    shutil.copy(template, tmp_path / "node.sqlite3")
    both = Pair(tmp_path, REDIS_URL=redis_url, **SETTINGS)
    try:
        both.start()
        yield both
    finally:
        both.kill()


def health(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.text("/health/ready"))
    return found


def rows(place: Path, query: str) -> list[Any]:
    with sqlite3.connect(f"file:{place / 'node.sqlite3'}?mode=ro", uri=True) as database:
        return database.execute(query).fetchall()


def joined(node: Node) -> bool:
    return health(node)["workers"] == 2


def test_a_frozen_worker_leaves_the_other_ready_and_is_ready_only_where_it_is_joined(
    pair: Pair, tmp_path: Path
) -> None:
    until(lambda: joined(pair.one) and joined(pair.other), 20)
    os.kill(pair.other.pid, signal.SIGSTOP)
    try:
        limit = time.monotonic() + 8  # longer than each of the time-outs
        while time.monotonic() < limit:
            assert health(pair.one)["checks"]["path"], pair.one.log()[-2000:]
            time.sleep(0.2)  # the pace of a supervisor's questions
    finally:
        os.kill(pair.other.pid, signal.SIGCONT)
    until(lambda: (pair.other.get("/health/ready") == 200) == joined(pair.one), 30)
    assert health(pair.one)["checks"]["path"]
    mine = f":{pair.one.pid} to"
    assert [each for each in rows(tmp_path, ALARMS) if mine in each[1]] == []


def test_on_a_port_they_share_each_worker_finds_itself(
    tmp_path: Path, template: Path, redis_url: str
) -> None:
    with running(tmp_path, template, WORKERS=2, REDIS_URL=redis_url, **SETTINGS) as one:
        other = Node(tmp_path, WORKERS=2, REDIS_URL=redis_url, **SETTINGS)
        other.port = one.port
        other._environment["PORT"] = str(one.port)
        try:
            other.start()
            until(lambda: joined(one), 20)
            # Whoever of the two answers, after the first round of each.
            until(lambda: all(health(one)["checks"]["path"] for _ in range(40)), 60)
        finally:
            other.kill()
