"""Who listens to what is told to the workers that send there, and to no other: on a real Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from msgnode.core.pending import Pending
from msgnode.redis.channel_layer import StreamChannelLayer
from msgnode.redis.client import RedisClient
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import Full
from msgnode.workers import homes, interest
from tests import waiting
from tests.node import eventually
from tests.redis.servers import RedisServer
from tests.workers.cluster import MOST_FRAMES, Fellow, LossyLayer
from tests.workers.test_homes import Housed

TO = "comm://d/1/changes"
HELD = "hyperty://d/1"

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
    (inbox,) = (linked.inbox for linked in one.transport.others.values() if linked.name == "third")
    send, layer.send = layer.send, _only(layer, inbox)  # type: ignore[method-assign]
    one.table.allocate("hyperty://d/1", listener)
    one.table.subscribe(TO, listener)
    everybody, heard = one.transport.barrier(), one.names.barrier()
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
            heard = worker.names.barrier()
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
    await other.know(listener)
    coming = asyncio.create_task(other.moves.fetch(listener.id))
    number = 0
    while not coming.done() and number < MOST_FRAMES:
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
    third.says_something()
    await third.settled()
    await eventually()
    await waiting.so(lambda: len(arrived.frames) == number)
    assert arrived.frames == [b"%d" % each for each in range(number)]
    other.end(arrived)
    await other.settled()
    assert not heard_at(one)
    assert not heard_at(third)


async def test_w4_who_asks_where_a_session_was_is_told_where_it_is(three: Three) -> None:
    one, other, third, _ = three
    session = one.enter()
    one.table.allocate(HELD, session)
    await one.settled()
    await other.know(session)
    await other.moves.fetch(session.id)
    await other.settled()
    epochs = [f"={each.transport.me.epoch}" for each in (one, other)]
    one.in_redis.claim(Kind.NAME, HELD, epochs[0])  # as who read it before the move found it
    one.in_redis.release(Kind.NAME, HELD, epochs[1])
    await one.in_redis.members(Kind.NAME, [HELD])
    await third.watch(HELD)
    assert third.table.owners[HELD].id == session.id
    third.remotes.by_id[session.id].deliver(b"1")
    await waiting.so(lambda: other.sessions[session.id].frames == [b"1"])


async def test_w4_a_worker_that_stops_knows_where_a_session_went_until_all_others_do(
    three: Three,
) -> None:
    one, other, third, layer = three
    session = one.enter()
    await one.settled()
    await other.know(session)
    remote = await third.know(session)
    one.transport.takes = False
    inbox = third.transport.others[one.transport.me.epoch].inbox
    layer.loses = lambda message: message["epoch"] == third.transport.me.epoch
    send, layer.send = layer.send, _only(layer, inbox)  # type: ignore[method-assign]
    remote.deliver(b"1")
    coming = asyncio.create_task(other.moves.fetch(session.id))
    await waiting.so(lambda: not one.names.holds(session.runtime_url))
    other.announcements.tell_at(session.runtime_url, [one.transport.me.epoch])
    await waiting.so(lambda: remote.worker.name == "other")
    await waiting.so(lambda: not other.transport.others[one.transport.me.epoch].out.bytes)
    layer.send = send  # type: ignore[method-assign]
    layer.loses = lambda message: False
    await coming
    await waiting.so(lambda: other.sessions[session.id].frames == [b"1"])
    assert not one.strays


async def test_w4_where_nobody_was_a_holder_that_comes_is_told_of(three: Three) -> None:
    one, other, third, _ = three
    for worker in (other, third):
        await worker.watch(HELD)
        assert worker.homes.hears(HELD)
    session = one.enter()
    one.table.allocate(HELD, session)
    assert (heard := one.names.barrier()) is not None
    await asyncio.wait_for(heard, 10)
    assert other.table.owners[HELD].id == third.table.owners[HELD].id == session.id
    one.table.release(HELD, session)
    await one.settled()
    assert not other.table.owners
    assert session.id not in other.remotes.by_id


async def test_w9_what_becomes_of_a_session_is_told_to_who_knows_of_it_and_to_no_other(
    three: Three,
) -> None:
    one, other, third, _ = three
    session = one.enter()
    one.table.allocate(HELD, session)
    await one.settled()
    await other.watch(HELD)
    remote = other.remotes.by_id[session.id]
    session.is_connected = not session.is_connected
    one.table.touch(session)
    await one.settled()
    assert remote.is_connected is session.is_connected
    assert third.table.sizes == {**third.table.sizes, "allocations": 0, "runtimes": 0}
    one.end(session)
    await one.settled()
    assert not other.remotes.by_id
    assert not other.table.runtimes
    assert not one.announcements._told


async def test_a_frame_for_a_session_that_is_gone_is_answered_and_its_copy_goes(
    three: Three,
) -> None:
    one, other, _, _ = three
    session = one.enter()
    one.table.allocate(HELD, session)
    await one.settled()
    await other.watch(HELD)
    remote = other.remotes.by_id[session.id]
    one.announcements._told.clear()  # as if the other had not been told
    one.watchers.names.clear()
    one.end(session)
    remote.deliver(b"late")
    await waiting.so(lambda: one.strays == [b"late"])
    await waiting.so(lambda: session.id not in other.remotes.by_id)
    assert not other.table.owners


async def test_w9_what_was_not_sent_to_for_longest_is_watched_no_longer(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _, _ = three
    monkeypatch.setattr(interest, "MOST_WATCHED", 20)  # of each two: it, and what is above it
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
    other.says_something()
    await other.settled()
    one.table.subscribe("comm://d/1/changes", one.enter())
    await one.settled()
    assert not heard_at(other, "comm://d/1/changes")
    await other.watch("comm://d/1/changes")
    assert len(heard_at(other, "comm://d/1/changes")) == 2


async def test_w9_what_nothing_is_sent_to_is_soon_not_even_in_the_directory(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _, _ = three
    listener = one.enter()
    many = [f"comm://d/{number}/changes" for number in range(250)]  # more than is done at once
    for to in many:
        one.table.subscribe(to, listener)
        await other.watch(to)
    assert heard_at(other, many[-1])
    began = interest.monotonic()
    monkeypatch.setattr(interest, "monotonic", lambda: began + interest.UNUSED_SECONDS / 2)
    other.interest.look_after()
    await other.watch(TO)
    await other.renewal.enter_again(0.0)  # which is no use of a name
    assert other.interest.watches(many[0])
    monkeypatch.setattr(interest, "monotonic", lambda: began + interest.UNUSED_SECONDS + 10)
    other.interest.look_after()
    await waiting.so(lambda: not other.interest.watches(many[-1]))
    assert other.homes.hears(TO)
    assert heard_at(other) == {listener.id}
    assert other.table.sizes["subscribed_addresses"] == 1
    members = await other.in_redis.members(Kind.NAME, many)
    watchers = {to for to, those in members.items() if any(each[:1] == "?" for each in those)}
    assert watchers == {TO}


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
        sender.homes.find("key", [TO])
    given_up = asyncio.Event()
    pending.value.when_known(given_up.set)
    await asyncio.wait_for(given_up.wait(), 20)
    sender.homes.find("key", [TO])  # not held up any longer
    assert heard_at(sender) == {known.id}
    layer.loses = lambda message: False

    def is_told() -> bool:
        sender.renewal.look_after()
        return bool(other.gaps)

    await waiting.so(is_told)
    assert set(other.gaps) == {unknown.id}
    assert one.gaps == []
    assert heard_at(sender) == {known.id, unknown.id}


async def test_w7_whose_response_was_dropped_is_told_of_a_gap_once_it_is_known_who_that_is(
    three: Three,
) -> None:
    one, other, third, _ = three
    asks, listens = other.enter(), third.enter()
    other.table.allocate(HELD, asks)
    third.table.subscribe(TO, listens)
    await other.settled()
    await third.settled()
    one.homes.miss_response(HELD)

    def is_told() -> bool:
        one.renewal.look_after()
        return bool(other.gaps)

    await waiting.so(is_told)
    assert other.gaps == [asks.id]
    assert third.gaps == []
    assert one.interest.missed == []


async def test_w7_who_comes_while_redis_is_full_and_links_are_down_is_heard_of_with_the_links(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _, layer = three
    await other.watch(TO)

    async def refused(*_: Any) -> Any:
        raise Full("Redis is full")

    with monkeypatch.context() as full:
        full.setattr(one.in_redis, "join", refused)
        layer.refuses = True
        for each, away in ((one, other), (other, one)):
            each.transport.down(each.transport.others[away.transport.me.epoch], "is tested")
        listener = one.enter()
        one.table.subscribe(TO, listener)
        await one.settled()
        assert one.watchers.owed == {TO, listener.runtime_url}
    layer.refuses = False
    await waiting.so(lambda: other.homes.hears(TO))  # as before a message: it need not ask
    assert heard_at(other) == {listener.id}


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
    await waiting.so(lambda: not one.transport.hears_itself)
    one.table.subscribe(f"{TO}/2", during)
    server.start()
    operator = RedisClient(server.url)
    await operator.start()
    await waiting.so(lambda: one.presence.is_filled and other.presence.is_filled)
    await waiting.so(lambda: not one.watchers.owed and one.transport.hears_itself)
    directory = Directory(server.url, one.transport.node)
    await directory.start()
    epochs = [each.transport.me.epoch for each in (one, other)]
    async with asyncio.timeout(20):
        while not await directory.are_filled(epochs):
            await eventually()
    assert set(await directory.members(Kind.NAME, [TO, f"{TO}/2"])) == {TO, f"{TO}/2"}

    async def is_heard(*addresses: str) -> None:
        async with asyncio.timeout(20):
            while not all(map(other.homes.hears, addresses)):
                try:
                    other.homes.find("key", addresses)
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


async def test_w11_after_somebody_emptied_redis_who_comes_is_heard_of_at_once(
    three: Three, redis_url: str
) -> None:
    one, other, third, _ = three
    await other.watch(TO)
    await other.watch(HELD)
    await _empty(one, redis_url)  # no connection ends by it
    first = one.enter()
    one.table.subscribe(TO, first)
    third.table.allocate(HELD, third.enter())
    for worker in (one, third):
        assert (heard := worker.names.barrier()) is not None
        await asyncio.wait_for(heard, 10)
    await other.watch(TO, HELD)  # as for a message: it asks only if it knows that it does not know
    assert heard_at(other) == {first.id}
    assert HELD in other.table.owners
    kept = [asyncio.create_task(each.entries.run()) for each in (one, other, third)]
    await waiting.so(lambda: not one.names.tells_all)
    further = one.enter()
    one.table.subscribe(TO, further)
    await one.settled()
    assert heard_at(other) == {first.id, further.id}
    for task in kept:
        task.cancel()


async def test_w4_emptied_while_it_is_asked_redis_does_not_know_that_nobody_is_there(
    three: Three, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _, _ = three
    one.table.allocate(HELD, one.enter())
    await one.settled()
    join = other.in_redis.join

    async def emptied_before(names: Any, member: str) -> Any:
        await _empty(one, redis_url)
        return await join(names, member)

    monkeypatch.setattr(other.in_redis, "join", emptied_before)
    other.homes.look_for([HELD])
    await waiting.so(lambda: other.homes.not_known > 0)
    assert not other.homes.hears(HELD)


async def _empty(worker: Fellow, redis_url: str) -> None:
    """Remove what the workers of this node have in the directory, as FLUSHALL does."""
    operator = RedisClient(redis_url)
    await operator.start()
    keys = await operator.execute("KEYS", f"msgnode:{worker.transport.node}:*")
    await operator.execute("DEL", *keys)
    await operator.close()
