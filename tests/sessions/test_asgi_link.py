"""The link over plain ASGI: order, back-pressure, and what is left for the next socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from msgnode.core.faults import FAULTS
from msgnode.sessions.asgi_link import AsgiLink
from msgnode.sessions.outbox import Outbox


class Server:
    """An ASGI server's `send`: it takes events while it is open, and may fail."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.error: Exception | None = None

    async def send(self, event: dict[str, Any]) -> None:
        await self.takes.wait()
        if self.error is not None:
            raise self.error
        self.events.append(event)

    @property
    def texts(self) -> list[str]:
        return [event["text"] for event in self.events if event["type"] == "websocket.send"]

    @property
    def close(self) -> dict[str, Any] | None:
        (closed,) = [each for each in self.events if each["type"] == "websocket.close"] or [None]
        return closed


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def server() -> Server:
    return Server()


async def test_frames_leave_in_order_and_the_close_behind_them(server: Server) -> None:
    link = AsgiLink(server.send)
    for number in range(5):
        link.write(b"%d" % number)
    link.close(3001, "the node stops")
    await turns()
    assert server.texts == ["0", "1", "2", "3", "4"]
    assert server.close == {"type": "websocket.close", "code": 3001, "reason": "the node stops"}


async def test_it_is_full_over_64_kib_and_takes_more_when_half_of_it_has_left(
    server: Server,
) -> None:
    server.takes.clear()
    link, told = AsgiLink(server.send), []
    link.on_pause = lambda: told.append("full")
    link.on_resume = lambda: told.append("empty")
    while not link.is_paused:
        link.write(b"x" * 10_000)
    assert told == ["full"]
    assert 64 * 1024 < link.unsent_bytes <= 64 * 1024 + 10_000
    server.takes.set()
    await turns()
    assert told == ["full", "empty"]
    assert (link.is_paused, link.unsent_bytes) == (False, 0)


async def test_what_comes_after_the_close_waits_for_the_next_socket(server: Server) -> None:
    link = AsgiLink(server.send)
    outbox = Outbox(10_000, True, lambda: None)
    outbox.attach(link)
    outbox.put(b"before")
    link.close(4409, "resumed")
    await turns()
    outbox.put(b"after")
    await turns()
    assert server.texts == ["before"]
    assert outbox.waiting_bytes > 0
    later = Server()
    outbox.attach(AsgiLink(later.send))
    await turns()
    assert later.texts == ["after"]


async def test_a_socket_that_is_dropped_is_closed_without_what_waited(server: Server) -> None:
    server.takes.clear()
    link = AsgiLink(server.send)
    await turns()
    for number in range(3):
        link.write(b"%d" % number)
    link.drop()
    server.takes.set()
    await turns()
    assert server.texts == []
    assert server.close is not None
    assert link.unsent_bytes == 0


async def test_nobody_can_be_asked_for_a_sign_of_life(server: Server) -> None:
    link, heard = AsgiLink(server.send), []
    assert link.ping(lambda: heard.append(True)) is False
    await turns()
    assert server.events == heard == []


@pytest.mark.parametrize(("error", "faults"), [(OSError("gone"), 0), (RuntimeError("odd"), 1)])
async def test_a_server_that_fails_ends_the_link_and_a_client_that_left_is_no_fault(
    server: Server, error: Exception, faults: int
) -> None:
    before = FAULTS.counts["link"]
    link = AsgiLink(server.send)
    server.error = error
    link.write(b"lost with the socket")
    await turns()
    assert link.is_paused
    assert link.unsent_bytes == 0
    assert FAULTS.counts["link"] == before + faults
    link.write(b"never taken")
    assert link.unsent_bytes == 0
    await link.finish()
