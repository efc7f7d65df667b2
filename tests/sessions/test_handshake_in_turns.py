"""Session frames wait their turn with other work; a connection ended meanwhile opens nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from msgnode.core.pending import Pending
from msgnode.sessions.turn_queue import TURN, TURN_QUEUE
from tests.bus.test_many_recipients import connected


def steps(done: list[str], caller: Any, name: str) -> Iterator[None]:
    if caller.is_carrying:
        done.append(name)
    yield from ()


async def test_a_frame_that_waits_in_line_keeps_the_next_of_its_connection_waiting() -> None:
    done: list[str] = []

    def carry(text: bytes, caller: Any, message: Any = None) -> None:
        if text == b"open":
            caller.carry_on(steps(done, caller, "open"))
        else:
            done.append(text.decode())

    connection, link, _ = connected(carry)
    other, _, _ = connected(carry)
    TURN_QUEUE.enter()
    TURN_QUEUE._over_at -= 10 * TURN  # others have used this turn up
    connection.frame_received(b"open")
    connection.frame_received(b"next")
    other.frame_received(b"a message of somebody else")
    assert done == ["a message of somebody else"]
    assert not link.is_reading
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["a message of somebody else", "open", "next"]
    assert link.is_reading
    connection.end(1000, "")
    other.end(1000, "")


async def test_a_socket_is_read_on_while_its_frame_waits_in_line_and_nothing_else_comes() -> None:
    done: list[str] = []
    connection, link, _ = connected(
        lambda text, caller, message: caller.carry_on(steps(done, caller, text.decode()))
    )
    TURN_QUEUE.enter()
    TURN_QUEUE._over_at -= 10 * TURN
    connection.frame_received(b"open")
    assert connection.is_held_back
    assert link.is_reading
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["open"]
    assert link.is_reading
    assert not connection.is_held_back
    connection.end(1000, "")


async def test_a_socket_is_not_read_on_when_what_stood_in_line_has_to_wait_for_a_fact() -> None:
    waiting: list[Any] = []
    done: list[str] = []

    def once_known(text: bytes, caller: Any) -> Iterator[None]:
        if not waiting:
            caller.hold(text, Pending("a fact", waiting.append))
        else:
            done.append(text.decode())
        yield from ()

    connection, link, _ = connected(
        lambda text, caller, message: caller.carry_on(once_known(text, caller))
    )
    TURN_QUEUE.enter()
    TURN_QUEUE._over_at -= 10 * TURN
    connection.frame_received(b"open")
    for _ in range(5):
        await asyncio.sleep(0)
    assert waiting
    assert not link.is_reading
    waiting[0]()
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["open"]
    assert link.is_reading
    connection.end(1000, "")


async def test_who_is_ended_in_line_opens_no_session() -> None:
    done: list[str] = []
    connection, _, _ = connected(
        lambda text, caller, message: caller.carry_on(steps(done, caller, text.decode()))
    )
    TURN_QUEUE.enter()
    TURN_QUEUE._over_at -= 10 * TURN
    connection.frame_received(b"open")
    connection.end(1000, "")
    connection.lost()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not done
