"""What a client sends before its upgrade is answered: one read of it waits, and no more."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.adversary.test_weight import frame, upgrade
from tests.client import SESSION, runtime
from tests.issuer import Issuer, enter
from tests.node import Node, eventually

_AT_ONCE = 64 * 1024
_MOST = 8 * 1024 * 1024

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def pending(node: Node, issuer: Issuer) -> AsyncIterator[socket.socket]:
    """A connection whose upgrade waits for the issuer, whom nobody has asked for anything yet."""
    issuer.gate.clear()
    enter(node.data_dir / "node.sqlite3", issuer.row(introspection_url=""), changed=True)
    head = upgrade(node, f"Authorization: Bearer {issuer.token()}")
    while True:  # until the node knows the issuer
        with socket.create_connection((node.host, node.port)) as door:
            door.setblocking(False)
            door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _AT_ONCE)
            await asyncio.get_running_loop().sock_sendall(door, head)
            for _ in range(4):
                await eventually()
                if issuer.asked:
                    yield door
                    return


async def heard(door: socket.socket, wanted: bytes) -> bytes:
    loop, found = asyncio.get_running_loop(), b""
    async with asyncio.timeout(20):
        while wanted not in found:
            part = await loop.sock_recv(door, _AT_ONCE)
            assert part, f"ended without {wanted!r}: {found!r}"
            found += part
    return found


async def test_a_client_that_sends_on_while_its_token_is_checked_is_not_read_on(
    idnode: Node, make_issuer: Any
) -> None:
    issuer = make_issuer()
    message = {"id": 1, "type": "open", "from": runtime(), "to": SESSION, "body": {}}
    more = frame(b"x" * _AT_ONCE)
    async with pending(idnode, issuer) as door:
        loop, sent = asyncio.get_running_loop(), 0
        await loop.sock_sendall(door, frame(json.dumps(message).encode()))
        try:
            async with asyncio.timeout(1.2):
                while sent < _MOST:
                    await loop.sock_sendall(door, more)
                    sent += len(more)
        except TimeoutError:
            pass
        assert sent < _MOST, "more is read, and kept, than waits in the kernel"
        issuer.gate.set()
        assert b" 101 " in await heard(door, b"runtimeToken"), "what was read first is heard"


async def test_a_second_upgrade_before_the_first_is_answered_is_no_upgrade(
    idnode: Node, make_issuer: Any
) -> None:
    issuer = make_issuer()
    async with pending(idnode, issuer) as door:
        await asyncio.get_running_loop().sock_sendall(door, upgrade(idnode))
        await eventually()
        issuer.gate.set()
        answer = await heard(door, b"RSV")  # of what is no frame
    assert b" 101 " in answer
    assert b" 500 " not in answer


async def test_frames_that_come_together_with_the_upgrade_are_heard(node: Node) -> None:
    message = {"id": 1, "type": "open", "from": runtime(), "to": SESSION, "body": {}}
    with socket.create_connection((node.host, node.port)) as door:
        door.setblocking(False)
        both = upgrade(node) + frame(json.dumps(message).encode())
        await asyncio.get_running_loop().sock_sendall(door, both)
        assert b" 101 " in await heard(door, b"runtimeToken")


async def test_an_upgrade_with_a_body_is_refused(node: Node) -> None:
    with socket.create_connection((node.host, node.port)) as door:
        door.setblocking(False)
        both = upgrade(node, "Content-Length: 7") + frame(b"x")
        await asyncio.get_running_loop().sock_sendall(door, both)
        assert b" 400 " in await heard(door, b"has no body")
