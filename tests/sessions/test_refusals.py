"""How an upgrade is refused: in words, and in which order the limits are looked at."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from msgnode.bus.table import RoutingTable
from msgnode.core.errors import Forbidden, TooMany
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.consumer import SocketConsumer
from msgnode.sessions.handshake import ConnectionParts
from msgnode.sessions.probe import ProbeEndpoint


async def answered(sockets: ConnectionLimits) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    nothing: Any = None

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    probe = ProbeEndpoint("localhost", "secret", RoutingTable(), nothing)
    parts = ConnectionParts(nothing, nothing, nothing, sockets, nothing)
    consumer = SocketConsumer(parts, nothing, ["*"], probe)
    await consumer({"client": ["192.0.2.1", 1]}, receive, send)
    return sent


async def test_it_says_why_and_when_to_come_again() -> None:
    full = ConnectionLimits(10, 0, lambda source: False)
    start, body = await answered(full)
    assert start["status"] == TooMany.code
    assert (b"retry-after", b"10") in start["headers"]
    assert b"Your address" in body["body"]


def test_a_ban_comes_before_every_limit() -> None:
    with pytest.raises(Forbidden):
        ConnectionLimits(0, 0, lambda source: True).check("192.0.2.1")


def test_connections_of_one_ipv6_network_count_together_and_leave_nothing_behind() -> None:
    limits = ConnectionLimits(10, 2, lambda source: False)
    first, second = "2001:db8::1", "2001:db8::2"
    connections: Any = [object(), object()]
    limits.add(connections[0], first)
    limits.check(second)
    limits.add(connections[1], second)
    with pytest.raises(TooMany):
        limits.check("2001:db8::3")
    limits.check("2001:db8:0:1::1")
    limits.remove(connections[0], first)
    limits.check("2001:db8::3")
    limits.remove(connections[1], second)
    assert not limits._per_source


@pytest.mark.parametrize(("number", "share"), [(10, 0.01), (500, 0.5), (1000, 1.0), (5000, 1.0)])
async def test_a_longer_stop_closes_fewer_sockets_at_once_however_few_there_are(
    number: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll-out that is to be gentle has a longer DRAIN_SECONDS."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("msgnode.sessions.connection_limits.asyncio.sleep", sleep)
    for seconds in (2.0, 24.0):
        limits = ConnectionLimits(number, number, lambda source: False)
        ended = Mock()
        for _ in range(number):
            limits.add(Mock(end=ended), "192.0.2.1")
        waited.clear()
        await limits.end_all(3001, "come back", seconds)
        assert ended.call_count >= number
        assert sum(waited) == pytest.approx(seconds * share, abs=0.03)
        told = f"come back; retryAfter={max(1, number // 1000)}"
        assert {each.args for each in ended.call_args_list} == {(3001, told)}, "and all may return"
