"""What an answer of 200 costs the other workers, and what they cost one that comes.

The workers' own code (transport, replicator, interest, directory) of 2 to 40 workers in one
process, on a Redis of the bench's own. A subscription is told to those that send there, an
allocation to nobody: it is entered in the directory. Told to all is how both were until decisions
0004 and 0005: all acknowledge. To every other address another worker sends something.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import tracemalloc
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from bench.figures import PartResult, Sample, ratio
from bench.plan import Plan
from msgnode.bus.ports import Layer, Listener
from msgnode.bus.table import RoutingTable
from msgnode.core.identity import Origin, Speaker
from msgnode.core.pending import Pending
from msgnode.redis.channel_layer import StreamChannelLayer
from msgnode.redis.directory import Directory
from msgnode.servers.collector import Collector
from msgnode.workers.announcements import Watchers
from msgnode.workers.copies import SessionCopies
from msgnode.workers.network import PeerNetwork
from msgnode.workers.own_names import HOLDS
from msgnode.workers.peer import Peer
from msgnode.workers.protocol import AddressAdded, SessionsAt, SessionUp
from msgnode.workers.transport import PeerTransport
from msgnode.workers.worker_process import WorkerId

from .workers import redis_of

WORKERS, QUICK = (2, 10, 40), (2, 10)
ALL, SENDERS = "told to all workers", "told to those that send there"
ALLOCATED = "an allocation, told to nobody"
SUBSCRIPTIONS = 100
CHANGES = 2_000  # a second, of other sessions; every worker is told of each
MOST_BESIDE = 10  # workers of one process that can be
REMOTE = 20_000  # sessions of others, all of which are watched
THERE, QUICK_THERE = 100_000, 2_000  # sessions of others beside which a worker comes
_TIMEOUT = 10.0
_LINK_BYTES = 16 * 1024 * 1024


class _Session:
    """A session that holds nothing."""

    is_here = True
    is_connected = True
    token_hash = ""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.runtime_url = f"runtime://example.org/{uuid.uuid4()}"
        self.bound_at = time.time()
        self.speaker = Speaker(self.id, self.runtime_url, Origin.RUNTIME)


class Worker:
    """One worker without a server. Implements what the replicator asks of its sessions."""

    def __init__(self, url: str, secret: str) -> None:
        self.secret = secret
        self.sessions: dict[str, Any] = {}
        self.table = RoutingTable()
        self.layer = StreamChannelLayer([url])
        me = WorkerId(uuid.uuid4().hex[:8], str(uuid.uuid4()), "host", 1)
        watchers = Watchers(self.table)
        self.transport = PeerTransport(
            self.layer, me, secret, _TIMEOUT, _LINK_BYTES, watchers.snapshot, _nothing, _nothing
        )
        self.directory = Directory(url, self.transport.node)
        network = PeerNetwork(self.transport, watchers, self.directory, self.table)
        self.names, self.interest, self.homes = network.names, network.interest, network.homes
        self.remotes = remotes = network.remotes
        self.names.begin(HOLDS, ())
        SessionCopies(
            self.transport,
            self,  # type: ignore[arg-type]
            self.names,
            self.interest,
            network.renewal,
            remotes,
            _stays,
        )

    async def start(self, others: list[Worker]) -> None:
        await self.directory.start()
        await self.directory.keep_filled(self.transport.me.epoch)
        await self.transport.start()
        await self.transport.join({each.transport.me.epoch for each in others})

    async def close(self) -> None:
        await self.transport.stop()
        await self.homes.stop()
        await self.names.stop()
        await self.directory.close()
        await self.layer.close()

    def enter(self) -> _Session:
        session = _Session()
        self.sessions[session.id] = session
        self.table.add_runtime(session)  # type: ignore[arg-type]
        return session

    # --- what the replicator asks -----------------------------------------------------------------

    def holdings(self, session_id: str) -> tuple[list[str], list[str], list[str]]:
        return [], [], []

    def withdraw(self, address: str, session: Listener) -> None: ...


def measure(plan: Plan) -> PartResult:
    title = "A subscription or allocation, until it is answered"
    result = PartResult("subscription", title, unit="ms", headline="p50_ms")
    with redis_of(plan) as url:
        for workers in QUICK if plan.quick else WORKERS:
            asyncio.run(_answers(plan, url, workers, result))
        asyncio.run(_comes(plan, url, QUICK_THERE if plan.quick else THERE, result))
    asyncio.run(_memory(result))
    return result


async def _answers(plan: Plan, url: str, workers: int, result: PartResult) -> None:
    Collector().start(asyncio.get_running_loop())  # as a worker does, or a look through all counts
    there = await start_workers(url, workers)
    one, sender = there[0], there[-1]
    for beside in (0, CHANGES) if workers <= MOST_BESIDE else (0,):
        title = f"{workers} workers, {beside:,} changes a second beside it"
        busy = asyncio.create_task(_change(there, beside))
        for turn in plan.rotations(tuple(_WAYS)):
            for name in turn:
                sample = await _timed(one, sender, there, _WAYS[name])
                result.case(title, name).samples.append(sample)
        busy.cancel()
        everybody = result.case(title, ALL)
        for name in (SENDERS, ALLOCATED):
            case = result.case(title, name)
            result.ratios.append(ratio(case, everybody, key="p50_ms", wants="at most"))
        plan.say(f"{title}: {[result.case(title, name).samples[-1] for name in _WAYS]}")
    await asyncio.gather(*(each.close() for each in there))


async def _change(workers: list[Worker], number: int) -> None:
    """So many sessions a second come, over all workers."""
    began, come = time.perf_counter(), 0
    while number:
        for _ in range(int((time.perf_counter() - began) * number) - come):
            workers[come % len(workers)].enter()
            come += 1
        await asyncio.sleep(0.01)


async def _timed(
    one: Worker,
    sender: Worker,
    there: list[Worker],
    say: Callable[[Worker, _Session, str], Awaitable[None]],
) -> Sample:
    session = one.enter()
    await asyncio.sleep(0.1)
    taken: list[float] = []
    batches = _batches(there)
    for number in range(SUBSCRIPTIONS):
        address = f"comm://example.org/{uuid.uuid4()}/changes"
        if number % 2:
            await _watched(sender, address)
        began = time.perf_counter()
        await say(one, session, address)
        taken.append(1000 * (time.perf_counter() - began))
    percentiles = statistics.quantiles(taken, n=100)
    return {
        "p50_ms": percentiles[49],
        "p99_ms": percentiles[98],
        "batches_of_an_answer": (_batches(there) - batches) / SUBSCRIPTIONS,
    }


def _batches(workers: list[Worker]) -> int:
    return sum(peer.out.batches for each in workers for peer in each.transport.peers.values())


async def _watched(worker: Worker, address: str) -> None:
    known = asyncio.Event()
    try:
        worker.homes.find(address, [address])
    except Pending as fact:
        fact.when_known(known.set)
        await known.wait()
    assert worker.homes.hears(address)


def _nothing(*_: str) -> None:
    """No alarm is looked at."""


def _stays(session_id: str, peer: Peer) -> None:
    """No session of this part changes its worker."""


async def _told_to_all(worker: Worker, session: _Session, address: str) -> None:
    said = AddressAdded(session.id, Layer.SUBSCRIBED.value, [address])
    worker.transport.tell(said, len(address))
    if (everybody := worker.transport.barrier()) is not None:
        await everybody


async def _told_to_senders(worker: Worker, session: _Session, address: str) -> None:
    worker.table.subscribe(address, session)  # type: ignore[arg-type]
    if (heard := worker.names.barrier()) is not None:
        await heard


async def _allocated(worker: Worker, session: _Session, address: str) -> None:
    worker.table.allocate(address, session)  # type: ignore[arg-type]
    if (entered := worker.names.entered()) is not None:
        await entered


_WAYS = {ALL: _told_to_all, SENDERS: _told_to_senders, ALLOCATED: _allocated}


async def _comes(plan: Plan, url: str, sessions: int, result: PartResult) -> None:
    """A worker comes that is to be ready beside so many sessions of three others."""
    there = await start_workers(url, 3)
    for number in range(sessions):
        worker = there[number % 3]
        session = worker.enter()
        worker.table.allocate(f"hyperty://example.org/{uuid.uuid4()}", session)  # type: ignore[arg-type]
        if number % 1_000 == 999:
            for each in there:
                if (entered := each.names.entered()) is not None:
                    await entered
    title = f"beside {sessions:,} sessions of others"
    for _ in range(plan.rounds):
        sample = await join_late(url, there)
        result.case(title, "a worker that comes, until it is ready").samples.append(sample)
        plan.say(f"{title}: {sample}")
    await asyncio.gather(*(each.close() for each in there))


async def start_workers(url: str, number: int) -> list[Worker]:
    """So many workers of one node, that have met."""
    there: list[Worker] = []
    secret = uuid.uuid4().hex
    for _ in range(number):
        worker = Worker(url, secret)
        await worker.start(there)
        there.append(worker)
    return there


async def join_late(url: str, there: list[Worker]) -> Sample:
    """How long one more worker takes to be ready; it leaves again."""
    comes = Worker(url, there[0].secret)
    began = time.perf_counter()
    await comes.start(there)
    sample = {"p50_ms": 1000 * (time.perf_counter() - began)}
    sample["sessions_known"] = float(len(comes.remotes.by_id))
    await comes.close()
    for each in there:
        each.transport.forget(each.transport.peers[comes.transport.me.epoch])
    return sample


async def _memory(result: PartResult) -> None:
    """A session of another worker with two addresses and a subscription, in one that sends nothing
    to it; and in one that watches all of these."""
    for name, watches in (("nobody sends to", False), ("all of whose names are watched", True)):
        worker = Worker("redis://127.0.0.1/0", "secret")
        beat = {"name": "other", "epoch": "other", "host": "host", "pid": 1, "inbox": ""}
        peer = Peer(beat, 0)
        tracemalloc.start()  # what is freed is used again, so the process does not show it
        for _ in range(REMOTE if watches else 0):
            session = _Session()
            owned = [f"hyperty://example.org/{uuid.uuid4()}" for _ in range(2)]
            said = f"comm://example.org/{uuid.uuid4()}/changes"
            url, at = session.runtime_url, session.bound_at
            for each in (url, *owned, said):
                worker.interest.expect(each)
            up = SessionUp(session.id, url, "", at, True, session.speaker)
            worker.transport.heard_by[SessionUp](peer, up)
            for each in owned:
                worker.transport.heard_by[SessionsAt](peer, SessionsAt(each, [session.id], [], []))
            worker.transport.heard_by[SessionsAt](peer, SessionsAt(said, [], [session.id], []))
        kept = tracemalloc.get_traced_memory()[0] / REMOTE
        tracemalloc.stop()
        result.notes.append(f"A session of another worker {name}: {kept:.0f} B.")
