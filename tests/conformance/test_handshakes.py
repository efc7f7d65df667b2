"""Requests that are no handshake of a WebSocket: what their clients and the operator are told."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Callable

import pytest

from tests.node import Node

pytestmark = pytest.mark.asyncio
PATIENCE = 20.0


def request(node: Node, *, method: str = "GET", path: str = "/ws", **changed: str) -> bytes:
    """A handshake, in which headers are others; an empty one is left out."""
    headers = {
        "Host": f"127.0.0.1:{node.port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec_WebSocket_Version": "13",
        **changed,
    }
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("latin1")


async def answer(node: Node, sent: bytes) -> tuple[int, str]:
    """The status of what is answered, and all of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(sent)
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(found[1]) if found else 0)
    writer.close()
    return int(head.split(b" ")[1]), (head + body).decode("latin1")


SHAPES: tuple[tuple[int, str, dict[str, str]], ...] = (
    (426, "proxy_set_header", {"Connection": "close"}),
    (426, "proxy_set_header", {"Connection": ""}),
    (405, "POST", {"method": "POST"}),
    (405, "HEAD", {"method": "HEAD"}),
    (400, "version 7", {"Sec_WebSocket_Version": "7"}),
    (400, "Sec-WebSocket-Version", {"Sec_WebSocket_Version": "x"}),
    (400, "Hixie76", {"Sec_WebSocket_Version": ""}),
    (400, "Sec-WebSocket-Key", {"Sec_WebSocket_Key": ""}),
    (400, "Sec-WebSocket-Key", {"Sec_WebSocket_Key": "short"}),
    (400, "port", {"Host": "a:b"}),
    (400, "Origin", {"Origin": "app"}),
    (400, "duplicate protocol", {"Sec_WebSocket_Protocol": "a, a"}),
    (400, "ASCII", {"Sec_WebSocket_Protocol": "\xe9"}),
    (426, "proxy_set_header", {"Connection": "", "Upgrade": "", "path": "/ws"}),
    (426, "proxy_set_header", {"Connection": "", "Upgrade": "", "path": "/stub/connect"}),
)


async def test_what_is_no_handshake_is_told_why_and_leaves_one_line_in_the_log(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    for status, words, shape in SHAPES:
        told, text = await answer(node, request(node, **shape))
        assert (told, words in text) == (status, True), (shape, text)
        assert "Unknown Status" not in text
    for _ in range(50):
        await answer(node, request(node, Connection="close"))
    lines = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    assert not [each for each in lines if each["level"] == "ERROR" or "trace" in each]
    named = [each for each in lines if "handshake was refused" in each["message"]]
    assert 1 <= len(named) <= 3, named
    assert '"close"' in named[0]["message"]
    assert "(from 127.0.0.1)" in named[0]["message"]
    counted = re.search(r'faults_total\{part="handshake"\} (\d+)', node.text("/metrics"))
    assert counted
    assert float(counted[1]) == len(SHAPES) - 2 + 50
    async with node.ws() as client:
        await client.open()


async def test_unknown_hosts_are_warned_of_seldom(start_node: Callable[..., Node]) -> None:
    node = start_node(ALLOWED_HOSTS="localhost")
    for _ in range(20):
        told, _ = await answer(node, b"GET /login/ HTTP/1.1\r\nHost: scanned.example\r\n\r\n")
        assert told == 400
    lines = [json.loads(line) for line in node.log().splitlines() if "scanned.example" in line]
    assert len(lines) <= 2
    assert lines[0]["level"] == "WARNING"
    assert "ALLOWED_HOSTS" in lines[0]["message"]
    assert 'part="request"} 20' in node.text("/metrics")
