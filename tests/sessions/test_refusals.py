"""How an upgrade is refused: in words, and in which order the limits are looked at."""

from __future__ import annotations

from typing import Any

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
