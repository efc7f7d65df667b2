"""Redis servers for one test each, with options, stopped and started on one port."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import redis

from tests.node import free_port
from tests.services import redis_program


class ServerEnded(Exception):
    """The server did not stay: it does not take its options."""


class RedisServer:
    """A server with these options of redis-server, from `start` to `stop`, on one port."""

    def __init__(self, place: Path, *options: str, program: str = "") -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [
            *(program or redis_program(), "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(place), *options),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, password: str = "") -> None:
        """Start, and wait until it answers (at most ten seconds)."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        client = redis.Redis(port=self.port, password=password or None, socket_timeout=1)
        limit = time.monotonic() + 10
        while True:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                client.ping()
                client.close()
                return
            if self.process.poll() is not None:
                raise ServerEnded
            assert time.monotonic() < limit, "Redis did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def running(place: Path, *options: str, password: str = "") -> Iterator[RedisServer]:
    server = RedisServer(place, *options)
    try:
        server.start(password)
        yield server
    finally:
        server.stop()
