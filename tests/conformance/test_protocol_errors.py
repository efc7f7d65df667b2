"""What a client does against RFC 6455 closes its socket with the standard's code: a
closing frame that reaches it, then the end of the stream, and never a reset."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.client import LIMIT, runtime
from tests.conftest import Come
from tests.node import Node

OPEN = b'{"id":1,"type":"open","from":"%b","to":"mn:/session"}'
KEY = b"\x37\xfa\x21\x3d"


def frame(payload: bytes, head: int = 0x81) -> bytes:
    """A masked frame whose first byte is `head`."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0xFE, size)
    masked = bytes(byte ^ KEY[place % 4] for place, byte in enumerate(payload))
    return bytes([head]) + length + KEY + masked


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(struct.pack("!H", code) + reason, 0x88)


FAULTS = [
    pytest.param(1002, frame(b"{}", 0x83), id="reserved opcode of data"),
    pytest.param(1002, frame(b"", 0x8B), id="reserved opcode of control"),
    pytest.param(1002, frame(b"{}", 0xC1), id="reserved bit 1"),
    pytest.param(1002, frame(b"{}", 0xA1), id="reserved bit 2"),
    pytest.param(1002, frame(b"{}", 0x91), id="reserved bit 3"),
    pytest.param(1002, b"\x81\x02{}", id="not masked"),
    pytest.param(1002, frame(b"?", 0x09), id="fragmented ping"),
    pytest.param(1002, frame(b"", 0x08), id="fragmented close"),
    pytest.param(1002, frame(b"?" * 126, 0x89), id="ping over 125 bytes"),
    pytest.param(1002, frame(b"{}", 0x80), id="continuation of nothing"),
    pytest.param(1002, frame(b"{", 0x01) + frame(b"{}"), id="text inside a fragmented one"),
    pytest.param(1002, frame(b"x", 0x88), id="close with half a code"),
    pytest.param(1007, frame(b"\xff\xfe"), id="text that is not UTF-8"),
    pytest.param(1007, frame(b"\xc3"), id="text that ends within a character"),
    pytest.param(1007, frame(b"a\xff", 0x01) + frame(b"b", 0x80), id="fragments not UTF-8"),
    pytest.param(1007, close(1000, b"\xff"), id="close reason that is not UTF-8"),
    *(
        pytest.param(1002, close(code), id=f"close code {code}")
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000)
    ),
]
LENGTHS = [
    pytest.param(1002, b"\x81\xfe\x00\x02" + KEY + b"\x4c\x87", id="length of 2 in 2 bytes"),
    pytest.param(1002, b"\x81\xfe\x00\x7d" + KEY, id="length of 125 in 2 bytes, head alone"),
    pytest.param(1002, b"\x81\xff" + struct.pack("!Q", 65535) + KEY, id="length of 65535 in 8"),
    pytest.param(1002, b"\x82\xff" + struct.pack("!Q", 1) + KEY, id="binary, length of 1 in 8"),
]


class Socket:
    """A WebSocket of which every byte is ours."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await asyncio.wait_for(self._writer.drain(), LIMIT)

    async def frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next short frame."""
        head, size = await asyncio.wait_for(self._reader.readexactly(2), LIMIT)
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
        return head & 15, await asyncio.wait_for(self._reader.readexactly(size), LIMIT)

    async def rest(self) -> bytes:
        """All up to the end of the stream; a reset raises ConnectionResetError."""
        return await asyncio.wait_for(self._reader.read(), LIMIT)


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[Socket]:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    socket = Socket(reader, writer)
    try:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["GET /ws HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        await socket.write("\r\n".join(lines).encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT)
        assert answer.startswith(b"HTTP/1.1 101")
        yield socket
    finally:
        writer.close()


@asynccontextmanager
async def opened(node: Node, runtime_url: str = "") -> AsyncIterator[Socket]:
    """A socket with a session."""
    async with connected(node) as socket:
        await socket.write(frame(OPEN % (runtime_url or runtime()).encode()))
        _, answer = await socket.frame()
        assert b'"code":200' in answer
        yield socket


async def closes_with(code: int, fault: bytes, node: Node) -> None:
    """See that a fault of the protocol ends the socket with a code, and not with a reset."""
    async with opened(node) as socket:
        await socket.write(fault)
        opcode, payload = await socket.frame()
        assert (opcode, int.from_bytes(payload[:2], "big")) == (8, code)
        assert await socket.rest() == b""


@pytest.mark.parametrize(("code", "fault"), FAULTS)
async def test_a_fault_of_the_protocol_closes_with_its_code_and_no_reset(
    node: Node, code: int, fault: bytes
) -> None:
    await closes_with(code, fault, node)


@pytest.mark.parametrize(("code", "fault"), LENGTHS)
async def test_a_length_that_is_not_in_its_shortest_form_closes_with_its_code(
    node: Node, code: int, fault: bytes
) -> None:
    await closes_with(code, fault, node)


@pytest.mark.parametrize(("code", "fault"), [FAULTS[0], FAULTS[5], FAULTS[12]])
async def test_the_code_reaches_a_client_that_goes_on_sending_and_reads_late(
    node: Node, code: int, fault: bytes
) -> None:
    async with opened(node) as socket:
        for _ in range(40):
            await socket.write(fault + frame(b"x" * 60_000))
        opcode, payload = await socket.frame()
        assert (opcode, int.from_bytes(payload[:2], "big")) == (8, code)
        assert await socket.rest() == b""


async def test_nothing_after_a_fault_is_heard_and_what_was_before_it_is(
    node: Node, come: Come
) -> None:
    hearer = await come()
    url = runtime()
    said = b'{"id":%d,"type":"execute","from":"%b","to":"%b","body":{}}'
    to = hearer.runtime_url.encode()
    async with opened(node, url) as socket:
        before, after = (frame(said % (number, url.encode(), to)) for number in (7, 8))
        await socket.write(before + frame(b"{}", 0xC1) + after)
        assert (await socket.frame())[0] == 8
    await hearer.expect(id=7)
    assert await hearer.settled() == []


@pytest.mark.parametrize(("code", "fault"), [FAULTS[0], FAULTS[12]])
async def test_a_fault_before_any_session_is_answered_the_same(
    node: Node, code: int, fault: bytes
) -> None:
    async with connected(node) as socket:
        await socket.write(fault)
        opcode, payload = await socket.frame()
        assert (opcode, int.from_bytes(payload[:2], "big")) == (8, code)
        assert await socket.rest() == b""


async def test_both_sides_closing_at_once_end_without_a_reset(node: Node) -> None:
    async with opened(node) as socket:
        closing = b'{"id":2,"type":"close","to":"mn:/session"}'
        await socket.write(frame(closing) + close(1000))
        assert b'"id":2' in (await socket.frame())[1]
        assert (await socket.frame())[0] == 8
        assert await socket.rest() == b""


async def test_a_client_has_time_for_its_half_of_the_closing_handshake(node: Node) -> None:
    async with opened(node) as socket:
        await socket.write(frame(b'{"id":2,"type":"close","to":"mn:/session"}'))
        assert b'"id":2' in (await socket.frame())[1]
        assert (await socket.frame())[0] == 8
        with pytest.raises(TimeoutError):  # less than a second is a link's delay, not an absence
            await asyncio.wait_for(socket.rest(), 1.2)
        await socket.write(close(1000))
        assert await socket.rest() == b""
