"""Checks whether a TURN server answers: a STUN binding over UDP (RFC 5389), or a TCP connection."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from typing import NamedTuple

_COOKIE = bytes.fromhex("2112a442")
_URL = re.compile(r"(turns?):(\[[0-9a-fA-F:.]+\]|[^:?\[\]]+)(?::(\d{1,5}))?(?:\?transport=(\w+))?")


class Place(NamedTuple):
    """Where a TURN URL leads."""

    host: str
    port: int
    is_udp: bool


def place_of(url: str) -> Place | None:
    """Where a TURN URL leads, None if it cannot be read."""
    found = _URL.fullmatch(url.strip())
    if found is None:
        return None
    scheme, host, port, transport = found.groups()
    default = 5349 if scheme == "turns" else 3478
    is_udp = scheme == "turn" and transport in (None, "udp")
    return Place(host.strip("[]"), int(port or default), is_udp)


async def answers(place: Place, seconds: float = 2.0) -> bool:
    """Whether a server answers there in time. Never raises."""
    with contextlib.suppress(OSError, TimeoutError, ValueError, OverflowError):
        async with asyncio.timeout(seconds):
            return await (_udp(place) if place.is_udp else _tcp(place))
    return False


async def _tcp(place: Place) -> bool:
    _, writer = await asyncio.open_connection(place.host, place.port)
    writer.transport.abort()
    return True


async def _udp(place: Place) -> bool:
    heard = _Heard(_COOKIE + secrets.token_bytes(12))
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: heard, remote_addr=(place.host, place.port)
    )
    try:
        for _ in range(3):
            transport.sendto(b"\x00\x01\x00\x00" + heard.transaction)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(heard.answered), 0.6)
                return True
    finally:
        transport.close()
    return False


class _Heard(asyncio.DatagramProtocol):
    """Waits for the answer to one transaction."""

    def __init__(self, transaction: bytes) -> None:
        self.transaction = transaction
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if data[:2] == b"\x01\x01" and data[4:20] == self.transaction and not self.answered.done():
            self.answered.set_result(None)

    def error_received(self, exc: Exception) -> None:
        """There is no answer; a retry may succeed."""
