"""The way in on uvicorn: whatever a client sends, cut anywhere, reaches the receiver in order."""

from __future__ import annotations

import asyncio
import os
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from uvicorn import Config
from uvicorn.server import ServerState

from msgnode.servers.socket_link import FAILURE_PATIENCE
from msgnode.servers.text_frames import apply_mask
from msgnode.servers.uvicorn import NodeWebSocketProtocol
from msgnode.sessions.rules import CloseCode

LIMIT = 100_000
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TEXT, BINARY, CONTINUED, CLOSE, PING = 1, 2, 0, 8, 9


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_reading = True
        self.closed = False
        self.has_ended = False

    def write_eof(self) -> None:
        self.has_ended = True

    def abort(self) -> None:
        self.closed = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def get_extra_info(self, name: str) -> Any:
        return None


def frame(payload: bytes, opcode: int = TEXT, last: bool = True) -> bytes:
    """A frame from client to server."""
    head = opcode | (0x80 if last else 0)
    size = len(payload)
    if size < 126:
        header = struct.pack("!BB", head, 0x80 | size)
    elif size < 65536:
        header = struct.pack("!BBH", head, 0x80 | 126, size)
    else:
        header = struct.pack("!BBQ", head, 0x80 | 127, size)
    key = os.urandom(4)
    return header + key + apply_mask(payload, key)


class Socket:
    """A protocol with an application that runs its link; `received` are the frames it was given."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.runs = asyncio.Event()
        self.ended = asyncio.Event()
        self.transport = Transport()
        config = Config(self.application, interface="asgi3", lifespan="off", log_config=None,
                        ws_max_size=LIMIT,
                        ws_per_message_deflate=False, ws_ping_interval=None)  # fmt: skip
        config.load()
        loop = asyncio.get_running_loop()
        self.protocol = NodeWebSocketProtocol(config, ServerState(), {}, loop)
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]
        self.protocol.data_received(UPGRADE)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.runs.set()
        await scope["extensions"]["msgnode.link"].run(self.received.append)
        self.ended.set()

    async def open(self) -> None:
        await asyncio.wait_for(self.runs.wait(), 5)
        assert self.protocol.receiver is not None
        self.transport.written.clear()

    def feed(self, data: bytes, cuts: list[int]) -> None:
        places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
        for start, end in zip(places, places[1:], strict=False):
            self.protocol.data_received(data[start:end])


sent = st.one_of(
    st.tuples(st.just("text"), st.text(max_size=200).map(str.encode)),
    st.tuples(st.just("binary"), st.binary(max_size=50)),
    st.tuples(st.just("parts"), st.text(min_size=1, max_size=60).map(str.encode)),
    st.tuples(st.just("ping"), st.binary(max_size=20)),
    st.tuples(st.just("long"), st.integers(66_000, 90_000).map(lambda size: b"x" * size)),
)


def encoded(kind: str, payload: bytes) -> bytes:
    if kind == "parts":
        half = len(payload) // 2
        return b"".join((
            frame(payload[:half], last=False), frame(b"?", PING), frame(payload[half:], CONTINUED)
        ))  # fmt: skip
    return frame(payload, {"binary": BINARY, "ping": PING}.get(kind, TEXT))


@given(st.lists(sent, max_size=12), st.lists(st.integers(0, 1 << 20), max_size=12), st.booleans())
def test_a_stream_cut_anywhere_gives_the_same_messages(
    items: list[tuple[str, bytes]], cuts: list[int], early: bool
) -> None:
    async def scenario() -> None:
        socket = Socket()
        if not early:
            await socket.open()
        socket.feed(b"".join(encoded(*item) for item in items), cuts)
        await socket.open()
        socket.protocol.data_received(frame(b"last"))
        expected = [payload for kind, payload in items if kind != "ping"]
        assert socket.received == [*expected, b"last"]
        assert socket.transport.is_reading
        socket.protocol.connection_lost(None)
        await asyncio.wait_for(socket.ended.wait(), 5)

    asyncio.run(scenario())


def close_code(data: bytes) -> int:
    assert data[0] == 0x80 | CLOSE
    return int.from_bytes(data[2:4], "big")


async def test_a_frame_over_the_limit_ends_the_socket_with_4413_and_is_thrown_away() -> None:
    socket = Socket()
    await socket.open()
    large = frame(b"x" * (LIMIT + 1))
    socket.feed(frame(b"before") + large, [50, 70_000])
    assert socket.received == [b"before"]
    assert close_code(socket.transport.written[0]) == CloseCode.TOO_LARGE
    assert not socket.transport.closed  # it is read on, for a while
    socket.protocol.data_received(frame(b"after"))
    assert socket.received == [b"before"]
    assert socket.protocol.close_timer is not None
    left = socket.protocol.close_timer.when() - asyncio.get_running_loop().time()
    assert left <= FAILURE_PATIENCE
    socket.protocol.connection_lost(None)


async def test_a_text_that_is_not_utf8_ends_the_socket_with_1007() -> None:
    socket = Socket()
    await socket.open()
    socket.feed(frame(b"before") + frame(b"\xff\xfe"), [])
    assert socket.received == [b"before"]
    assert close_code(socket.transport.written[0]) == 1007
    socket.protocol.connection_lost(None)


async def test_an_unmasked_frame_ends_the_socket_with_1002() -> None:
    socket = Socket()
    await socket.open()
    socket.protocol.data_received(b"\x81\x02{}")
    assert close_code(socket.transport.written[0]) == 1002
    socket.protocol.connection_lost(None)


async def test_closing_says_the_nodes_code_after_what_was_written() -> None:
    socket = Socket()
    await socket.open()
    link = socket.protocol.link
    assert link is not None
    link.write(b"{}")
    link.close(CloseCode.GOING_AWAY, "come back")
    assert socket.transport.written[0] == b"\x81\x02{}"
    assert close_code(socket.transport.written[1]) == CloseCode.GOING_AWAY
    link.write(b"late")
    await asyncio.sleep(0)
    assert len(socket.transport.written) == 2
    socket.protocol.data_received(frame((3001).to_bytes(2, "big"), CLOSE))
    assert socket.transport.closed
    socket.protocol.connection_lost(None)
