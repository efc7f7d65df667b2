"""Connections that are reset in the middle of a turn: what is theirs ends, nobody else notices.

A reset that comes right behind data is the hard case: the event loop closes its handle of the
socket before the server has heard of the loss.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bench.wire import LoadSocket, frame, message
from tests.client import SM, runtime
from tests.node import Node, eventually

SEED = int(os.environ.get("RESETS_SEED", "7"))
JUNK = frame(b'{"junk":1}') * 20
LIMIT = 60.0


class Observer:
    """A runtime that has subscribed an object's changes; `heard` are the numbers it was sent."""

    def __init__(self, socket: LoadSocket, runtime_url: str) -> None:
        self.socket = socket
        self.runtime_url = runtime_url
        self.heard: list[int] = []
        socket.on_text = self._hear

    def _hear(self, text: bytes) -> None:
        if b'"n":' in text:
            self.heard.append(msgspec.json.decode(text)["body"]["n"])

    def reset(self) -> None:
        """Junk, and a reset right behind it."""
        transport = self.socket.transport
        transport.write(JUNK)
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


async def observer(node: Node, changes: str) -> Observer:
    url = runtime()
    socket = await LoadSocket.connect(node.port)
    await socket.ask(id=1, type="open", from_=url, to="mn:/session")
    if changes:
        await socket.ask(id=2, type="subscribe", from_=url, to=SM, body={"resources": [changes]})
    return Observer(socket, url)


async def open_sessions(node: Node, number: int) -> None:
    """Wait until the node takes so many sessions for open: those that were reset are not."""
    line = f'msgnode_sessions{{state="open"}} {number:.1f}'
    try:
        async with asyncio.timeout(LIMIT):
            while line not in await asyncio.to_thread(node.text, "/metrics"):
                await eventually()
    except TimeoutError:
        raise AssertionError(f"no {line} in:\n{node.text('/metrics')}") from None


async def fan_out(node: Node, observers: int, resets: int, updates: int) -> None:
    """Updates to a crowd some of whom reset their connections at any moment; everybody else hears
    every update, in order, and those who come afterwards are served."""
    chance = random.Random(SEED)
    reporter = await observer(node, "")
    allocated: Any = await reporter.socket.ask(
        id=3, type="create", from_=reporter.runtime_url,
        to="domain://msg-node.localhost/address-allocation",
        body={"scheme": "comm", "value": {"number": 1}},
    )  # fmt: skip
    (comm,) = allocated["value"]["allocated"]
    crowd: list[Observer] = []
    for start in range(0, observers, 50):
        some = range(start, min(start + 50, observers))
        crowd += await asyncio.gather(*(observer(node, f"{comm}/changes") for _ in some))
    leavers = chance.sample(crowd, resets)
    stayers = [each for each in crowd if each not in leavers]
    per_update = -(-resets // updates)
    for number in range(updates):
        now, leavers = leavers[:per_update], leavers[per_update:]
        before, after = now[::2], now[1::2]
        for each in before:
            each.reset()
        update = message(id=number, type="update", from_=comm, to=f"{comm}/changes",
                         body={"n": number})  # fmt: skip
        reporter.socket.transport.write(update)
        for each in after:
            each.reset()
        await asyncio.sleep(0)
    wanted = list(range(updates))
    try:
        async with asyncio.timeout(LIMIT):
            while not all(len(each.heard) >= updates for each in stayers):
                await eventually()
    except TimeoutError:
        pass
    silent = [each.heard for each in stayers if each.heard != wanted]
    assert not silent, f"{len(silent)} of {len(stayers)} bystanders did not hear all: {silent[:3]}"
    await open_sessions(node, len(stayers) + 1)
    late = await observer(node, "")
    await late.socket.ask(
        id=4, type="subscribe", from_=late.runtime_url, to=SM,
        body={"resources": [f"{comm}/changes"]},
    )  # fmt: skip
    assert not any(each.socket.closed for each in stayers)
    for each in (*stayers, reporter, late):
        each.socket.close()


@pytest.mark.long
async def test_resets_during_a_fan_out_silence_nobody_else(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    await fan_out(node, observers=60, resets=30, updates=15)
    assert "Traceback" not in node.log()
