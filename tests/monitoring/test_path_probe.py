"""A worker's message to itself: readiness follows it, and nothing that operators read has it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from websockets.exceptions import InvalidStatus

from msgnode.bus.table import RoutingTable
from msgnode.monitoring import path_probe
from msgnode.sessions.probe import Misdirected, ProbeEndpoint
from tests.client import SESSION, Client, runtime
from tests.fakes import FakeLink
from tests.node import Node, eventually
from tests.waiting import until

FAST = {"PROBE_INTERVAL": 0.2}


def checks(node: Node) -> dict[str, bool]:
    found: dict[str, bool] = json.loads(node.text("/health/ready"))["checks"]
    return found


def rows(node: Node, query: str) -> list[Any]:
    with sqlite3.connect(f"file:{node.data_dir / 'node.sqlite3'}?mode=ro", uri=True) as database:
        return database.execute(query).fetchall()


def no_message(frame: bytes, caller: Any) -> None:
    """No connection carries anything."""


def scope(made: str) -> dict[str, Any]:
    return {"query_string": f"probe={made}".encode()}


def test_a_pass_is_good_once_and_at_the_worker_that_made_it() -> None:
    endpoint = ProbeEndpoint("localhost", "secret", RoutingTable(), no_message)
    fellow = ProbeEndpoint("localhost", "secret", RoutingTable(), no_message)
    stranger = ProbeEndpoint("localhost", "another secret", RoutingTable(), no_message)
    made = endpoint.new_pass()
    with pytest.raises(Misdirected):
        fellow.admits(scope(made))
    assert not stranger.admits(scope(made))
    assert endpoint.admits(scope(made))
    with pytest.raises(Misdirected):
        endpoint.admits(scope(made))


async def test_a_connection_that_says_nothing_takes_the_session_of_no_other() -> None:
    """On a port that is shared, several are made side by side, and one of them is used."""
    table = RoutingTable()
    endpoint = ProbeEndpoint("localhost", "secret", table, no_message)
    used, also_made = endpoint.connect(FakeLink()), endpoint.connect(FakeLink())
    used.frame_received(b"{}")
    silent = endpoint.connect(FakeLink())
    assert endpoint.session.socket is used and used.session is endpoint.session
    for each in (also_made, silent):
        each.lost()
        assert endpoint.session.socket is used
    next_round = endpoint.connect(FakeLink())
    next_round.frame_received(b"{}")
    used.lost()
    assert endpoint.session.socket is next_round and used.session is None
    assert endpoint.address in table.probes


class Socket:
    """A connection to the worker's own port, as the probe has it."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("is_in_time", [True, False])
async def test_of_connections_that_come_together_one_is_used_and_the_others_are_closed(
    monkeypatch: pytest.MonkeyPatch, is_in_time: bool
) -> None:
    """A worker that is busy has its next connection before it has made the one before."""
    made: list[Socket] = []
    come_together = asyncio.Event()

    async def connect(url: str, **options: Any) -> Socket:
        made.append(Socket())
        one = made[-1]
        if len(made) == 3:
            come_together.set()
        await come_together.wait()
        return one

    monkeypatch.setattr(path_probe, "connect", connect)
    monkeypatch.setattr(path_probe, "_NEXT_TRY", 0.001)
    table = RoutingTable()
    endpoint = ProbeEndpoint("localhost", "secret", table, no_message)
    settings = path_probe.ProbeSettings(1.0, 1.0, 1.0, shares_port=True)
    probe = path_probe.PathProbe(endpoint, table, Mock(), "w", Mock(), settings)
    connecting = asyncio.ensure_future(probe._connection())
    used: list[Socket] = []
    await come_together.wait()
    if is_in_time:
        used.append(await connecting)  # type: ignore[arg-type]
    else:
        connecting.cancel()  # in the turn in which they are made
        await asyncio.wait({connecting})
    async with asyncio.timeout(10):
        for each in made:
            if each not in used:
                await each.closed.wait()
    assert len(used) == is_in_time
    assert not any(each.closed.is_set() for each in used)


@pytest.mark.parametrize("shown", ["", "x", "é" * 64, "0" * 64, "0" * 10_000])
def test_a_made_up_pass_is_an_ordinary_connection(shown: str) -> None:
    endpoint = ProbeEndpoint("localhost", "secret", RoutingTable(), no_message)
    assert not endpoint.admits({"query_string": f"probe={shown}".encode()})


@pytest.mark.long
async def test_the_probe_is_in_no_list_count_or_record(
    start_node: Callable[..., Node],
) -> None:
    """The bans, limits and policies that would keep it out are not for it."""
    node = start_node(
        **FAST, MAX_CONNECTIONS=1, MAX_CONNECTIONS_PER_SOURCE=1,
        ADMISSION="strict", WS_ORIGINS="https://elsewhere.example",
        POLICY_DELIVER_NOT_APPLICABLE="false", RECORD_FLUSH_SECONDS=0.3,
    )  # fmt: skip
    node.manage("shell", "-c", _BAN)
    until(lambda: rows(node, "SELECT 1 FROM msgnode_controlmessage"), 10, every=0.05)
    banned = Client(f"ws://127.0.0.1:{node.port}/ws")
    with pytest.raises(InvalidStatus):
        await until_refused(banned)
    committed = _metric(node, "msgnode_changes_committed_total")
    until(lambda: _metric(node, "msgnode_changes_committed_total") > committed + 20, 60)
    assert set(checks(node).values()) == {True}
    assert _metric(node, "msgnode_sockets") == 0
    assert _metric(node, "msgnode_message_bytes_total") == 0
    assert 'msgnode_routes{table="runtimes"} 0.0' in node.text("/metrics")
    assert rows(node, "SELECT * FROM msgnode_session") == []
    assert rows(node, "SELECT * FROM msgnode_alarm WHERE cleared_at IS NULL") == []
    assert list((node.data_dir / "record").rglob("*.parquet")) == []


_BAN = """
from msgnode import models
from msgnode.storage import control
models.Ban.objects.create(kind="source", value="127.0.0.1", reason="all of it")
control.post("bans.changed")
"""


async def until_refused(client: Client) -> None:
    """Connect until the ban is in force."""
    async with asyncio.timeout(10):
        while True:
            await client.connect()
            await client.hang_up()
            await eventually()


def _metric(node: Node, name: str) -> float:
    lines = node.text("/metrics").splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.mark.long
async def test_a_worker_whose_commits_stand_still_is_not_ready_until_they_go_on(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(**FAST, PROBE_TIMEOUT=1)
    lock = sqlite3.connect(node.data_dir / "node.sqlite3", isolation_level=None)
    try:
        lock.execute("BEGIN IMMEDIATE")
        until(lambda: node.get("/health/ready") == 503, 20)
        assert checks(node)["database"]
        assert not checks(node)["path"]
    finally:
        lock.close()
    until(lambda: node.get("/health/ready") == 200, 20)
    alarms = "SELECT kind, cleared_at IS NULL FROM msgnode_alarm"
    # Once, or again by a machine so busy that a message took longer than it may.
    over = {("path-broken", 0)}
    until(lambda: {*rows(node, alarms)} == over, 20, lambda: str(rows(node, alarms)))


async def test_nobody_can_speak_as_the_probe_or_open_its_session(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    async with Client(f"ws://127.0.0.1:{node.port}/ws?probe={'0' * 64}") as client:
        await client.open()
        stolen = "domain://msg-node.localhost/health/0"
        assert (await client.ask("read", runtime(), sender=stolen))["body"]["code"] == 403
    async with node.ws() as client:
        answer = await client.ask("open", SESSION, sender=stolen)
        assert answer["body"]["code"] == 400
