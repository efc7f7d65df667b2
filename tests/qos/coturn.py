"""A real coturn for a test, from the configuration that is shipped, and clients of it."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgnode.launch.pdeathsig import tie
from msgnode.qos import turn_servers
from msgnode.qos.turn_servers import connected
from tests.node import ROOT, free_port
from tests.services import needs_program

SHIPPED = ROOT / "deploy" / "coturn" / "turnserver.conf"
PASSWORD = "command line of the test"
_OF_THE_SITE = frozenset(
    {
        *("realm", "listening-port", "tls-listening-port", "min-port", "max-port", "cert", "pkey"),
        *("redis-userdb", "redis-statsdb", "cli-port", "cli-password", "syslog", "user-quota"),
    }
)


class Coturn:
    """One process. `relays_here` lets it relay to this machine, where all peers of tests are."""

    def __init__(
        self, place: Path, redis_port: int, *, relays_here: bool = True, **more: object
    ) -> None:
        self.port, self.cli_port = free_port(), free_port()
        self._log = place / f"coturn-{self.port}.log"
        self._conf = place / f"coturn-{self.port}.conf"
        lines = [
            line
            for line in SHIPPED.read_text().splitlines()
            if line.partition("=")[0] not in _OF_THE_SITE
            and not (relays_here and line.startswith("denied-peer-ip="))
        ]
        database = f'"ip=127.0.0.1 port={redis_port} dbname=0"'
        lines += [
            *("listening-ip=127.0.0.1", "relay-ip=127.0.0.1", f"listening-port={self.port}"),
            *("realm=localhost", "min-port=40000", "max-port=48000", "no-tls", "no-dtls"),
            *(f"redis-userdb={database}", f"redis-statsdb={database}", "user-quota=20"),
            *(f"cli-port={self.cli_port}", f"cli-password={PASSWORD.replace(' ', '-')}"),
            *("log-file=stdout", f"pidfile={place}/coturn-{self.port}.pid"),
            *(["allow-loopback-peers"] if relays_here else []),
            *(f"{name.replace('_', '-')}={value}" for name, value in more.items()),
        ]
        self._conf.write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"turn:127.0.0.1:{self.port}?transport=udp"

    def start(self) -> None:
        """Start, and wait until it answers STUN (at most 20 seconds)."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                ["turnserver", "-c", str(self._conf)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=lambda: tie(signal.SIGKILL),
            )
        limit = time.monotonic() + 20
        while not _answers(self.port):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < limit, self.log()

    def send(self, what: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(what)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def number_running(self) -> int:
        """Sessions that run here; in a thread of its own, because a test may run a loop in its."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(self._count())).result()

    async def _count(self) -> int:
        place = f"127.0.0.1:{self.cli_port}"
        async with connected(place, PASSWORD.replace(" ", "-")) as cli:
            return len((await cli.sessions()).sessions)

    def log(self, most: int = 3000) -> str:
        """The last of what it has said."""
        return self._log.read_text(errors="replace")[-most:]

    def row(self, **more: Any) -> str:
        """The program that enters it in a node's console."""
        fields = {"capacity": 5_000_000, "name": f"t{self.port}", **more}
        words = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        return (
            "from msgnode.qos.models import *\n"
            "from msgnode.identity.encryption import encrypt\n"
            f"TurnServer.objects.create(urls={self.url!r}, {words}, "
            f"command_line='127.0.0.1:{self.cli_port}', "
            f"sealed_password=encrypt({PASSWORD.replace(' ', '-')!r}))\n"
        )


def _answers(port: int) -> bool:
    """In a thread of its own, because a test may run a loop in this one."""
    place = turn_servers.Place("127.0.0.1", port, True)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(turn_servers.answers(place))).result()


@contextmanager
def running(place: Path, redis_port: int, **options: Any) -> Iterator[Coturn]:
    needs_program("turnserver")
    server = Coturn(place, redis_port, **options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class TalkResult:
    """What turnutils_uclient says of its packets."""

    def __init__(self, said: str) -> None:
        self.said = said
        numbers = re.findall(r"tot_send_msgs=(\d+), tot_recv_msgs=(\d+)", said)
        self.sent, self.received = map(int, numbers[-1]) if numbers else (0, 0)


def talk(
    server: Coturn,
    ice: dict[str, Any],
    *,
    packets: int = 150,
    size: int = 500,
    every: int = 20,
    peer: str = "",
    password: str = "",
) -> subprocess.Popen[str]:
    """Two relayed clients that talk with each other; or one that talks to a peer."""
    return subprocess.Popen(
        [
            *("turnutils_uclient", "-u", ice["username"], "-w", password or ice["credential"]),
            *("-p", str(server.port), "-c", "-n", str(packets), "-l", str(size)),
            *("-z", str(every), "-m", "1", *(("-e", peer) if peer else ("-y",))),
            "127.0.0.1",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: tie(signal.SIGKILL),
    )


def finished(talking: subprocess.Popen[str], seconds: float = 60) -> TalkResult:
    return TalkResult(talking.communicate(timeout=seconds)[0])
