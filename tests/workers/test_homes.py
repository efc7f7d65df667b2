"""Workers that find out from each other who holds an address, on a real Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from msgnode.core.errors import Unavailable
from msgnode.core.pending import Pending
from msgnode.redis.channel_layer import StreamChannelLayer
from msgnode.redis.client import RedisClient
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import Full, Unreachable
from msgnode.workers import homes, interest, own_names
from msgnode.workers.directory_entries import DirectoryEntries, DirectoryPresence
from tests.node import eventually
from tests.workers.cluster import Fellow, LossyLayer

ADDRESS = "hyperty://d/1"
KEY = ("session", b"1")


class Housed(Fellow):
    """A worker that enters what its sessions hold in the directory."""

    def __init__(self, layer: Any, name: str, secret: str, redis_url: str) -> None:
        self._url = redis_url
        super().__init__(layer, name, secret)
        self.presence = DirectoryPresence(self.transport.timeout)
        self.entries = DirectoryEntries(
            self.in_redis, self.transport, self, self.names, self.renewal, self.presence,
            self.homes.forget_unknown,
        )  # fmt: skip

    def directory(self, secret: str) -> Any:
        self.in_redis = Directory(self._url, self.transport.node)
        return self.in_redis

    async def start(self, *others: Fellow) -> Housed:
        await self.entries.start()
        await super().start(*others)
        return self

    async def told(self, *addresses: str, key: Any = KEY, requires: bool = False) -> None:
        """Until it is known who holds addresses, if that has to be asked."""
        ask = self.homes.require if requires else self.homes.find
        await _answered(partial(ask, key, addresses))

    async def told_of_runtime(self, runtime_url: str, key: Any = KEY) -> None:
        """Until it is known which sessions a runtime has."""
        await _answered(partial(self.homes.find_runtime, key, runtime_url))


async def _answered(ask: Callable[[], None]) -> None:
    known = asyncio.Event()
    try:
        ask()
    except Pending as fact:
        fact.when_known(known.set)
        await asyncio.wait_for(known.wait(), 20)
        ask()


Meet = Callable[[], Awaitable[tuple[Housed, Housed, LossyLayer]]]


@pytest.fixture
async def pair(redis_url: str) -> AsyncIterator[tuple[Housed, Housed, LossyLayer]]:
    layer = LossyLayer(StreamChannelLayer([redis_url]))
    secret = uuid.uuid4().hex
    one = await Housed(layer, "one", secret, redis_url).start()
    other = await Housed(layer, "other", secret, redis_url).start(one)
    yield one, other, layer
    await asyncio.gather(*(each.transport.stop() for each in (one, other)))
    await asyncio.gather(*(each.entries.stop() for each in (one, other)))
    await layer.close()


Pair = tuple[Housed, Housed, LossyLayer]


async def test_w8_an_answer_waits_for_the_directory_and_for_no_other_worker(pair: Pair) -> None:
    one, other, layer = pair
    layer.loses = lambda message: "number" in message  # the other is told nothing
    one.table.allocate(ADDRESS, one.enter())
    everybody = one.transport.barrier()
    assert everybody is not None
    found = one.names.barrier()
    assert found is not None
    await asyncio.wait_for(found, 10)
    assert not everybody.done()
    layer.loses = lambda message: False
    await other.told(ADDRESS)
    assert ADDRESS in other.table.owners


async def test_whose_an_address_is_is_asked_for_what_lies_above_it_too(pair: Pair) -> None:
    one, other, layer = pair
    layer.loses = lambda message: "number" in message  # the other is told nothing yet
    holder = one.enter()
    one.table.allocate(ADDRESS, holder)
    asking = asyncio.create_task(other.told(f"{ADDRESS}/children/subscription", requires=True))
    await asyncio.sleep(0)
    assert other.table.owner_of(f"{ADDRESS}/children/subscription") is None
    layer.loses = lambda message: False
    await asyncio.wait_for(asking, 20)
    owner = other.table.owner_of(f"{ADDRESS}/children/subscription")
    assert owner is not None
    assert owner.id == holder.id


@pytest.mark.parametrize(
    "to", ["runtime://d/1", "runtime://d/1/sm", "hyperty-runtime://d/1", "hyperty-runtime://d/1/sm"]
)
async def test_w5_a_runtime_is_found_in_both_spellings_with_all_that_is_below_it(
    pair: Pair, to: str
) -> None:
    one, other, layer = pair
    layer.loses = lambda message: "number" in message  # the other is told nothing yet
    session = one.enter("runtime://d/1")
    asking = asyncio.create_task(other.told(to))
    await asyncio.sleep(0)
    assert not other.table.runtimes
    layer.loses = lambda message: False
    await asyncio.wait_for(asking, 20)
    assert [each.id for each in other.table.runtimes["runtime://d/1"]] == [session.id]


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        ("runtime://d/1", "runtime://d/1"),
        ("runtime://d/1", "hyperty-runtime://d/1"),
        ("runtime://d/1", "runtime://d/1/x/y"),
        ("runtime://d/1/x/y", "runtime://d/1"),
        ("hyperty-runtime://d/1/x/y", "runtime://d/1"),
    ],
)
async def test_before_a_runtime_gets_a_session_those_there_above_and_below_are_known(
    pair: Pair, there: str, asked: str
) -> None:
    one, other, layer = pair
    layer.loses = lambda message: "number" in message
    one.enter(there)
    asking = asyncio.create_task(other.told_of_runtime(asked))
    await asyncio.sleep(0)
    layer.loses = lambda message: False
    await asyncio.wait_for(asking, 20)
    assert there in other.table.runtimes


async def test_a_session_that_cannot_be_heard_of_is_in_the_way_of_its_runtime_and_of_no_other(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "LIMIT", 0.3)
    one, other, layer = pair
    layer.loses = lambda message: "number" in message
    one.enter("runtime://d/1")
    with pytest.raises(Unavailable, match="cannot be found"):
        await other.told_of_runtime("runtime://d/1")
    await other.told_of_runtime("runtime://d/2")
    layer.loses = lambda message: False
    async with asyncio.timeout(20):
        while "runtime://d/1" not in other.table.runtimes:
            await eventually()
            with suppress(Unavailable):
                await other.told_of_runtime("runtime://d/1")


async def test_while_the_directory_is_away_a_runtime_may_come(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, _ = pair

    async def away(*_: Any) -> Any:
        raise Unreachable("away")

    monkeypatch.setattr(Directory, "members", away)
    await one.told_of_runtime("runtime://d/1")


async def test_while_the_directory_is_full_a_runtime_may_come_that_it_does_not_name(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _ = pair
    one.enter("runtime://d/1")
    await one.settled()

    async def full(*_: Any) -> Any:
        raise Full("full")

    monkeypatch.setattr(Directory, "join", full)
    with pytest.raises(Unavailable):
        await other.told_of_runtime("runtime://d/1")
    await other.told_of_runtime("runtime://d/2")


async def test_what_a_worker_left_that_has_ended_and_was_taken_over_is_nobodys(pair: Pair) -> None:
    one, other, layer = pair
    layer.loses = lambda message: "number" in message
    one.enter("runtime://d/1")
    assert (found := one.names.barrier()) is not None
    await found
    other.transport.forget(other.transport.others[one.transport.me.epoch])
    with pytest.raises(Unavailable):  # what it had has not been taken yet
        await other.told_of_runtime("runtime://d/1")
    other.retired.add(one.transport.me.epoch)
    other.homes.forget_unknown()
    await other.told_of_runtime("runtime://d/1")
    await other.told("runtime://d/1/sm")
    assert other.homes.is_known("runtime://d/1/sm")


async def test_w7_what_a_dead_worker_only_spoke_as_is_free_and_what_it_held_is_not_known(
    pair: Pair,
) -> None:
    one, other, layer = pair
    layer.loses = lambda message: "number" in message
    session = one.enter()
    one.table.learn("comm://d/spoken", session)
    one.table.allocate(ADDRESS, session)
    assert (found := one.names.barrier()) is not None
    await found
    other.ended.add(one.transport.me.epoch)
    other.transport.forget(other.transport.others[one.transport.me.epoch])
    await other.told("comm://d/spoken", requires=True)
    with pytest.raises(Unavailable):
        await other.told(ADDRESS, requires=True)


async def test_w4_whose_session_is_taken_over_is_entered_before_the_dead_one_is_taken_out(
    pair: Pair,
) -> None:
    one, _, _ = pair
    entries: list[set[str]] = []
    release = one.in_redis.release

    def releases(kind: Kind, name: str, member: str) -> None:
        entries.append(set(entered))
        release(kind, name, member)

    entered: set[str] = set()
    join = one.in_redis.join

    async def joins(names: Collection[str], member: str) -> dict[str, set[str]]:
        found = await join(names, member)
        entered.update(names)
        return found

    one.in_redis.release, one.in_redis.join = releases, joins  # type: ignore[method-assign]
    one.in_redis.claim(Kind.NAME, ADDRESS, "=dead")
    one.table.allocate(ADDRESS, one.enter())
    one.names.taken([ADDRESS], [], "dead")
    await one.settled()
    assert entries == [{ADDRESS, *one.table.runtimes}]
    assert "=dead" not in (await one.in_redis.members(Kind.NAME, [ADDRESS]))[ADDRESS]


async def test_of_workers_that_a_directory_names_and_nobody_knows_only_so_many_are_remembered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_names, "_MOST_UNKNOWN", 5)
    one, _, _ = pair
    epochs = {f"nobody {number}" for number in range(20)}
    one.retired |= epochs
    for epoch in epochs:
        one.in_redis.claim(Kind.NAME, ADDRESS, f"={epoch}")
    await one.told(ADDRESS)
    assert one.homes.is_known(ADDRESS)
    assert len(one.names._unknown) == 5


async def test_w4_a_directory_that_lies_is_asked_again_and_harms_nobody(pair: Pair) -> None:
    one, other, _ = pair
    unknown = {"", "nobody", "\N{SNOWMAN}"}  # epochs nobody has registered
    for each in (one, other):
        each.retired |= unknown
    for name in (ADDRESS, "hyperty://d/nobodys"):
        for kind in ("", "=", "?", "~"):
            for epoch in (*unknown, one.transport.me.epoch):
                other.in_redis.claim(Kind.NAME, name, kind + epoch)
    session = one.enter()
    one.table.allocate(ADDRESS, session)
    await one.settled()
    await other.told("hyperty://d/nobodys")
    assert other.homes.is_known("hyperty://d/nobodys")
    assert other.table.listeners("hyperty://d/nobodys") == ()
    await other.told(ADDRESS)
    assert other.table.owners[ADDRESS].id == session.id


async def test_w4_what_nobody_holds_is_asked_once_and_heard_of_when_somebody_does(
    pair: Pair,
) -> None:
    one, other, _ = pair
    for _ in range(2):
        await one.told(ADDRESS)
        assert one.homes.is_known(ADDRESS)
        assert (one.homes.asked, one.homes.not_known) == (1, 0)
    session = other.enter()
    other.table.allocate(ADDRESS, session)
    await other.settled()
    assert one.table.owners[ADDRESS].id == session.id


async def test_w4_what_its_home_cannot_be_asked_for_is_not_known_and_soon_asked_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "LIMIT", 0.3)
    one, other, layer = pair
    layer.loses = lambda message: "number" in message
    one.table.allocate(ADDRESS, one.enter())
    await other.told(ADDRESS)
    assert not other.homes.is_known(ADDRESS)
    await other.told("hyperty://d/another")
    assert other.homes.is_known("hyperty://d/another")
    for about in (ADDRESS, f"{ADDRESS}/subscription"):
        with pytest.raises(Unavailable, match="cannot be found out"):
            await other.told(about, key=about, requires=True)
    other.homes.find(KEY, [ADDRESS])  # not asked again at once
    layer.loses = lambda message: False
    async with asyncio.timeout(20):
        while not other.homes.is_known(ADDRESS):
            await eventually()
            await other.told(ADDRESS)
    assert ADDRESS in other.table.owners


async def test_a_home_that_does_not_answer_holds_up_only_who_needs_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "LIMIT", 1000.0)
    one, other, layer = pair
    layer.loses = lambda message: "number" in message
    one.table.allocate(ADDRESS, one.enter())
    waits = asyncio.create_task(other.told(ADDRESS))
    await asyncio.sleep(0)  # both are asked in one turn
    await other.told("hyperty://d/another", key=("session", b"2"))
    assert not waits.done()
    layer.loses = lambda message: False
    await asyncio.wait_for(waits, 20)
    assert ADDRESS in other.table.owners


async def test_w4_what_the_directory_still_names_and_its_home_does_not_is_nobodys(
    pair: Pair,
) -> None:
    one, other, _ = pair
    session = one.enter()
    one.table.allocate(ADDRESS, session)
    await one.settled()
    del one.table.owners[ADDRESS]
    await other.told(ADDRESS)
    assert other.homes.is_known(ADDRESS)


async def test_w11_an_engine_that_lost_its_data_says_nobody_only_once_it_is_filled_again(
    pair: Pair, redis_url: str
) -> None:
    one, other, layer = pair
    layer.loses = lambda message: "number" in message
    one.table.allocate(ADDRESS, one.enter())
    assert (found := one.names.barrier()) is not None
    await found
    operator = RedisClient(redis_url)
    await operator.start()
    keys = await operator.execute("KEYS", f"msgnode:{one.transport.node}:*")
    await operator.execute("DEL", *keys)
    await operator.close()
    await other.told("hyperty://d/another")
    assert not other.homes.is_known("hyperty://d/another")
    layer.loses = lambda message: False
    running = [asyncio.create_task(each.entries.run()) for each in (one, other)]
    async with asyncio.timeout(20):
        while not other.homes.is_known("hyperty://d/another"):
            await eventually()
            await other.told("hyperty://d/another")
    await other.told(ADDRESS)
    assert ADDRESS in other.table.owners
    for task in running:
        task.cancel()


async def test_what_ends_is_not_in_the_directory_any_more(pair: Pair, redis_url: str) -> None:
    one, _, _ = pair
    session = one.enter("runtime://d/deep/below")
    one.table.allocate(ADDRESS, session)
    one.table.allocate("hyperty://d/2", session)
    one.table.release(ADDRESS, session)
    one.end(session)
    await one.in_redis.members(Kind.NAME, [ADDRESS])  # behind all that was said
    operator = RedisClient(redis_url)
    await operator.start()
    left = await operator.execute("KEYS", f"msgnode:{one.transport.node}:[nb]:*")
    await operator.close()
    assert left == []


async def test_what_one_message_asks_about_many_names_is_asked_in_parts_and_others_between(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other, _ = pair
    joined: list[int] = []
    join = Directory.join

    async def counted(self: Directory, names: Collection[str], member: str) -> Any:
        joined.append(len(names))
        return await join(self, names, member)

    monkeypatch.setattr(Directory, "join", counted)
    monkeypatch.setattr(homes, "LIMIT", 20.0)  # many names take long on a busy machine
    many = [f"hyperty://d/{number}" for number in range(4_000)]
    with pytest.raises(Pending) as pending:
        other.homes.find(("session", b"many"), many)
    assert pending.value.cost == homes.NAME_COST * len(many)
    all_known, known = asyncio.Event(), list[str]()
    pending.value.when_known(lambda: (known.append("many"), all_known.set()))
    await asyncio.sleep(0)
    with pytest.raises(Pending) as pending:
        other.homes.find(("session", b"one"), [ADDRESS])
    pending.value.when_known(lambda: known.append("one"))
    await asyncio.wait_for(all_known.wait(), 30)
    assert known == ["one", "many"]
    other.homes.find(("session", b"many"), many)
    assert all(map(other.homes.is_known, many))
    assert max(joined) <= 2 * own_names.AT_ONCE
    assert sum(joined) >= len(many)


async def test_w4_an_address_that_was_pushed_out_since_it_was_asked_for_is_not_known(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _ = pair
    monkeypatch.setattr(interest, "MOST_WATCHED", 10)
    one.table.allocate(ADDRESS, one.enter())
    await other.told(ADDRESS)
    await other.told(*(f"hyperty://d/other-{number}" for number in range(20)), key=("s", b"2"))
    assert ADDRESS not in other.table.owners
    assert not other.homes.is_known(ADDRESS)


async def test_what_was_asked_for_a_message_that_is_not_carried_again_is_soon_forgotten(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other, _ = pair
    monkeypatch.setattr(interest, "MOST_WATCHED", 1)
    monkeypatch.setattr(homes, "REMEMBERED", 0.0)
    others = ("session", b"2")
    for key in (KEY, others):
        with pytest.raises(Pending) as pending:
            other.homes.find(key, [f"hyperty://d/{key[1].decode()}"])
        known = asyncio.Event()
        pending.value.when_known(known.set)
        await asyncio.wait_for(known.wait(), 20)
    with pytest.raises(Pending):
        other.homes.find(KEY, [f"hyperty://d/{KEY[1].decode()}"])


async def test_a_session_that_held_many_addresses_is_removed_from_the_directory_in_parts(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, _ = pair
    holder = one.enter()
    held = [f"hyperty://d/{number}" for number in range(1_000)]
    for address in held:
        one.table.allocate(address, holder)
    await one.settled()
    released: list[str] = []
    release = Directory.release
    monkeypatch.setattr(
        Directory, "release", lambda *call: (released.append(call[2]), release(*call))
    )
    for address in held[:-1]:
        one.table.release(address, holder)
    one.table.release(held[-1], holder)
    one.table.allocate(held[-1], holder)  # again before its entry was removed
    assert released == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < len(released) <= 2 * own_names.AT_ONCE
    async with asyncio.timeout(20):
        while len(released) < len(held) - 1:
            await eventually()
    assert set(released) == set(held[:-1])
    found = await one.in_redis.members(Kind.NAME, held)
    assert set(found) == {held[-1]}
