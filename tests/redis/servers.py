"""Redis servers for one test each, with options, stopped and started on one port."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import redis

from tests import waiting
from tests.certificates import certificate
from tests.ports import free_cluster_port, free_port
from tests.services import redis_program


class ServerEnded(Exception):
    """The server did not stay: it does not take its options."""


class RedisServer:
    """A server with these options of redis-server, from `start` to `stop`, on one port."""

    def __init__(self, place: Path, *options: str, program: str = "") -> None:
        self.port = free_cluster_port() if "--cluster-enabled" in options else free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [
            *(program or redis_program(), "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(place), *options),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, password: str = "") -> None:
        """Start, and wait until it answers."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        _until_answers(self.process, self.port, password)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _until_answers(process: subprocess.Popen[bytes], port: int, password: str = "") -> None:
    """Wait for a server (at most thirty seconds). Raises ServerEnded."""
    client = redis.Redis(port=port, password=password or None, socket_timeout=1)
    limit = time.monotonic() + 30
    while True:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            with contextlib.suppress(redis.ResponseError):  # it is there, and too old for it
                client.ping()
            client.close()
            return
        if process.poll() is not None:
            raise ServerEnded
        assert time.monotonic() < limit, "Redis did not start"
        time.sleep(0.02)


class RedisCluster:
    """Three masters that share the slots, one of them with a replica."""

    def __init__(self, place: Path, *options: str) -> None:
        self.servers = []
        for number in range(4):
            own = place / f"server {number}"
            own.mkdir()
            enabled = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
            self.servers.append(RedisServer(own, *enabled, *options))

    @property
    def url(self) -> str:
        first, second, *_ = self.servers
        return f"redis+cluster://127.0.0.1:{first.port},127.0.0.1:{second.port}"

    def start(self) -> None:
        """Start, and wait until they are one (at most thirty seconds)."""
        for each in self.servers:
            each.start()
        clients = [redis.Redis(port=each.port, socket_timeout=5) for each in self.servers]
        first, *others = clients
        *masters, replica = clients
        share = 16384 // len(masters) + 1
        for number, master in enumerate(masters):
            slots = range(number * share, min((number + 1) * share, 16384))
            master.execute_command("CLUSTER ADDSLOTS", *slots)
        for other in self.servers[1:]:
            first.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        first_id = first.execute_command("CLUSTER MYID").decode()
        self._wait(lambda: all(len(_slots(each)) == 3 for each in clients))
        replica.execute_command("CLUSTER REPLICATE", first_id)
        self._wait(lambda: _is_whole(others) and "master_link_status:up" in _replication(replica))
        for client in clients:
            client.close()

    def stop(self) -> None:
        for each in self.servers:
            each.stop()

    @staticmethod
    def _wait(is_so: Callable[[], bool]) -> None:
        waiting.until(is_so, 30, lambda: "the servers did not become a cluster")


def _slots(client: redis.Redis) -> list[object]:
    found: list[object] = client.execute_command("CLUSTER SLOTS")
    return found


def _is_whole(clients: list[redis.Redis]) -> bool:
    """Whether each knows of all slots, and of the replica."""
    state = [each.execute_command("CLUSTER INFO") for each in clients]
    is_ok = all("cluster_state:ok" in str(each) or _is_ok(each) for each in state)
    return is_ok and all(any(len(row) > 3 for row in _slots(each)) for each in clients)  # type: ignore[arg-type]


def _is_ok(info: object) -> bool:
    return isinstance(info, dict) and info.get("cluster_state") == "ok"


def _replication(client: redis.Redis) -> str:
    return "\n".join(f"{name}:{value}" for name, value in client.info("replication").items())


@contextlib.contextmanager
def running(place: Path, *options: str, password: str = "") -> Iterator[RedisServer]:
    server = RedisServer(place, *options)
    try:
        server.start(password)
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def sentinel(place: Path, master: int) -> Iterator[int]:
    """The port of a sentinel that watches the master on a port as `nodes`."""
    port = free_port()
    configuration = place / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {place}\n"
        f"sentinel monitor nodes 127.0.0.1 {master} 1\n"
        "sentinel down-after-milliseconds nodes 500\nsentinel failover-timeout nodes 2000\n"
    )
    command = [redis_program(), str(configuration), "--sentinel"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _until_answers(process, port)
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def with_tls(place: Path) -> Iterator[str]:
    """The URL of a server that takes TLS only. Raises ServerEnded if it was built without."""
    chain, key, _ = certificate(place)
    port = free_port()
    tls = (
        *("--tls-port", str(port), "--tls-cert-file", str(chain)),
        *("--tls-key-file", str(key), "--tls-auth-clients", "no"),
    )
    with running(place, *tls):
        yield f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={chain}"
