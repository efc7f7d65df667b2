"""Questions between workers: all that are there answer, and no wait is without end."""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from channels.layers import InMemoryChannelLayer

from msgnode.core.record import Outcome, TrafficRecord
from msgnode.monitoring import worker_queries
from msgnode.monitoring.tail import Tail
from msgnode.workers import rpc
from msgnode.workers.linked_worker import LinkedWorker
from policies.authoring import live_messages
from tests.node import eventually
from tests.workers.cluster import Fellow, LossyLayer

RECORD = TrafficRecord(
    1.0, "s", "7", "create", "hyperty://a.com/1", "hyperty://b.com/2", 99, 1, Outcome.DELIVERED
)


@pytest.fixture
def layer() -> LossyLayer:
    return LossyLayer(InMemoryChannelLayer(capacity=100))


@pytest.fixture
async def three(layer: LossyLayer) -> AsyncIterator[list[Fellow]]:
    secret = uuid.uuid4().hex
    there: list[Fellow] = []
    for number in range(3):
        fellow = await Fellow(layer, f"worker-{number}", secret).start(*there)
        fellow.rpc.begin()
        there.append(fellow)
    yield there
    await asyncio.gather(*(fellow.transport.stop() for fellow in there))


def not_heard_of_again(layer: LossyLayer, other: LinkedWorker) -> None:
    """Lose its heartbeats, one of which would bring it back."""
    layer.loses = lambda message: message.get("epoch") == other.epoch and "beat" in message["type"]


def says(text: bytes) -> Callable[[bytes], Awaitable[bytes]]:
    async def answer(question: bytes) -> bytes:
        return question + text

    return answer


async def test_every_other_worker_answers(three: list[Fellow]) -> None:
    one, other, third = three
    other.rpc.answer_questions({"name": says(b" other")})
    third.rpc.answer_questions({"name": says(b" third")})
    told = {"worker-1": b"I am other", "worker-2": b"I am third"}
    assert await one.rpc.ask("name", b"I am", 10) == told
    assert await asyncio.to_thread(one.rpc.ask_from_thread, "name", b"I am", 10) == told


async def test_who_does_not_answer_is_left_out_in_time(
    three: list[Fellow], layer: LossyLayer
) -> None:
    one, other, third = three

    async def never(_: bytes) -> bytes:
        return await asyncio.get_running_loop().create_future()

    async def fails(_: bytes) -> bytes:
        raise ValueError("a fault")

    other.rpc.answer_questions(
        {"a": says(b"here"), "b": fails, "c": says(b"x" * rpc.MAX_BYTES * 2)}
    )
    third.rpc.answer_questions({"a": never})
    (linked,) = [each for each in one.transport.others.values() if each.name == "worker-2"]
    not_heard_of_again(layer, linked)  # once it is cut off below
    assert await one.rpc.ask("a", b"", 1.0) == {"worker-1": b"here", "worker-2": None}
    assert await one.rpc.ask("b", b"", 0.2) == {"worker-1": None, "worker-2": None}
    assert await one.rpc.ask("c", b"", 0.2) == {"worker-1": None, "worker-2": None}
    one.transport.down(linked, "is cut off by the test")
    assert await one.rpc.ask("a", b"", 10) == {"worker-1": b"here", "worker-2": None}


async def test_a_question_is_asked_once_at_a_time(three: list[Fellow]) -> None:
    one, other, third = three
    asked: list[bytes] = []

    async def answer(text: bytes) -> bytes:
        asked.append(text)
        return b"x"

    for each in (other, third):
        each.rpc.answer_questions({"a": answer})
    answers = await asyncio.gather(*(one.rpc.ask("a", b"", 10) for _ in range(20)))
    assert answers == [{"worker-1": b"x", "worker-2": b"x"}] * 20
    assert len(asked) == 2


async def test_of_many_questions_only_so_many_are_worked_on(three: list[Fellow]) -> None:
    one, other, _ = three
    begun, enough = [], asyncio.Event()

    async def slow(text: bytes) -> bytes:
        begun.append(text)
        await enough.wait()
        return text

    other.rpc.answer_questions({"a": slow})
    texts = [b"%d" % number for number in range(rpc.MOST + 5)]
    under_way = [asyncio.create_task(one.rpc.ask("a", text, 1.0)) for text in texts]
    while len(begun) < rpc.MOST:
        await eventually()
    enough.set()
    told = [(await each)["worker-1"] for each in under_way]
    assert len([each for each in told if each is not None]) == rpc.MOST


async def test_messages_that_pass_another_worker_are_seen(
    three: list[Fellow], settings: Any
) -> None:
    one, other, third = three
    other.rpc.answer_questions(worker_queries.answers(node=None))  # type: ignore[arg-type]

    async def nothing(_: bytes) -> bytes:
        return msgspec.msgpack.encode([])

    third.rpc.answer_questions({"passing": nothing})
    with tempfile.TemporaryDirectory() as folder:
        settings.DATA_DIR = Path(folder)
        attached = asyncio.Event()
        taps: list[Any] = []

        def attach(tap: Any) -> None:
            if tap:
                taps.append(tap)
                attached.set()

        tail = Tail(Path(folder), "w", attach)
        await tail.start()
        seen = asyncio.create_task(
            asyncio.to_thread(partial(worker_queries.passing, one.rpc), 10.0, 1)
        )
        await attached.wait()
        taps[0](RECORD, b'{"value":{"number":3}}')
        (message,) = await seen
        await tail.stop()
    assert json.loads(bytes(message))["body"] == {"value": {"number": 3}}


def test_the_playground_shows_what_passes_here_and_elsewhere(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    others = ["there"] * 4
    shown = live_messages.messages_now(0.1, 3, lambda seconds, enough: others)
    assert shown == ["there"] * 3


def other_of(one: Fellow, name: str) -> Any:
    (other,) = [each for each in one.transport.others.values() if each.name == name]
    return other


async def test_a_call_reaches_one_worker_and_is_answered(three: list[Fellow]) -> None:
    one, other, third = three
    other.rpc.answer_calls("device", says(b" other"))
    third.rpc.answer_calls("device", says(b" third"))
    large = b"x" * rpc.MAX_BYTES * 2
    told = await one.rpc.call(other_of(one, "worker-1"), "device", large, 10)
    assert told == large + b" other"
    too_large = b"x" * (rpc.MAX_CALL_BYTES + 1)
    assert await one.rpc.call(other_of(one, "worker-1"), "device", too_large, 10) is None


async def test_a_call_ends_with_its_worker_or_its_time(
    three: list[Fellow], layer: LossyLayer
) -> None:
    one, other, _ = three

    async def never(_: bytes) -> bytes:
        return await asyncio.get_running_loop().create_future()

    async def fails(_: bytes) -> bytes:
        raise ValueError("a fault")

    other.rpc.answer_calls("device", never)
    other.rpc.answer_calls("fault", fails)
    linked = other_of(one, "worker-1")
    not_heard_of_again(layer, linked)  # once it is cut off below
    assert await one.rpc.call(linked, "device", b"", 0.2) is None
    assert await one.rpc.call(linked, "fault", b"", 10) == b""
    waiting = asyncio.create_task(one.rpc.call(linked, "device", b"", 60))
    while not linked.calls:
        await eventually()
    one.transport.down(linked, "is cut off by the test")
    async with asyncio.timeout(10):
        assert await waiting is None
    assert await one.rpc.call(linked, "device", b"", 60) is None


async def test_of_too_many_calls_the_rest_is_told_so(
    three: list[Fellow], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _ = three
    monkeypatch.setattr(rpc, "MOST_CALLS", 2)
    enough = asyncio.Event()

    async def slow(text: bytes) -> bytes:
        await enough.wait()
        return text

    other.rpc.answer_calls("device", slow)
    linked = other_of(one, "worker-1")
    calls = [asyncio.create_task(one.rpc.call(linked, "device", b"x", 10)) for _ in range(3)]
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert [each.result() for each in done] == [b""]
    enough.set()
    assert sorted([await each for each in calls]) == [b"", b"x", b"x"]  # type: ignore[type-var]
