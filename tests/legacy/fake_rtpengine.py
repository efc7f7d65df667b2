"""A small rtpengine for the tests of the gateway, which does as a test says.

It is written from the page of the ng protocol; test_kamailio.py and test_takeover.py have the real
one. It does not read with the gateway's parser.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


def _read(data: bytes) -> tuple[Any, bytes]:
    """The first value in bencode, and what follows it."""
    if data[:1] == b"d":
        found, rest = {}, data[1:]
        while rest[:1] != b"e":
            key, rest = _read(rest)
            found[key], rest = _read(rest)
        return found, rest[1:]
    if data[:1] == b"l":
        listed, rest = [], data[1:]
        while rest[:1] != b"e":
            value, rest = _read(rest)
            listed.append(value)
        return listed, rest[1:]
    if data[:1] == b"i":
        digits, _, rest = data[1:].partition(b"e")
        return int(digits), rest
    size, _, rest = data.partition(b":")
    return rest[: int(size)].decode(), rest[int(size) :]


def _text(value: str) -> bytes:
    return b"%d:%s" % (len(value.encode()), value.encode())


class FakeRtpengine(asyncio.DatagramProtocol):
    """One that passes descriptions as they are.

    `calls` are the ids that it has, `deleted` those that it was told to forget, in order. While
    `is_frozen` it says and does nothing; to commands about those in `unanswered` it says nothing.
    `lie` gives another answer to a command than its own.
    """

    def __init__(self) -> None:
        self.calls: set[str] = set()
        self.deleted: list[str] = []
        self.commands: list[str] = []
        self.is_frozen = False
        self.unanswered: set[str] = set()
        self.lie: Callable[[dict[str, Any]], bytes | None] = lambda _: None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.place = "127.0.0.1:{}".format(transport.get_extra_info("sockname")[1])

    def datagram_received(self, data: bytes, sender: Any) -> None:
        if self.is_frozen:
            return
        cookie, _, words = data.partition(b" ")
        asked = _read(words)[0]
        self.commands.append(asked["command"])
        if asked["command"] == "delete":
            self.deleted.append(asked["call-id"])
            self.calls.discard(asked["call-id"])
        else:
            self.calls.add(asked["call-id"])
        if asked["call-id"] in self.unanswered:
            return
        said = b"d6:result2:ok3:sdp" + _text(asked.get("sdp", "")) + b"e"
        self._transport.sendto(cookie + b" " + (self.lie(asked) or said), sender)

    def stop(self) -> None:
        self._transport.close()


@asynccontextmanager
async def fake_rtpengine() -> AsyncIterator[FakeRtpengine]:
    loop = asyncio.get_running_loop()
    _, each = await loop.create_datagram_endpoint(FakeRtpengine, local_addr=("127.0.0.1", 0))
    try:
        yield each
    finally:
        each.stop()
