"""Workers joined by a channel layer: the same suite on the layer in memory and on a real Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from channels.layers import InMemoryChannelLayer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msgnode.bus.ports import DeliveryResult, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending
from msgnode.redis.channel_layer import StreamChannelLayer
from msgnode.redis.directory import Kind
from msgnode.workers import homes
from msgnode.workers.handover import MAX_CONCURRENT
from msgnode.workers.linked_worker import LinkedWorker
from msgnode.workers.protocol import (
    PROTOCOL,
    Backpressure,
    LostFrames,
    PlainFrame,
    RequestSession,
    TransferBegin,
    decode,
)
from tests import waiting
from tests.node import eventually
from tests.workers.cluster import MOST_FRAMES, PATIENCE, Fellow, LossyLayer, Meet


@pytest.fixture(params=["memory", "redis"])
async def layer(request: pytest.FixtureRequest) -> AsyncIterator[LossyLayer]:
    if request.param == "memory":
        yield LossyLayer(InMemoryChannelLayer(capacity=20))  # soon full: then it refuses
        return
    redis = StreamChannelLayer([request.getfixturevalue("redis_url")])
    yield LossyLayer(redis)
    await redis.close()


@pytest.fixture
async def meet(layer: LossyLayer) -> AsyncIterator[Meet]:
    """Workers that know each other: `one, other = await meet(2)`."""
    secret = uuid.uuid4().hex
    there: list[Fellow] = []

    async def meet(number: int, **options: Any) -> list[Fellow]:
        for _ in range(number):
            fellow = Fellow(layer, f"worker-{len(there)}", secret, **options)
            there.append(await fellow.start(*there))
        return there

    yield meet
    await asyncio.gather(*(fellow.transport.stop() for fellow in there))


async def test_what_one_worker_routes_all_do_that_send_there(meet: Meet) -> None:
    one, other, third = await meet(3)
    session = one.enter("runtime://d/1")
    names = "comm://d/1/changes", "hyperty://d/1", "runtime://d/1"
    await asyncio.gather(*(each.watch(*names) for each in (other, third)))
    one.table.allocate("hyperty://d/1", session)
    one.table.subscribe("comm://d/1/changes", session)
    await one.settled()
    assert one.seen() == other.seen() == third.seen()
    assert other.table.listeners("hyperty://d/1")[0].id == session.id
    one.end(session)
    await one.settled()
    assert other.seen() == third.seen() == one.seen()
    assert not other.table.owners
    assert not other.remotes.by_id


async def test_w9_a_worker_that_comes_later_copies_nothing_and_finds_all(meet: Meet) -> None:
    (one,) = await meet(1)
    for number in range(300):
        session = one.enter(f"runtime://d/{number}")
        one.table.allocate(f"hyperty://d/{number}", session)
        one.table.subscribe(f"comm://d/{number}/changes", session)
    await one.settled()
    one, other = await meet(1)
    assert not other.remotes.by_id
    await other.watch(*(f"comm://d/{number}/changes" for number in range(300)))
    assert len(other.remotes.by_id) == 300
    assert not other.table.owners
    await other.watch(*(f"hyperty://d/{number}" for number in range(300)))
    assert other.seen() == one.seen()


async def test_a_worker_that_comes_waits_for_who_does_not_answer_and_knows_all_then(
    meet: Meet, layer: LossyLayer
) -> None:
    """However long that takes: what it does not know it would answer 404."""
    (one,) = await meet(1)
    one.table.allocate("hyperty://d/1", one.enter())
    layer.loses = lambda message: "number" in message  # its snapshot
    coming = asyncio.create_task(meet(1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(coming), 2 * PATIENCE)
    layer.loses = lambda message: False
    one, other = await asyncio.wait_for(coming, 20)
    assert other.transport.knows({one.transport.me.epoch})
    assert not other.transport.knows({"somebody who was not heard of"})


async def test_a_worker_knows_by_itself_that_the_layer_does_not_work_for_it(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other = await meet(2)
    assert one.transport.hears_itself
    layer.loses = lambda message: message["epoch"] == one.transport.me.epoch
    await waiting.so(lambda: not one.transport.hears_itself)
    assert other.transport.hears_itself
    layer.loses = lambda message: False
    await waiting.so(lambda: one.transport.hears_itself)


@pytest.mark.parametrize("protocol", [{}, {"protocol": 1}, {"protocol": PROTOCOL + 1}])
async def test_a_worker_that_speaks_another_protocol_is_named_once_and_no_peer(
    meet: Meet, layer: LossyLayer, protocol: dict[str, int]
) -> None:
    one, other = await meet(2)
    beat = {"type": "worker.beat", "epoch": "another", "name": "of another version", **protocol}
    for _ in range(3):
        await layer.group_send(one.transport.inbox.group, beat)
    await waiting.so(lambda: "worker-protocol" in one.alarms)
    await one.settled()
    assert one.alarms == ["worker-protocol"]
    assert list(one.transport.others) == [other.transport.me.epoch]
    assert not one.transport.knows({"another", other.transport.me.epoch})


async def test_while_a_worker_is_down_it_is_not_known_what_all_have(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other = await meet(2)
    (linked,) = one.transport.others.values()
    assert one.transport.knows({other.transport.me.epoch})
    one.transport.down(linked, "is tested")
    assert not one.transport.knows(set())
    await waiting.so(lambda: one.transport.knows({other.transport.me.epoch}))
    one.transport.forget(linked)
    assert one.transport.knows(set())


async def test_a_beat_names_no_link_once_all_have_what_they_must_know(
    meet: Meet, layer: LossyLayer
) -> None:
    workers = await meet(4)
    one, other, third, _ = workers
    beats: dict[str, dict[str, Any]] = {}

    def hears(message: dict[str, Any]) -> bool:
        if message["type"] == "worker.beat":
            beats[message["epoch"]] = message["links"]
        return False

    layer.loses = hears
    await waiting.so(lambda: len(beats) == 4 and not any(beats.values()))
    epochs = {each.transport.me.epoch for each in workers}
    assert all(each.transport.knows(epochs - {each.transport.me.epoch}) for each in workers)

    # One of them begins a stream anew, and nothing of it comes: only these two talk of it.
    there = one.transport.others[other.transport.me.epoch]
    layer.loses = lambda message: (
        hears(message)
        or (message["type"] == "worker.batch" and message["epoch"] == one.transport.me.epoch)
    )
    one.transport.links._begin(there)
    await waiting.so(lambda: not other.transport.knows(set()))
    named = {other.transport.me.epoch: there.out.stream}
    assert beats == {each: named if each == one.transport.me.epoch else {} for each in epochs}
    assert third.transport.knows(epochs - {third.transport.me.epoch})
    layer.loses = hears
    await waiting.so(lambda: other.transport.knows(set()) and not any(beats.values()))


async def test_a_worker_that_was_taken_for_dead_hears_that_nothing_is_known_of_it(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other = await meet(2)
    await waiting.so(lambda: all(each.transport.knows(set()) for each in (one, other)))
    one.transport.forget(one.transport.others[other.transport.me.epoch])
    await waiting.so(lambda: not other.transport.knows(set()))


async def test_frames_come_in_order_and_a_fan_out_is_sent_once(meet: Meet) -> None:
    one, other = await meet(2)
    listeners = [other.enter() for _ in range(20)]
    for listener in listeners:
        other.table.subscribe("comm://d/1/changes", listener)
    await other.settled()
    await one.watch("comm://d/1/changes")
    remotes = one.table.listeners("comm://d/1/changes")
    for number in range(200):
        frame = b"frame %d" % number
        for remote in remotes:
            assert remote.deliver(frame) is DeliveryResult.WRITTEN
        if number % 10 == 0:
            await asyncio.sleep(0)
    one.says_something()
    await one.settled()
    for listener in listeners:
        assert listener.frames == [b"frame %d" % number for number in range(200)]


async def test_w12_a_frame_for_5000_listeners_is_sent_once_to_each_worker_that_has_some(
    meet: Meet, layer: LossyLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "LIMIT", 20.0)  # a machine may be busy with ten workers
    sender, _, *listening = await meet(10)
    there = {each.transport.me.name: [each.enter() for _ in range(625)] for each in listening}
    for worker in listening:
        for listener in there[worker.transport.me.name]:
            worker.table.subscribe("comm://d/1/changes", listener)
        await worker.settled()
    await sender.watch("comm://d/1/changes")
    batches: dict[tuple[str, int], list[set[str]]] = {}  # one that is sent again counts once

    def note(message: dict[str, Any]) -> bool:
        if message["epoch"] == sender.transport.me.epoch and "number" in message:
            frames = [each for each in decode(message["words"]) if isinstance(each, PlainFrame)]
            batch = message["stream"], message["number"]
            batches[batch] = [set(each.sessions) for each in frames]
        return False

    layer.loses = note
    frame = b"x" * 1000
    for remote in sender.table.listeners("comm://d/1/changes"):
        assert remote.deliver(frame) is DeliveryResult.WRITTEN
    sender.says_something()
    await sender.settled()
    sent = [sorted(sessions) for frames in batches.values() for sessions in frames]
    assert sorted(sent) == sorted(sorted(each.id for each in some) for some in there.values())
    assert all(each.frames == [frame] for sessions in there.values() for each in sessions)


async def test_links_on_which_nothing_is_said_cost_nothing_and_stay_up(
    meet: Meet, layer: LossyLayer
) -> None:
    workers = await meet(3)
    sent: list[str] = []

    def count(message: dict[str, Any]) -> bool:
        sent.append(message["type"])
        return False

    await waiting.so(lambda: all(not other.out.bytes for one in workers for other in _others(one)))
    layer.loses = count
    await waiting.so(lambda: sent.count("worker.beat") >= 15, 20)
    assert sent.count("worker.batch") <= 6, "the last acknowledgements, one for each link"
    assert all(other.is_up for one in workers for other in _others(one))


async def test_an_acknowledgement_that_was_lost_is_said_again(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other = await meet(2)
    (there,) = _others(other)
    (linked,) = _others(one)
    await waiting.so(lambda: not linked.out.bytes)
    number, lost = there.incoming.next, 0

    def loses(message: dict[str, Any]) -> bool:
        nonlocal lost
        is_answer = message["type"] == "worker.batch" and message["epoch"] != one.transport.me.epoch
        lost += is_answer and message["have"][1] > number
        return is_answer

    layer.loses = loses
    one.says_something()
    await waiting.so(lambda: lost > 2)
    assert linked.out.bytes
    layer.loses = lambda message: False
    await waiting.so(lambda: not linked.out.bytes)


async def test_signs_of_life_do_not_overtake_what_was_sent_before(meet: Meet) -> None:
    one, other = await meet(2)
    here, there = one.enter(), other.enter()
    await one.settled()
    await other.settled()
    to_there = await one.know(there)
    to_here = await other.know(here)
    number = 0
    for _ in range(10):  # ten times the interval of the signs
        limit = asyncio.get_running_loop().time() + PATIENCE / 10
        while asyncio.get_running_loop().time() < limit:
            to_there.deliver(b"%d" % number)
            to_here.deliver(b"%d" % number)
            number += 1
            await asyncio.sleep(0)
        one.says_something()
        other.says_something()
        await one.settled()
        await other.settled()
    assert here.frames == there.frames == [b"%d" % each for each in range(number)]
    for worker in (one, other):
        assert worker.alarms == worker.gaps == []


async def test_what_the_layer_loses_is_noticed_counted_and_sent_again(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other = await meet(2)
    session = other.enter()
    await other.settled()
    remote = await one.know(session)
    lost = iter([True, True, False, True])
    layer.loses = lambda message: "number" in message and next(lost, False)
    for number in range(20):
        remote.deliver(b"%d" % number)
        one.says_something()
        await one.settled()
    assert session.frames == [b"%d" % number for number in range(20)]
    (linked,) = other.transport.others.values()
    assert linked.incoming.gaps >= 1
    assert linked.incoming.missed >= 1
    assert "worker-gap" in other.alarms
    assert other.gaps == []


async def test_while_the_layer_refuses_everything_waits(meet: Meet, layer: LossyLayer) -> None:
    one, other = await meet(2)
    session = other.enter()
    await other.settled()
    remote = await one.know(session)
    layer.refuses = True
    for number in range(10):
        remote.deliver(b"%d" % number)
        await asyncio.sleep(0)
    one.says_something()
    barrier = one.transport.barrier()
    assert barrier is not None
    assert not barrier.done()
    layer.refuses = False
    await asyncio.wait_for(barrier, 10)
    assert session.frames == [b"%d" % number for number in range(10)]


async def test_what_is_given_up_is_told_to_the_sessions_that_miss_it(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other = await meet(2)
    missing, whole = other.enter(), other.enter()
    await other.settled()
    remote = await one.know(missing)
    layer.loses = lambda message: True
    remote.deliver(b"never comes")
    one.says_something()
    barrier = one.transport.barrier()
    assert barrier is not None
    await asyncio.wait_for(barrier, 10)  # a worker that is not heard of is waited for no longer
    assert remote.deliver(b"nor this") is DeliveryResult.DROPPED
    assert "worker-down" in one.alarms
    layer.loses = lambda message: False
    await waiting.so(lambda: missing.id in other.gaps)
    assert whole.id not in other.gaps
    assert remote.deliver(b"again") is DeliveryResult.WRITTEN
    await waiting.so(lambda: missing.frames == [b"again"])
    (there,) = one.table.runtimes[missing.runtime_url]
    assert there is remote


async def test_a_full_link_holds_its_senders_back_and_is_relieved(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other = await meet(2, link_bytes=100_000)
    session = other.enter()
    await other.settled()
    remote = await one.know(session)
    layer.refuses = True
    relieved: list[int] = []
    taken = [remote.deliver(b"%d" % number * 1000) for number in range(60)]
    assert taken[0] is DeliveryResult.WRITTEN
    assert DeliveryResult.BEHIND in taken
    assert DeliveryResult.DROPPED in taken
    remote.when_writable(lambda: relieved.append(1))
    assert not relieved
    layer.refuses = False
    await waiting.so(lambda: bool(relieved))
    await waiting.so(lambda: len(session.frames) == 60 - taken.count(DeliveryResult.DROPPED))
    await waiting.so(lambda: other.gaps == [session.id])


async def test_a_slow_reader_holds_back_the_senders_of_all_workers(meet: Meet) -> None:
    one, other = await meet(2)
    session = other.enter()
    await other.settled()
    remote = await one.know(session)
    session.taken = DeliveryResult.BEHIND
    callbacks: list[Any] = []
    session.when_writable = callbacks.append  # type: ignore[method-assign]
    remote.deliver(b"1")
    await waiting.so(lambda: remote.deliver(b"2") is DeliveryResult.BEHIND)
    relieved: list[int] = []
    remote.when_writable(lambda: relieved.append(1))
    session.taken = DeliveryResult.WRITTEN
    callbacks[0]()
    await waiting.so(lambda: bool(relieved))
    assert remote.deliver(b"3") is DeliveryResult.WRITTEN


async def test_a_session_moves_with_its_queue_and_no_frame_overtakes_another(meet: Meet) -> None:
    one, other, third = await meet(3)
    session = one.enter()
    one.table.allocate("hyperty://d/1", session)
    await one.settled()
    await asyncio.gather(*(each.watch("hyperty://d/1") for each in (other, third)))
    remote = third.table.listeners("hyperty://d/1")[0]
    for number in range(10):
        remote.deliver(b"%d" % number)
    bringing = asyncio.create_task(other.moves.fetch(session.id))
    number = 10
    while not bringing.done() and number < MOST_FRAMES:
        remote.deliver(b"%d" % number)
        number += 1
        await asyncio.sleep(0)
    await bringing
    here = other.sessions[session.id]
    third.says_something()
    await third.settled()
    assert here.frames == [b"%d" % each for each in range(number)]
    assert session.id not in one.sessions
    await other.settled()
    assert one.seen() == other.seen() == third.seen()
    assert other.table.owners["hyperty://d/1"] is here


async def test_w6_what_was_on_its_way_to_the_giver_comes_before_what_is_sent_to_the_receiver(
    meet: Meet, layer: LossyLayer
) -> None:
    """Because the acknowledgement that a session has moved comes behind what its sender had sent.

    The links' own acknowledgements are not held up here: with one of them the giver would go on.
    """
    one, other, third = await meet(3)
    session = one.enter()
    one.table.allocate("hyperty://d/1", session)
    await one.settled()
    await asyncio.gather(*(each.watch("hyperty://d/1") for each in (other, third)))
    (remote,) = third.table.listeners("hyperty://d/1")
    third_epoch = third.transport.me.epoch
    layer.loses = lambda message: message.get("epoch") == third_epoch and "number" in message
    for number in range(10):
        remote.deliver(b"%d" % number)
    bringing = asyncio.create_task(other.moves.fetch(session.id))
    giver = third.transport.others[one.transport.me.epoch]
    await waiting.so(lambda: third.remotes.by_id[session.id].worker is not giver)
    for number in range(10, 20):
        third.remotes.by_id[session.id].deliver(b"%d" % number)
    for _ in range(5):  # time enough for acknowledgements that are not held up
        giver.wake.set()
        await eventually()
    assert not bringing.done()
    layer.loses = lambda message: False
    await asyncio.wait_for(bringing, 10)
    third.says_something()
    await third.settled()
    assert other.sessions[session.id].frames == [b"%d" % each for each in range(20)]
    assert one.gaps == other.gaps == third.gaps == []


async def test_w7_a_worker_that_stops_gives_its_sessions_to_one_that_has_just_come(
    meet: Meet,
) -> None:
    one, other = await meet(2)
    session = one.enter()
    await one.moves.give_all(lambda: [session.id], 10)
    assert (list(one.sessions), list(other.sessions)) == ([], [session.id])


async def test_w7_a_worker_that_stops_waits_for_one_that_starts(
    meet: Meet, layer: LossyLayer
) -> None:
    [one] = await meet(1)
    session = one.enter()
    starts = Fellow(layer, "starts", one.secret)
    await starts.transport.start()
    try:
        await waiting.so(lambda: any(other.is_up for other in one.transport.others.values()))
        giving = asyncio.create_task(one.moves.give_all(lambda: [session.id], 10))
        await asyncio.sleep(0)
        assert not giving.done()
        await starts.transport.join({one.transport.me.epoch})
        await giving
        assert (list(one.sessions), list(starts.sessions)) == ([], [session.id])
    finally:
        await starts.transport.stop()


async def test_w7_what_one_that_stops_too_no_longer_takes_goes_to_another(meet: Meet) -> None:
    one, other, third = await meet(3)
    ids = {one.enter().id for _ in range(4 * MAX_CONCURRENT)}
    giving = asyncio.create_task(one.moves.give_all(lambda: list(ids), 20))
    await waiting.so(lambda: bool(other.sessions))
    other.transport.close()
    await giving
    assert not one.sessions
    assert other.sessions.keys() | third.sessions.keys() == ids


async def test_w7_a_frozen_worker_keeps_few_sessions_of_one_that_stops_from_the_others(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other, third = await meet(3)
    one.transport.timeout = 60.0  # until it takes the other for dead
    layer.loses = lambda message: message["epoch"] == other.transport.me.epoch
    ids = {one.enter().id for _ in range(4 * MAX_CONCURRENT)}
    giving = asyncio.create_task(one.moves.give_all(lambda: list(ids), 60))
    await waiting.so(lambda: len(third.sessions) >= len(ids) - MAX_CONCURRENT)
    assert not giving.done()
    giving.cancel()
    await asyncio.wait({giving})


async def test_w7_what_is_on_its_way_to_a_worker_that_stops_is_given_on(meet: Meet) -> None:
    one, other, third = await meet(3)
    session = one.enter()
    session.frames += [b"%d" % number for number in range(MOST_FRAMES)]
    await other.know(session)
    bringing = asyncio.create_task(other.moves.fetch(session.id))
    await _meanwhile(bringing, lambda: other.moves.is_moving(session.id))
    assert not other.sessions
    await other.moves.give_all(lambda: list(other.sessions), 20)
    await bringing
    assert not other.sessions
    (found,) = (*one.sessions.values(), *third.sessions.values())
    assert found.frames == [b"%d" % number for number in range(MOST_FRAMES)]


async def test_w7_what_does_not_arrive_keeps_no_other_session_at_a_worker_that_stops(
    meet: Meet,
) -> None:
    one, other, third = await meet(3)
    stuck = other.enter()
    await one.know(stuck)
    state = other.pack(stuck.id)
    assert state is not None
    link = other.transport.others[one.transport.me.epoch].out
    link.put(TransferBegin(stuck.id, state, []))  # and nothing more
    await waiting.so(lambda: one.moves.is_moving(stuck.id))
    session = one.enter()
    giving = asyncio.create_task(one.moves.give_all(lambda: list(one.sessions), 60))
    await waiting.so(lambda: session.id in {*other.sessions, *third.sessions})
    assert not giving.done()
    giving.cancel()
    await asyncio.wait({giving})


async def test_w7_a_worker_that_stops_waits_for_what_another_has_fetched(meet: Meet) -> None:
    one, other = await meet(2)
    session = one.enter()
    session.frames += [b"%d" % number for number in range(MOST_FRAMES)]
    await other.know(session)
    bringing = asyncio.create_task(other.moves.fetch(session.id))
    await _meanwhile(bringing, lambda: one.moves.is_moving(session.id))
    await one.moves.give_all(lambda: list(one.sessions), 20)
    await one.transport.stop()
    await bringing
    assert other.sessions[session.id].frames == [b"%d" % number for number in range(MOST_FRAMES)]
    assert not other.gaps


async def test_w7_workers_that_all_stop_do_not_wait_for_one_another(meet: Meet) -> None:
    workers = await meet(2)
    for worker in workers:
        worker.transport.close()
    others = [other for worker in workers for other in worker.transport.others.values()]
    await waiting.so(lambda: not any(other.takes or other.is_starting for other in others))
    session = workers[0].enter()
    await asyncio.wait_for(workers[0].moves.give_all(lambda: [session.id], 60), 10)
    assert list(workers[0].sessions) == [session.id]


async def test_a_message_of_a_worker_that_cannot_be_processed_is_counted_and_holds_up_no_other(
    meet: Meet,
) -> None:
    one, other = await meet(2)
    before = FAULTS.counts["worker link"]
    to = one.transport.others[other.transport.me.epoch].out
    to.put(TransferBegin("unknown", b"no session", []))
    to.put(LostFrames([other.enter().id]))
    await waiting.so(lambda: bool(other.gaps))
    assert FAULTS.counts["worker link"] == before + 1


async def test_a_message_that_cannot_be_read_is_counted_and_holds_up_no_other(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other = await meet(2)
    before = FAULTS.counts["worker link"]
    await layer.send(one.transport.inbox.name, {"type": "worker.beat", "epoch": "names nothing"})
    one.says_something()
    other.says_something()
    await asyncio.gather(one.settled(), other.settled())
    assert FAULTS.counts["worker link"] == before + 1


async def test_a_session_that_ends_while_it_moves_has_ended_everywhere(meet: Meet) -> None:
    one, other, third = await meet(3)
    session = one.enter()
    one.table.allocate("hyperty://d/1", session)
    await one.settled()
    await asyncio.gather(*(each.watch("hyperty://d/1") for each in (other, third)))
    session.frames.append(b"waits")
    take = one.next_frame

    def end_meanwhile(session_id: str) -> bytes | None:
        frame = take(session_id)
        if frame is None and session_id in one.sessions:
            one.end(session)
        return frame

    one.next_frame = end_meanwhile  # type: ignore[method-assign]
    await asyncio.wait_for(other.moves.fetch(session.id), 10)
    await asyncio.gather(*(each.settled() for each in (one, other, third)))
    for each in (one, other, third):
        assert not each.sessions
        assert not each.remotes.by_id
        assert not each.table.owners
        assert not each.table.runtimes
    assert not one.watchers.leaving


async def test_what_the_new_worker_of_a_session_says_of_it_counts_before_it_is_acknowledged(
    meet: Meet,
) -> None:
    """A worker that takes a connected session for detached gives it to whoever comes next."""
    one, other = await meet(2)
    session = one.enter()
    await one.settled()
    await other.know(session)
    done_by, acknowledged = one.transport.done_by, asyncio.get_running_loop().create_future()
    one.transport.done_by = lambda epoch: (  # type: ignore[method-assign]
        done_by(epoch) if session.id in one.sessions else acknowledged
    )
    await asyncio.wait_for(other.moves.fetch(session.id), 10)
    assert session.id in one.watchers.leaving
    here, remote = other.sessions[session.id], one.remotes.by_id[session.id]
    here.token_hash = "of the token with which its runtime has come back"
    other.table.touch(here)
    await other.settled()
    assert (remote.is_connected, remote.token_hash) == (True, here.token_hash)
    acknowledged.set_result(None)
    await waiting.so(lambda: not one.watchers.leaving)


@pytest.mark.parametrize("newer", ["giver", "receiver", "neither"])
async def test_a_session_that_both_have_after_the_link_broke_is_soon_one_workers(
    meet: Meet, newer: str
) -> None:
    one, other = await meet(2)
    session = one.enter()
    one.table.allocate("hyperty://d/1", session)
    session.frames += [b"1", b"2"]
    await one.settled()
    await other.watch(session.runtime_url, "hyperty://d/1")
    session.bound_at = float(newer == "giver")
    welcome, arrived = other.welcome, []

    def received(found: Any) -> None:
        found.bound_at = float(newer == "receiver")
        arrived.append(found)
        welcome(found)

    other.welcome = received  # type: ignore[method-assign]
    linked = one.transport.others[other.transport.me.epoch]

    async def breaks() -> None:
        """The first part of the session comes, then the link begins anew, once."""
        del linked.room
        await waiting.so(lambda: bool(other.moves._arrivals))
        one.transport.links._begin(linked)

    linked.room = breaks  # type: ignore[method-assign]
    other.transport.others[one.transport.me.epoch].out.put(RequestSession(session.id))
    await waiting.so(lambda: bool(one.gaps and arrived))  # before that one has it alone, too
    await waiting.so(lambda: (session.id in one.sessions) is not (session.id in other.sessions))
    has = one if session.id in one.sessions else other
    if newer != "neither":
        assert has is (one if newer == "giver" else other)
    await asyncio.gather(one.settled(), other.settled())
    assert session.id in has.sessions
    await asyncio.gather(*(each.watch("hyperty://d/1") for each in (one, other)))
    for each in (one, other):
        (listener,) = each.table.listeners("hyperty://d/1")
        assert listener.is_here is (each is has)


async def test_w6_a_runtime_that_comes_to_where_its_session_is_going_to_finds_it(
    meet: Meet, layer: LossyLayer
) -> None:
    """The directory may name the new worker before that has all of the session."""
    one, other = await meet(2)
    session = one.enter()
    await one.settled()
    await waiting.so(lambda: all(linked.takes for linked in _others(one)))
    epoch = one.transport.me.epoch
    layer.loses = lambda message: (
        "words" in message and message["epoch"] == epoch and bool(other.moves._arrivals)
    )
    leaving = asyncio.create_task(one.moves.give_all(lambda: [session.id], 10))
    await waiting.so(lambda: session.id not in one.sessions)
    known = asyncio.Event()
    with pytest.raises(Pending) as fact:
        other.homes.find_runtime("comes", session.runtime_url)
    fact.value.when_known(known.set)
    for _ in range(20):  # time enough to be found out by the directory alone
        await asyncio.sleep(0)
    layer.loses = lambda message: False
    await asyncio.wait_for(known.wait(), 10)
    other.homes.find_runtime("comes", session.runtime_url)
    assert [each.id for each in other.table.runtimes[session.runtime_url]] == [session.id]
    await leaving
    assert session.id in other.sessions
    entered = other.names._directory.sets[Kind.NAME, session.runtime_url]  # type: ignore[attr-defined]
    assert f"={epoch}" not in entered
    assert f"={other.transport.me.epoch}" in entered


async def test_frames_that_are_lost_on_the_way_to_a_session_that_has_moved_on_are_told_to_it(
    meet: Meet,
) -> None:
    one, other, third = await meet(3)
    session = one.enter()
    await one.settled()
    await other.know(session)
    await asyncio.wait_for(other.moves.fetch(session.id), 10)
    third.transport.others[one.transport.me.epoch].lost.add(session.id)
    await waiting.so(lambda: other.gaps == [session.id])
    assert not one.gaps
    assert not third.gaps


async def test_a_session_that_has_come_to_where_its_frames_were_lost_is_told_so(meet: Meet) -> None:
    one, other = await meet(2)
    session = one.enter()
    await one.settled()
    await other.know(session)
    other.transport.others[one.transport.me.epoch].lost.add(session.id)
    await asyncio.wait_for(other.moves.fetch(session.id), 10)
    await waiting.so(lambda: other.gaps == [session.id])
    assert not one.gaps


async def test_frames_that_are_lost_on_the_way_to_a_session_that_is_coming_are_told_to_it(
    meet: Meet, layer: LossyLayer
) -> None:
    one, other, third = await meet(3)
    session = one.enter()
    await one.settled()
    await waiting.so(lambda: all(linked.takes for linked in _others(one)))
    epoch = one.transport.me.epoch
    layer.loses = lambda message: (
        "words" in message and message["epoch"] == epoch and bool(other.moves._arrivals)
    )
    other.transport.others[epoch].out.put(RequestSession(session.id))
    await waiting.so(lambda: bool(other.moves._arrivals))
    third.transport.others[other.transport.me.epoch].out.put(LostFrames([session.id]))
    told = third.transport.done_by(other.transport.me.epoch)
    assert told is not None
    await asyncio.wait_for(told, 10)
    layer.loses = lambda message: False
    await waiting.so(lambda: session.id in other.sessions)
    assert other.gaps == [session.id]


async def test_the_answer_finds_the_session_that_asked_and_nobody_else_is_told(meet: Meet) -> None:
    one, other, third = await meet(3)
    asks, _ = one.enter("runtime://d/1"), one.enter("runtime://d/1")
    answers, observer = other.enter(), other.enter()
    await one.settled()
    await other.settled()
    await other.watch("runtime://d/1")
    path = ReturnPath("runtime://d/1", "7", asks.id, "runtime://d/1")
    for each in (answers, observer):
        remote = await one.know(each)
        remote.deliver_request(b"request", path)
    await waiting.so(lambda: answers.frames == observer.frames == [b"request"])
    found = other.table.requester_of("runtime://d/1", "7")
    assert found is not None
    assert found.id == asks.id
    assert third.table.requester_of("runtime://d/1", "7") is None
    assert len(third.table.return_paths) == 0


async def test_the_way_back_goes_along_with_the_session_that_answers(meet: Meet) -> None:
    one, other, third = await meet(3)
    asks, _ = one.enter("runtime://d/1"), one.enter("runtime://d/1")
    answers = other.enter()
    await one.settled()
    await other.settled()
    remote = await one.know(answers)
    number = 0

    def ask() -> None:
        nonlocal number
        path = ReturnPath("runtime://d/1", str(number), asks.id, "runtime://d/1")
        remote.deliver_request(b"%d" % number, path)
        number += 1

    ask()
    await third.watch("runtime://d/1")
    await third.know(answers)
    bringing = asyncio.create_task(third.moves.fetch(answers.id))
    while not bringing.done() and number < MOST_FRAMES:
        ask()
        await asyncio.sleep(0)
    await bringing
    ask()
    here = third.sessions[answers.id]
    await waiting.so(lambda: len(here.frames) == number)
    for each in range(number):
        found = third.table.requester_of("runtime://d/1", str(each))
        assert found is not None
        assert found.id == asks.id


async def test_a_response_over_a_link_reaches_only_who_has_asked_its_giver(meet: Meet) -> None:
    one, other = await meet(2)
    asks, tab = one.enter("runtime://d/1"), one.enter("runtime://d/1")
    asks.ask("hyperty://d/a", b"7", "bob", 0.0)
    await one.settled()
    await other.watch("runtime://d/1")
    for remote in other.table.runtimes["runtime://d/1"]:  # whichever of the two it is sent to
        remote.deliver_response(b"forged", Response("hyperty://d/a", "7", "eve"))
        remote.deliver_response(b"guessed", Response("hyperty://d/a", "8", "bob"))
        remote.deliver_response(b"real", Response("hyperty://d/a", "7", "bob"))
    await waiting.so(lambda: asks.frames == [b"real"] * 2)
    assert tab.frames == []
    assert one.guard.dropped == 4


async def test_responses_follow_a_session_that_moves_and_forged_ones_do_not(meet: Meet) -> None:
    one, other, third = await meet(3)
    session = one.enter()
    session.ask("a", b"1", "bob", 0.0)
    await one.settled()
    remote = await third.know(session)
    number = 0

    def say() -> None:
        nonlocal number
        remote.deliver_response(b"%d" % number, Response("a", "1", "bob"))
        remote.deliver_response(b"forged", Response("a", "1", "eve"))
        number += 1

    say()
    await other.know(session)
    bringing = asyncio.create_task(other.moves.fetch(session.id))
    while not bringing.done() and number < MOST_FRAMES:
        say()
        await asyncio.sleep(0)
    await bringing
    say()
    here = other.sessions[session.id]
    await waiting.so(lambda: len(here.frames) == number)
    assert here.frames == [b"%d" % each for each in range(number)]
    dropped = sum(each.guard.dropped for each in (one, other, third))
    assert dropped == number


async def test_a_frame_for_a_session_that_has_just_ended_is_not_passed_over(meet: Meet) -> None:
    one, other = await meet(2)
    session = other.enter()
    await other.settled()
    remote = await one.know(session)
    other.end(session)
    remote.deliver(b"late")
    await waiting.so(lambda: other.strays == [b"late"])


DEEDS = st.lists(
    st.tuples(
        st.integers(0, 1),  # worker
        st.sampled_from(
            ["enter", "end", "allocate", "release", "subscribe", "unsubscribe", "learn", "forget"]
            + ["watch", "unwatch"]
        ),
        st.integers(0, 2),  # session of the worker
        st.integers(0, 3),  # address
        st.integers(0, 2),  # turns of the loop until the next
    ),
    max_size=40,
)


NAMES = ("comm://d/{}/changes", "hyperty://d/{}", "runtime://d/{}")


@given(DEEDS)
@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_whatever_two_workers_do_at_once_their_tables_end_equal(deeds: list[Any]) -> None:
    asyncio.run(_do(deeds))


async def _do(deeds: list[Any]) -> None:
    layer = InMemoryChannelLayer(capacity=50)
    secret = uuid.uuid4().hex
    workers = [Fellow(layer, "one", secret), Fellow(layer, "other", secret)]
    await workers[0].start()
    await workers[1].start(workers[0])
    for at, deed, number, address, turns in deeds:
        worker = workers[at]
        table = worker.table
        sessions = list(worker.sessions.values())
        if deed == "enter" or not sessions:
            worker.enter(f"runtime://d/{address}")
            continue
        session = sessions[number % len(sessions)]
        match deed:
            case "end":
                worker.end(session)
            case "allocate" if f"hyperty://d/{address}" not in table.owners:
                table.allocate(f"hyperty://d/{address}", session)
            case "release":
                table.release(f"hyperty://d/{address}", session)
            case "subscribe":
                table.subscribe(f"comm://d/{address}/changes", session)
            case "unsubscribe":
                table.unsubscribe(f"comm://d/{address}/changes", session)
            case "learn" if f"comm://d/{address}" not in table.learned:
                table.learn(f"comm://d/{address}", session)
            case "forget":
                table.forget(f"comm://d/{address}", session)
            case "watch":
                worker.homes.look_for([NAMES[number].format(address)])
            case "unwatch" if NAMES[number].format(address) in worker.interest._watched:
                worker.interest._unwatch(NAMES[number].format(address))
        for _ in range(turns):
            await asyncio.sleep(0)
    for _ in range(3):  # what one hears may make it say something
        for worker in workers:
            worker.transport.tell(Backpressure("", False))
            await worker.settled()
            await worker.watch(*(each.format(at) for at in range(4) for each in NAMES))
    assert workers[0].seen() == workers[1].seen()
    for worker in workers:
        for name in tuple(worker.interest._watched):
            worker.interest._unwatch(name)
    for worker in workers:
        held = set(worker.table.owners) | set(worker.table.learned) | set(worker.table.runtimes)
        for remote in worker.remotes.by_id.values():
            assert {remote.runtime_url, *remote.owned, *remote.learned} & held
    await asyncio.gather(*(worker.transport.stop() for worker in workers))


def _others(worker: Fellow) -> list[LinkedWorker]:
    return list(worker.transport.others.values())


async def _meanwhile(job: asyncio.Task[None], is_so: Callable[[], bool]) -> None:
    """Something that is so only while a job runs."""
    async with asyncio.timeout(10):
        while not is_so():
            assert not job.done()
            await asyncio.sleep(0)
