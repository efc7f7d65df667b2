"""Two workers of one node, on a Redis and a database they have in common."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Self

import redis

from tests import waiting
from tests.client import Client, runtime
from tests.node import Node, free_port
from tests.services import redis_program

_STARTED_WITHIN = 20.0  # seconds until a Redis answers


class Pair:
    """Two workers, each on a port of its own so that a test can choose."""

    def __init__(self, place: Path, **settings: object) -> None:
        common = {"WORKERS": 2, "WORKER_TIMEOUT": 3, **settings}
        self.one, self.other = Node(place, **common), Node(place, **common)
        self._stack = AsyncExitStack()

    def start(self) -> None:
        self.one.start()
        self.other.start()

    def kill(self) -> None:
        self.one.kill()
        self.other.kill()

    async def come(self, to: Node, runtime_url: str = "") -> Client:
        client = await self._stack.enter_async_context(to.ws())
        return await client.open(runtime_url or runtime())

    async def back(self, to: Node, before: Client) -> Client:
        """The runtime of `before` resumes its session at a worker, which may say to try again."""
        client = await self._stack.enter_async_context(to.ws())
        return await client.resume(before)

    async def leave(self) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Both, while the block runs; who has come leaves behind it, if it has not failed."""
        try:
            self.start()
            yield self
            await self.leave()
        finally:
            self.kill()


class OwnRedis:
    """A Redis that a test may stop and start again, on one port."""

    def __init__(self, place: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                *(redis_program(), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--dir", str(self._place)),
            ],
            stdout=subprocess.DEVNULL,
        )
        with closing(redis.Redis(port=self.port, socket_timeout=1)) as client:
            waiting.until(lambda: _answers(client), _STARTED_WITHIN, every=0.02)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def running(place: Path, template: Path, **settings: object) -> Iterator[Pair]:
    """Two workers while the block runs, on a Redis of their own and a copy of a database."""
    shutil.copy(template, place / "node.sqlite3")
    redis = OwnRedis(place)
    both = Pair(place, REDIS_URL=redis.url, **settings)
    try:
        redis.start()
        both.start()
        yield both
    finally:
        both.kill()
        redis.stop()


def _answers(client: redis.Redis) -> bool:
    with suppress(redis.RedisError):
        return bool(client.ping())
    return False


@contextmanager
def frozen(process: Node | OwnRedis) -> Iterator[None]:
    """A worker, or Redis, that does nothing at all while the block runs."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        while isinstance(process, Node) and _database_is_locked(process):  # the other needs it
            os.kill(process.pid, signal.SIGCONT)
            os.kill(process.pid, signal.SIGSTOP)
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def _database_is_locked(node: Node) -> bool:
    """Whether a process keeps SQLite's lock, which a worker at work does for a moment only."""
    with closing(sqlite3.connect(node.data_dir / "node.sqlite3", timeout=2.0)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        database.rollback()
        return False
