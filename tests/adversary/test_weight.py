"""Weighing the node down: half-open connections, bombs, deep and endless JSON, floods, headers."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
import zlib
from typing import Any

import pytest

from tests.client import address, code
from tests.node import Node

from .conftest import LIMITS, PATIENCE, Bystanders

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("adversary")]

CROWD = 100
COMPONENTS = (
    "msg-node.localhost/sm", "msg-node.localhost/address-allocation", "idm.localhost",
    "registry.localhost",
)  # fmt: skip


async def raw(node: Node, text: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(text)
    await writer.drain()
    return reader, writer


def upgrade(node: Node, *more: str, path: str = "/ws") -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = (
        f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{node.port}", "Upgrade: websocket",
        "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *more,
    )  # fmt: skip
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def frame(payload: bytes, first: int = 0x81) -> bytes:
    """A masked frame; `first` is its first byte."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    return head + b"\0\0\0\0" + payload


async def ended(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """What came until the other side hung up; fails if it does not."""
    async with asyncio.timeout(seconds):
        return await reader.read(-1)


async def test_slow_loris_that_never_finishes_its_request(served: Bystanders, target: Node) -> None:
    """The request is fed a byte at a time, so that no idle time-out ends it."""
    lines = upgrade(target)[:-2]
    crowd = [await raw(target, lines[:20]) for _ in range(CROWD)]

    async def drip(writer: asyncio.StreamWriter) -> None:
        for each in range(20, len(lines)):
            writer.write(lines[each : each + 1])
            await writer.drain()
            await asyncio.sleep(0.25)  # the attack's own pace

    drips = [asyncio.create_task(drip(writer)) for _, writer in crowd]
    try:
        limit = LIMITS["HANDSHAKE_TIMEOUT"] + 2 * PATIENCE
        await asyncio.gather(*(_gone(reader, limit) for reader, _ in crowd))
    finally:
        for task in drips:
            task.cancel()
        await asyncio.gather(*drips, return_exceptions=True)
        for _, writer in crowd:
            writer.close()


async def _gone(reader: asyncio.StreamReader, seconds: float) -> None:
    try:
        await ended(reader, seconds)
    except ConnectionResetError:
        return


async def test_compression_is_not_agreed_on_and_a_bomb_is_a_fault(
    served: Bystanders, target: Node
) -> None:
    offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    reader, writer = await raw(target, upgrade(target, offer))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    assert b"101" in head
    assert b"deflate" not in head.lower()
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = pack.compress(b'{"id":1,"body":"' + b"a" * 50_000_000) + pack.flush(zlib.Z_SYNC_FLUSH)
    assert len(bomb) < LIMITS["MAX_FRAME_BYTES"]
    writer.write(frame(bomb[:-4], first=0xC1))  # RSV1: compressed
    await writer.drain()
    await _gone(reader, PATIENCE)
    writer.close()


async def test_a_frame_that_says_it_is_huge_is_refused_before_it_comes(
    served: Bystanders, target: Node
) -> None:
    for size in (LIMITS["MAX_FRAME_BYTES"] + 1, 2**40, 2**62):
        reader, writer = await raw(target, upgrade(target))
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        writer.write(struct.pack("!BBQ", 0x81, 0xFF, size) + b"\0\0\0\0" + b"a" * 1000)
        await writer.drain()
        said = await _until_closed(reader, 3 * PATIENCE)
        assert struct.pack("!H", 4413) in said
        writer.close()


async def _until_closed(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """Up to a closing frame or the end."""
    said = b""
    async with asyncio.timeout(seconds):
        while chunk := await reader.read(4096):
            said += chunk
            if b"\x88" in said.partition(b"\r\n\r\n")[2] or said.startswith(b"\x88"):
                break
    return said


async def test_endless_fragments_are_no_way_around_the_limit(
    served: Bystanders, target: Node
) -> None:
    reader, writer = await raw(target, upgrade(target))
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    writer.write(frame(b"a" * 30_000, first=0x01))
    for _ in range(4):
        writer.write(frame(b"a" * 30_000, first=0x00))
    await writer.drain()
    assert struct.pack("!H", 4413) in await _until_closed(reader, 3 * PATIENCE)
    writer.close()


@pytest.mark.parametrize("first", [0x89, 0x8A, 0x00], ids=["pings", "pongs", "fragments"])
async def test_a_flood_of_frames_that_are_no_messages_is_closed(
    served: Bystanders, target: Node, first: int
) -> None:
    reader, writer = await raw(target, upgrade(target))
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    begun = b"" if first else frame(b"", first=0x01)
    writer.write(begun + frame(b"", first) * 100_000)
    assert struct.pack("!H", 4403) in await _until_closed(reader, 3 * PATIENCE)
    writer.close()


async def test_beside_a_flood_of_tiny_frames_others_are_served(
    served: Bystanders, target: Node
) -> None:
    for before in (b"", frame(b"", first=0x89)):  # cut out of the read, and parsed by the library
        reader, writer = await raw(target, upgrade(target))
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        writer.write(before + frame(b"") * 20_000)
        await asyncio.wait_for(reader.readexactly(1_000), PATIENCE)  # the first are answered
        writer.close()


@pytest.mark.parametrize(
    "body",
    [
        "[" * 30_000 + "]" * 30_000,
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        "[" * 60_000,
        '{"a":' * 10_000,
        '"' + "\\u0000" * 9_000 + '"',
        "1" + "0" * 60_000,
        "1e" + "9" * 50_000,
        '{"' + '":1,"'.join(str(n) for n in range(6_000)) + '":1}',
    ],
    ids=["list", "object", "open-list", "open-object", "nul", "number", "exponent", "keys"],
)
async def test_deep_and_odd_json_is_answered_and_harms_nobody(
    served: Bystanders, come_in: Any, body: str
) -> None:
    thief, hearer = await come_in(), await come_in()
    head = f'{{"id":"deep","type":"execute","from":"{thief.runtime_url}",'
    for to in (hearer.runtime_url, *(f"domain://{each}" for each in COMPONENTS)):
        await thief.send_raw(f'{head}"to":"{to}","body":{body}}}')
        await thief.send_raw(f'{head}"to":"{to}","body":{{"resource":{body}}}}}')
        await thief.send_raw(f'{head}"to":"{to}","body":{{"identity":{body}}}}}')
    assert code(await thief.ask("read", address())) == 404  # the session goes on


@pytest.mark.parametrize(
    "more",
    [
        (
            "X-Forwarded-For: 192.0.2.1",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: evil.example",
        ),
        ("Origin: null",),
        ("Cookie: " + "a=b; " * 1000,),
        ("Sec-WebSocket-Protocol: " + ", ".join(f"p{n}" for n in range(200)),),
        ("Authorization: Bearer " + "x" * 10_000,),
        ("Authorization: Bearer a.b.c",),
        ("X-Name: a\x00b",),
    ],
    ids=["forwarded", "origin", "cookies", "protocols", "long-token", "bad-token", "nul"],
)
async def test_odd_headers_are_answered(
    served: Bystanders, target: Node, more: tuple[str, ...]
) -> None:
    reader, writer = await raw(target, upgrade(target, *more))
    async with asyncio.timeout(2 * PATIENCE):
        status = await reader.readline()
    assert not status or status.split(b" ")[1] in (b"101", b"400", b"401", b"403", b"431"), status
    writer.close()


async def test_a_request_in_a_request_is_not_smuggled(served: Bystanders, target: Node) -> None:
    smuggled = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    both = (
        b"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled
    )
    reader, writer = await raw(target, both)
    async with asyncio.timeout(2 * PATIENCE):
        said = await reader.read(65536)
    assert said.split(b" ")[1:2] in ([b"400"], []), said[:80]
    writer.close()


@pytest.mark.parametrize(
    "path",
    [
        "/?x=%0d%0aSet-Cookie:%20a=b",
        "/login/?next=%0d%0aX:%201",
        "/o/authorize/?client_id=%0d%0aX:1",
        "/%0d%0aX:%201",
    ],
)
async def test_no_header_is_made_of_a_query(served: Bystanders, target: Node, path: str) -> None:
    text = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    reader, writer = await raw(target, text)
    head = (await ended(reader, 2 * PATIENCE)).partition(b"\r\n\r\n")[0]
    assert b"\r\nX:" not in head
    assert b"a=b" not in head.replace(b"%20a=b", b"")
    writer.close()
