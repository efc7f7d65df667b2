"""A node on two machines behind a TCP balancer, with PostgreSQL and Redis on a third.

The machines are network namespaces; where none can be made, the tests say so and are skipped.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.client import Client
from tests.e2e.asking import Runtime, pairs, traffic, until_back, until_quiet
from tests.e2e.hosts import Host, Network
from tests.node import Node, eventually, free_port
from tests.production import settings
from tests.redis.servers import RedisServer
from tests.services import needs_program
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PAIRS = 5
LEASE = 3
BALANCER = """
global
    stats socket {socket}
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    timeout check 1s
frontend node
    bind 127.0.0.1:{port}
    default_backend workers
backend workers
    balance leastconn
    option httpchk
    http-check send meth GET uri /health/ready hdr Host localhost
{servers}
listen database
    bind {address}:{database_port}
    server database {database}
"""


class Balancer:
    """HAProxy before the workers; it listens on a port, and says at a socket how they are."""

    def __init__(self, place: Path) -> None:
        self.port = free_port()
        self.socket = place / "haproxy"

    def number_up(self) -> int:
        """How many workers it sends somebody to."""
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(str(self.socket))
            door.sendall(b"show stat\n")
            said = b"".join(iter(lambda: door.recv(65536), b"")).decode()
        rows = [line.split(",") for line in said.splitlines()]
        return sum(row[:1] == ["workers"] and row[1] != "BACKEND" and "UP" in row for row in rows)

    def ws(self) -> Client:
        return Client(f"ws://127.0.0.1:{self.port}/ws")


@dataclass
class Machines:
    """Hosts with a worker each, the way to all, and the address of what they have in common."""

    hosts: list[Host]
    workers: list[Node]
    balancer: Balancer
    centre: str


class Setup(NamedTuple):
    """How many hosts there are, and what else the balancer does with a worker."""

    hosts: int = 2
    options: str = ""


ENDS = "on-marked-down shutdown-sessions"
"""The sockets at a worker that is out of reach end, as those of its clients would."""


@pytest.fixture(params=[Setup()], ids=str)
def machines(
    request: pytest.FixtureRequest, tmp_path: Path, migrated_url: str
) -> Iterator[Machines]:
    needs_program("haproxy")
    with ExitStack() as stack:
        setup: Setup = request.param
        network = stack.enter_context(Network(setup.hosts))
        redis = RedisServer(
            tmp_path, "--bind", network.address, "127.0.0.1", "--protected-mode", "no"
        )
        stack.callback(redis.stop)
        redis.start()
        url = urlsplit(migrated_url)
        balancer = Balancer(tmp_path)
        database_port = free_port()
        seen = url._replace(netloc=f"{url.username}@{network.address}:{database_port}").geturl()
        workers: list[Node] = []
        common = settings(seen, f"redis://{network.address}:{redis.port}/0")
        for host in network.hosts:
            mine = {**common, "WORKER_TIMEOUT": LEASE, "HOST": host.address}
            worker = Node(tmp_path / host.name, **mine)
            worker.host, worker.inside = host.address, host.inside
            stack.callback(worker.kill)
            workers.append(worker)
        file = tmp_path / "haproxy.cfg"
        file.write_text(
            BALANCER.format(
                port=balancer.port,
                socket=balancer.socket,
                address=network.address,
                database_port=database_port,
                database=f"{url.hostname}:{url.port}",
                servers="\n".join(
                    f"    server {each.host} {each.host}:{each.port} check inter 500 fall 3 rise 1 "
                    f"{setup.options}"
                    for each in workers
                ),
            )
        )
        program = shutil.which("haproxy") or "/usr/sbin/haproxy"
        process = subprocess.Popen([program, "-db", "-f", str(file)], stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        for worker in workers:
            worker.start()
        until(lambda: balancer.number_up() == len(workers), 30)
        yield Machines(network.hosts, workers, balancer, network.address)


@asynccontextmanager
async def talking(machines: Machines) -> AsyncIterator[list[Runtime]]:
    """Runtimes that ask one another all the while; at the end all that was asked is settled."""
    runtimes = pairs(PAIRS, [machines.balancer])
    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(each.live(n)) for n, each in enumerate(runtimes)]
        await until_back(runtimes)
        asking = group.create_task(traffic(runtimes[:PAIRS]))
        yield runtimes
        asking.cancel()
        await until_quiet(runtimes[:PAIRS])
        for job in jobs:
            job.cancel()


def assert_nothing_is_lost_in_silence(runtimes: list[Runtime]) -> None:
    askers = runtimes[:PAIRS]
    assert {each.url: lost for each in askers if (lost := each.silently_lost())} == {}
    assert sum(each.lost_sessions for each in runtimes) == 0
    answered = sum(len(each.answered) for each in askers)
    told = sum(len(each.refused) + len(each.unsure) + len(each.open) for each in askers)
    assert answered > told, "most was answered"


async def test_w7_restarted_one_after_another_two_machines_lose_nothing_in_silence(
    machines: Machines,
) -> None:
    async with talking(machines) as runtimes:
        await asyncio.sleep(2)
        for worker in machines.workers:
            worker.terminate()
            assert await asyncio.to_thread(worker.status) == 0, worker.log()[-3000:]
            await until_back(runtimes)
            await asyncio.to_thread(worker.start)
            await asyncio.sleep(2)
    assert_nothing_is_lost_in_silence(runtimes)
    assert {code for each in runtimes for code in each.closes} == {3001}


CUTS: dict[str, tuple[Callable[[Machines], None], Callable[[Machines], None]]] = {
    "cable": (lambda all_: all_.hosts[1].unplug(), lambda all_: all_.hosts[1].plug()),
    "mute": (
        lambda all_: all_.hosts[1].mute(all_.centre),
        lambda all_: all_.hosts[1].unmute(all_.centre),
    ),
    "deaf": (lambda all_: all_.hosts[1].deafen(), lambda all_: all_.hosts[1].undeafen()),
}
"""Ways in which a machine is cut off, and how that is mended."""


@pytest.mark.parametrize(
    ("machines", "cut"),
    [
        pytest.param(Setup(2, ENDS), "cable", id="cable"),
        pytest.param(Setup(2, ENDS), "mute", id="mute"),
        pytest.param(Setup(2, ENDS), "deaf", id="deaf"),
    ],
    indirect=["machines"],
)
async def test_w1_w7_of_a_machine_that_is_cut_off_the_others_take_the_sessions(
    machines: Machines, cut: str
) -> None:
    lost = machines.workers[1]
    begin, end = CUTS[cut]
    async with talking(machines) as runtimes:
        await asyncio.sleep(2)
        begin(machines)
        await _until(lambda: any(each.closes for each in runtimes))
        await until_back(runtimes)
        await asyncio.sleep(2)
        end(machines)
        await _until(lambda: lost.get("/health/ready") == 200)
        await asyncio.sleep(2)
    assert lost.is_running()
    assert "lease" in lost.log()
    assert_nothing_is_lost_in_silence(runtimes)


async def test_w6_w7_over_a_slow_cable_all_arrives_and_nobody_is_taken_for_dead(
    machines: Machines,
) -> None:
    async with talking(machines) as runtimes:
        machines.hosts[1].slow("2mbit")
        await asyncio.sleep(3 * LEASE)
    assert_nothing_is_lost_in_silence(runtimes)
    assert {code for each in runtimes for code in each.closes} == set()
    assert all("lost its lease" not in each.log() for each in machines.workers)


async def _until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(is_so):
            await eventually()
