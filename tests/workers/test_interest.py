"""Who listens to what is told to the workers that send there, and to no other: on a real Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from msgnode.core.pending import Pending
from msgnode.redis.channel_layer import StreamChannelLayer
from msgnode.redis.client import RedisClient
from msgnode.redis.directory import Directory, Kind
from msgnode.workers import homes, interest
from tests.node import eventually
from tests.redis.servers import RedisServer
from tests.workers.cluster import Fellow, LossyLayer
from tests.workers.test_homes import Housed

TO = "comm://d/1/changes"

Three = tuple[Housed, Housed, Housed, LossyLayer]


@pytest.fixture
async def three(redis_url: str) -> AsyncIterator[Three]:
    layer = LossyLayer(StreamChannelLayer([redis_url]))
    secret = uuid.uuid4().hex
    there: list[Housed] = []
    for name in ("one", "other", "third"):
        there.append(await Housed(layer, name, secret, redis_url).start(*there))
    yield (*there, layer)  # type: ignore[misc]
    await asyncio.gather(*(each.transport.stop() for each in there))
    await asyncio.gather(*(each.entries.stop() for each in there))
    await layer.close()


def heard_at(worker: Fellow, address: str = TO) -> set[str]:
    return {each.id for each in worker.table.listeners(address)}


async def test_w9_a_worker_knows_who_listens_only_where_it_sends_something(three: Three) -> None:
    one, other, third, _ = three
    listener = one.enter()
    one.table.subscribe(TO, listener)
    await one.settled()
    assert not heard_at(other)
    await other.watch(TO)
    assert heard_at(other) == {listener.id}
    further = one.enter()
    one.table.subscribe(TO, further)
    await one.settled()
    assert heard_at(other) == {listener.id, further.id}
    assert third.table.sizes["subscribed_addresses"] == 0
    one.table.unsubscribe(TO, listener)
    one.end(further)
    await one.settled()
    assert not heard_at(other)


async def test_w8_an_answer_waits_for_who_sends_there_and_for_no_other_worker(
    three: Three,
) -> None:
    one, other, third, layer = three
    await other.watch(TO)
    listener = one.enter()
    await one.settled()
    layer.loses = lambda message: "number" in message and message["epoch"] == one.transport.me.epoch
    (inbox,) = (peer.inbox for peer in one.transport.peers.values() if peer.name == "third")
    send, layer.send = layer.send, _only(layer, inbox)  # type: ignore[method-assign]
    one.table.allocate("hyperty://d/1", listener)
    one.table.subscribe(TO, listener)
    everybody, heard = one.transport.barrier(), one.entries.heard()
    assert everybody is not None
    assert heard is not None
    await asyncio.wait_for(heard, 10)
    assert heard_at(other) == {listener.id}
    assert not everybody.done()
    layer.send = send  # type: ignore[method-assign]
    layer.loses = lambda message: False


def _only(layer: LossyLayer, inbox: str) -> Any:
    """Loses what would be lost if it is for this inbox, and nothing else."""

    async def send(channel: str, message: dict[str, Any]) -> None:
        if channel != inbox or not layer.loses(message):
            await layer._layer.send(channel, message)

    return send


async def test_w5_of_two_that_subscribe_and_send_at_once_one_finds_the_other(three: Three) -> None:
    one, other, third, _ = three
    for number in range(100):
        to = f"comm://d/{number}/changes"
        listeners = {each.enter().id: each for each in (one, third)}
        sending = asyncio.create_task(other.watch(to))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        for id_, worker in listeners.items():
            worker.table.subscribe(to, worker.sessions[id_])
        await sending
        for worker in (one, third):
            heard = worker.entries.heard()
            if heard is not None:
                await asyncio.wait_for(heard, 10)
        assert heard_at(other, to) == set(listeners)


@pytest.mark.parametrize("is_watched_before", [False, True])
async def test_w5_while_a_listener_moves_everybody_reaches_it(
    three: Three, is_watched_before: bool
) -> None:
    one, other, third, _ = three
    listener = one.enter()
    one.table.subscribe(TO, listener)
    await one.settled()
    if is_watched_before:
        await asyncio.gather(other.watch(TO), third.watch(TO))
    coming = asyncio.create_task(other.moves.fetch(listener.id))
    number = 0
    while not coming.done():
        await third.watch(TO)
        (at,) = third.table.listeners(TO)
        at.deliver(b"%d" % number)
        number += 1
        await asyncio.sleep(0)
    await coming
    arrived = other.sessions[listener.id]
    assert heard_at(other) == {listener.id}
    for worker in (one, third):
        await worker.watch(TO)
        assert heard_at(worker) == {listener.id}
    third.table.touch(third.enter())
    await third.settled()
    await eventually()
    await _until(lambda: len(arrived.frames) == number)
    assert arrived.frames == [b"%d" % each for each in range(number)]
    other.end(arrived)
    await other.settled()
    assert not heard_at(one)
    assert not heard_at(third)


async def test_w9_what_was_not_sent_to_for_longest_is_watched_no_longer(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _, _ = three
    monkeypatch.setattr(interest, "MOST_WATCHED", 10)
    listener = one.enter()
    for number in range(30):
        to = f"comm://d/{number}/changes"
        one.table.subscribe(to, listener)
        await other.watch(to)
        assert other.homes.hears("comm://d/0/changes") or number > 20
        other.homes.hears("comm://d/0/changes")
    assert other.table.sizes["subscribed_addresses"] == 10
    assert heard_at(other, "comm://d/0/changes")
    assert not heard_at(other, "comm://d/1/changes")
    other.table.touch(other.enter())
    await other.settled()
    one.table.subscribe("comm://d/1/changes", one.enter())
    await one.settled()
    assert not heard_at(other, "comm://d/1/changes")
    await other.watch("comm://d/1/changes")
    assert len(heard_at(other, "comm://d/1/changes")) == 2


async def test_w7_who_could_not_be_found_out_is_told_of_a_gap_and_nobody_else(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _, layer = three
    monkeypatch.setattr(homes, "LIMIT", 0.3)
    known, unknown = one.enter(), other.enter()
    one.table.subscribe(TO, known)
    other.table.subscribe(TO, unknown)
    await one.settled()
    await other.settled()
    sender = one  # which has not sent anything there yet
    layer.loses = lambda message: (
        "number" in message and message["epoch"] == other.transport.me.epoch
    )
    with pytest.raises(Pending) as pending:
        sender.homes.find("key", (), [TO])
    given_up = asyncio.Event()
    pending.value.when_known(given_up.set)
    await asyncio.wait_for(given_up.wait(), 20)
    sender.homes.find("key", (), [TO])  # not held up any longer
    assert heard_at(sender) == {known.id}
    layer.loses = lambda message: False

    def is_told() -> bool:
        sender.interest.look_after()
        return bool(other.gaps)

    await _until(is_told)
    assert set(other.gaps) == {unknown.id}
    assert one.gaps == []
    assert heard_at(sender) == {known.id, unknown.id}


async def test_w11_after_an_engine_came_back_empty_subscriptions_are_heard_of_again(
    tmp_path: Path,
) -> None:
    server = RedisServer(tmp_path)
    server.start()
    layers = [StreamChannelLayer([server.url]) for _ in range(2)]
    secret = uuid.uuid4().hex
    one = await Housed(layers[0], "one", secret, server.url).start()
    other = await Housed(layers[1], "other", secret, server.url).start(one)
    kept = [asyncio.create_task(each.entries.run()) for each in (one, other)]
    before, during = one.enter(), one.enter()
    one.table.subscribe(TO, before)
    await one.settled()
    await other.watch(TO)
    server.stop()
    await _until(lambda: not one.transport.hears_itself)
    one.table.subscribe(f"{TO}/2", during)
    server.start()
    operator = RedisClient(server.url)
    await operator.start()
    await _until(lambda: one.entries.is_filled and other.entries.is_filled)
    await _until(lambda: not one.interest._owed and one.transport.hears_itself)
    directory = Directory(server.url, one.transport.node)
    await directory.start()
    found = await directory.find((), (), {(Kind.LISTENERS, f"{TO}/2"), (Kind.LISTENERS, TO)})
    assert found.is_whole

    async def is_heard(*addresses: str) -> None:
        async with asyncio.timeout(20):
            while not all(map(other.homes.hears, addresses)):
                try:
                    other.homes.find("key", (), addresses)
                except Pending as fact:
                    known = asyncio.Event()
                    fact.when_known(known.set)
                    await known.wait()
                await asyncio.sleep(0.05)

    await is_heard(TO, f"{TO}/2")
    assert heard_at(other) == {before.id}
    assert heard_at(other, f"{TO}/2") == {during.id}
    later = one.enter()
    one.table.subscribe(TO, later)
    await one.settled()
    assert heard_at(other) == {before.id, later.id}
    for task in kept:
        task.cancel()
    await asyncio.gather(*(each.transport.stop() for each in (one, other)))
    await asyncio.gather(*(each.entries.stop() for each in (one, other)))
    await asyncio.gather(directory.close(), operator.close(), *(each.close() for each in layers))
    server.stop()


async def _until(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await eventually()
