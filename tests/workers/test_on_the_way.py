"""Sessions that change their worker while something is decided about them: two whole workers, each
of which reads what operators and revocations say when the test has it do so."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from msgnode import models
from msgnode.bus import pipeline
from msgnode.console import operator_actions
from msgnode.core.identity import BROKER_ISSUER, Identity
from msgnode.identity.bindings import Binding
from msgnode.identity.revocation_list import revoke
from msgnode.node import Node
from msgnode.sessions.session import LiveSession
from msgnode.workers import membership_store
from msgnode.workers.cluster import Cluster
from msgnode.workers.linked_worker import LinkedWorker
from tests import waiting
from tests.client import ALLOCATION, SESSION, SM, address, runtime
from tests.stage.worker import Runtime, Start, freeze

pytestmark = pytest.mark.django_db(transaction=True)

POOL = "msisdn"
HYPERTY = {"scheme": "hyperty", "value": {"number": 1}}


@pytest.fixture
async def pair(start: Start) -> tuple[Node, Node]:
    """Two workers that know each other, and read orders only when a test has them do so."""
    pair = await start(reads_orders=False), await start(reads_orders=False)
    for each in pair:
        assert isinstance(each.parts.cluster, Cluster)
        await waiting.so(each.parts.cluster.network.knows_all)
    return pair


async def back(at: Node, before: Runtime) -> tuple[Runtime, dict[str, Any]]:
    """The runtime of `before` comes to another worker, and what that has answered."""
    again = Runtime(at, before.url)
    sender = f"{before.url}/{before.token}"
    async with asyncio.timeout(30):
        while (body := await again.ask("re-open", SESSION, sender=sender))["code"] == 503:
            pass
    return again, body


def session_of(runtime: Runtime) -> LiveSession:
    session = runtime.connection.session
    assert session is not None
    return session


def log_in(at: Node, runtime: Runtime, issued: float, subject: str = "a") -> None:
    """As a token does that was issued at this moment."""
    identity = Identity(BROKER_ISSUER, subject, issued=issued)
    at.parts.sessions.identify(session_of(runtime), identity)


async def rows(model: Any, **wanted: Any) -> list[Any]:
    return [row async for row in model.objects.filter(**wanted)]


async def order(do: Callable[..., Any], model: Any, *more: Any, **named: Any) -> None:
    """What an operator does with all rows of a model."""
    await sync_to_async(do)(await rows(model), "operator", *more, **named)


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_what_a_component_answers_after_the_loss_of_the_socket_comes_to_the_session(
    pair: tuple[Node, Node], is_elsewhere: bool
) -> None:
    one, other = pair
    before = await Runtime(one).open()
    asked = [before.say("create", ALLOCATION, HYPERTY) for _ in range(3)]
    before.connection.lost()
    again, body = await back(other if is_elsewhere else one, before)
    assert body["code"] == 200
    for id_ in asked:
        await waiting.so(lambda id_=id_: again.answers(id_))
        assert [each["body"]["code"] for each in again.answers(id_)] == [200]
        assert not before.answers(id_)


@pytest.mark.parametrize("first", ["the one it left", "the one it comes to"])
async def test_a_session_that_an_operator_ends_while_it_moves_is_ended(
    pair: tuple[Node, Node], first: str
) -> None:
    one, other = pair
    gone = await Runtime(one).open()
    id_ = session_of(gone).id
    await order(operator_actions.end_sessions, models.Session, "spam", may_return=False)
    if first == "the one it left":
        await one.parts.control.read()
    else:
        await other.parts.control.read()
    again, body = await back(other, gone)
    assert body.get("runtimeToken"), "a token that nobody has opens a new session"
    assert session_of(again).id != id_
    for each in pair:
        await each.parts.control.read()
        assert id_ not in each.parts.sessions.sessions
    (row,) = await rows(models.Session, id=id_)
    assert row.state == models.Session.State.CLOSED
    assert again.link.closed is None


async def test_what_an_operator_takes_from_a_session_while_it_moves_it_has_no_more(
    pair: tuple[Node, Node],
) -> None:
    one, other = pair
    caught, asks = await Runtime(one).open(), await Runtime(other).open()
    (held, heard) = await caught.allocate(), f"{address('comm')}/changes"
    assert (await caught.ask("subscribe", SM, {"resources": [heard]}))["code"] == 200
    await order(operator_actions.take_from_sessions, models.Allocation)
    await order(operator_actions.take_from_sessions, models.Subscription)
    await other.parts.control.read()
    again, body = await back(other, caught)
    assert body == {"code": 200}
    assert held not in other.parts.table.owners
    assert not other.parts.table.subscribers(heard)
    assert (await asks.ask("create", held))["code"] == 404
    assert not other.parts.allocation.holdings(session_of(again).id)


@pytest.mark.parametrize("how", ["moves", "is taken over"])
async def test_what_a_runtime_has_asked_for_again_after_an_operator_took_it_stays_its_own(
    pair: tuple[Node, Node], how: str
) -> None:
    """Both workers have read the order, long before the session changes its worker."""
    one, other = pair
    caught, heard = await Runtime(one).open(), f"{address('comm')}/changes"
    id_ = session_of(caught).id
    assert (await caught.ask("subscribe", SM, {"resources": [heard]}))["code"] == 200
    await order(operator_actions.take_from_sessions, models.Subscription)
    for each in pair:
        await each.parts.control.read()
    assert not one.parts.table.subscribers(heard)
    assert (await caught.ask("subscribe", SM, {"resources": [heard]}))["code"] == 200
    if how == "moves":
        _, body = await back(other, caught)
        assert body == {"code": 200}
    else:
        freeze(one)
        assert await sync_to_async(membership_store.renew)(one.parts.epoch, -60.0)
        await waiting.so(lambda: id_ in other.parts.sessions.sessions)
    here = other.parts.sessions.sessions[id_]
    assert [each for each in other.parts.table.subscribers(heard) if each is here]
    assert other.parts.subscriptions.holdings(id_) == [heard]


@pytest.mark.parametrize("closes", [True, False])
async def test_an_identity_that_is_revoked_while_its_session_moves_has_ended(
    pair: tuple[Node, Node], closes: bool
) -> None:
    one, other = pair
    caught = await Runtime(one).open()
    log_in(one, caught, time.time() - 1)
    id_ = session_of(caught).id
    await sync_to_async(revoke)(issuer=BROKER_ISSUER, subject="a", close=closes)
    await other.parts.control.read()
    again, _ = await back(other, caught)
    assert (session_of(again).id == id_) is not closes
    assert session_of(again).speaker.identity is None
    assert (id_ in other.parts.sessions.sessions) is not closes


async def test_who_has_logged_in_again_after_a_revocation_stays_so_at_the_other_worker(
    pair: tuple[Node, Node],
) -> None:
    one, other = pair
    caught = await Runtime(one).open()
    await sync_to_async(revoke)(issuer=BROKER_ISSUER, subject="a")
    for each in pair:
        await each.parts.control.read()
    log_in(one, caught, time.time() + 1)
    again, _ = await back(other, caught)
    assert session_of(again).speaker.identity is not None


async def test_what_was_decided_about_the_sessions_of_a_dead_worker_holds_for_who_takes_them(
    pair: tuple[Node, Node],
) -> None:
    dead, live = pair
    revoked, banned, ended = [await Runtime(dead).open() for _ in range(3)]
    decided = {each: session_of(each).id for each in (revoked, banned, ended)}
    log_in(dead, revoked, time.time() - 1, "a")
    log_in(dead, banned, time.time() - 1, "b")
    await dead.parts.session_store.written()
    freeze(dead)
    await sync_to_async(revoke)(issuer=BROKER_ISSUER, subject="a")
    await models.Ban.objects.acreate(kind="subject", value="b")
    await sync_to_async(operator_actions.publish_bans)()
    found = await rows(models.Session, id=decided[ended])
    await sync_to_async(operator_actions.end_sessions)(found, "operator", "", may_return=True)
    await live.parts.control.read()
    stays = await Runtime(dead).open()  # so that it can be seen when they are taken
    assert await sync_to_async(membership_store.renew)(dead.parts.epoch, -60.0)
    await waiting.so(lambda: session_of(stays).id in live.parts.sessions.sessions)
    for each, id_ in decided.items():
        assert id_ not in live.parts.sessions.sessions
        there = live.parts.table.runtimes.get(each.url, ())
        assert not [session for session in there if session.is_here]


@pytest.mark.parametrize("what", ["a claim", "a loan of a pool"])
async def test_what_is_under_way_for_a_session_that_moves_is_its_own_where_it_comes(
    pair: tuple[Node, Node], what: str
) -> None:
    one, other = pair
    pool = await models.AddressPool.objects.acreate(scheme=POOL)
    await models.PoolAddress.objects.acreate(pool=pool, address=f"{POOL}://lent")
    for each in pair:
        each.parts.allocation.use_pools(frozenset({POOL}))
    caught = await Runtime(one).open()
    commits, may_write = one.parts.writer._commits, threading.Event()
    write = commits._write

    def later(group: list[Any]) -> Any:
        assert may_write.wait(20)
        return write(group)

    commits._write = later  # type: ignore[method-assign]
    wanted = address() if what == "a claim" else f"{POOL}://lent"
    if what == "a claim":
        caught.say("subscribe", SM, {"resources": [wanted]})
    else:
        caught.say("create", "domain://msg-node.localhost/address-allocation", {"scheme": POOL})
    coming = asyncio.create_task(back(other, caught))
    await waiting.so(lambda: caught.link.closed is not None)  # its worker has been asked for it
    may_write.set()
    again, body = await asyncio.wait_for(coming, 30)
    assert body == {"code": 200}
    await one.parts.session_store.written()
    (row,) = await rows(models.Allocation, address=wanted)
    assert row.session_id.hex == session_of(again).id
    assert other.parts.table.owners.get(wanted) is session_of(again)
    assert wanted in other.parts.allocation.holdings(session_of(again).id)


async def test_a_session_that_misses_something_after_its_state_was_sent_is_told_where_it_comes(
    pair: tuple[Node, Node],
) -> None:
    one, other = pair
    caught = await Runtime(one).open()
    assert isinstance(one.parts.cluster, Cluster)
    moving = one.parts.cluster.moves._moving
    pack = moving.pack

    def and_then_lose_a_frame(session_id: str) -> bytes | None:
        state = pack(session_id)
        one.parts.sessions.missed(session_id)
        return state

    moving.pack = and_then_lose_a_frame  # type: ignore[method-assign]
    again, body = await back(other, caught)
    assert body == {"code": 200}
    await waiting.so(lambda: any(b'"gap"' in frame for frame in again.link.frames))
    answer = await again.ask("create", address())
    assert answer["code"] == 404
    assert sum(b'"gap"' in frame for frame in again.link.frames) == 1


@pytest.mark.long
async def test_a_session_that_is_lost_on_its_way_is_its_givers_again(
    pair: tuple[Node, Node],
) -> None:
    one, other = pair
    caught, asks = await Runtime(one).open(), await Runtime(other).open()
    id_, held = session_of(caught).id, await caught.allocate()
    asks.say("create", caught.url, {"value": "so that it is known there"})
    await waiting.so(lambda: any(b"known there" in frame for frame in caught.link.frames))
    assert isinstance(one.parts.cluster, Cluster)
    transport = one.parts.cluster.transport
    lost: list[str] = []
    close = transport.links.close

    def note(
        linked: LinkedWorker,
    ) -> None:  # the other's next heartbeat opens the link again at once
        lost.append(linked.name)
        close(linked)

    transport.links.close = note  # type: ignore[method-assign]

    async def refuse(*_: Any) -> None:
        raise ConnectionError("Redis is away")

    transport.inbox.send = transport.inbox.send_to_all = refuse  # type: ignore[method-assign]
    coming = asyncio.create_task(back(other, caught))
    await waiting.so(lambda: caught.link.closed is not None)  # its worker has been asked for it
    await waiting.so(lambda: bool(lost))
    del transport.inbox.send, transport.inbox.send_to_all
    again, body = await asyncio.wait_for(coming, 30)
    assert body == {"code": 200}
    assert session_of(again).id == id_
    assert other.parts.table.owners[held] is session_of(again)
    await waiting.so(lambda: any(b'"gap"' in frame for frame in again.link.frames))
    (row,) = await rows(models.Session, id=id_)
    assert row.epoch == other.parts.epoch


async def test_the_row_of_a_session_that_both_had_names_the_worker_that_keeps_it(
    pair: tuple[Node, Node],
) -> None:
    """Who takes over from a worker goes by the rows: it would make a second session of this one."""
    one, other = pair
    caught = await Runtime(one).open()
    session = session_of(caught)
    caught.connection.lost()
    session.deliver(b"waits for its runtime")
    assert isinstance(one.parts.cluster, Cluster)
    assert isinstance(other.parts.cluster, Cluster)
    giving, coming = one.parts.cluster.moves, other.parts.cluster.moves
    unpack = coming._moving.unpack

    def used_earlier(*state: Any) -> LiveSession:
        session = unpack(*state)
        session.bound_at -= 1.0
        return session

    coming._moving.unpack = used_earlier  # type: ignore[method-assign]
    linked = giving._transport.others[other.parts.epoch]

    async def breaks() -> None:
        """The first part of the session comes, then the link begins anew, once."""
        del linked.room
        await waiting.so(lambda: bool(coming._arrivals))
        giving._transport.links._begin(linked)
        await waiting.so(lambda: session.id in other.parts.sessions.sessions)
        await other.parts.session_store.written()

    linked.room = breaks  # type: ignore[method-assign]
    await waiting.so(lambda: linked.takes)
    await giving.give_all(lambda: [session.id], 20)
    assert "room" not in vars(linked), "the link has broken"
    await waiting.so(lambda: session.id not in other.parts.sessions.sessions)
    assert session.id in one.parts.sessions.sessions
    for each in pair:
        await each.parts.session_store.written()
    (row,) = await rows(models.Session, id=session.id)
    assert (row.worker, row.epoch) == (one.parts.worker, one.parts.epoch)


async def test_what_is_bound_to_a_runtime_is_not_remembered_where_it_has_left(
    pair: tuple[Node, Node],
) -> None:
    one, other = pair
    caught = await Runtime(one).open()
    bindings = one.parts.identities.authenticator._bindings
    wanted = Binding("token", caught.url, caught.url, time.time() + 3600)
    await one.parts.identities.async_verifier.settled(lambda: bindings.bind(wanted))
    assert len(bindings) == 1
    await back(other, caught)
    assert len(bindings) == 0


async def test_after_a_freeze_nothing_is_taken_from_whom_was_revoked_meanwhile(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = await start(reads_orders=False)
    caught, hears = await Runtime(woken, runtime()).open(), await Runtime(woken).open()
    log_in(woken, caught, time.time() - 1)
    await sync_to_async(revoke)(issuer=BROKER_ISSUER, subject="a")
    clock = time.clock_gettime
    for module in (time, pipeline):
        monkeypatch.setattr(module, "clock_gettime", lambda which: clock(which) + 60.0)
    caught.say("create", hears.url, {"value": "said into the freeze"})
    await waiting.so(lambda: caught.link.closed is not None)
    assert caught.link.closed is not None
    assert caught.link.closed[0] == 4401
    assert not any(b"into the freeze" in frame for frame in hears.link.frames)
    assert (await hears.ask("create", address()))["code"] == 404  # it goes on


@pytest.mark.parametrize("below", ["", "/tab", "/tab/frame"])
async def test_of_two_that_come_to_two_workers_at_once_one_is_let_in(
    start: Start, settings: Any, below: str
) -> None:
    """To one runtime URL, or one to a URL below the other's."""
    settings.SHARE_RUNTIME_URL = False
    one, other = await start(), await start()
    for each in (one, other):
        assert isinstance(each.parts.cluster, Cluster)
        await waiting.so(each.parts.cluster.network.knows_all)
    for number in range(10):
        url = runtime()
        above, comes = Runtime(one, url), Runtime(other, url + below)
        rivals = (above, comes) if number % 2 else (comes, above)
        answers = await asyncio.gather(*(each.ask("open", SESSION) for each in rivals))
        codes = sorted(each["code"] for each in answers)
        assert codes in ([200, 403], [200, 503]), codes
        sessions = [*one.parts.sessions.sessions.values(), *other.parts.sessions.sessions.values()]
        (let_in,) = sessions
        (refused,) = (each for each in rivals if each.connection.session is None)
        if below:
            again = await refused.ask("open", SESSION)
            assert (again["code"], "lies" in again["description"]) == (403, True), again
        for worker in (one, other):
            if let_in.id in worker.parts.sessions.sessions:
                worker.parts.sessions.end(let_in, 1000, "the next round")
        await waiting.so(lambda: not (one.parts.table.runtimes or other.parts.table.runtimes))


async def test_one_that_may_follow_another_is_let_in_above_it_at_once(
    start: Start, settings: Any
) -> None:
    """As if the one below had come first."""
    settings.SHARE_RUNTIME_URL = True
    one, other = await start(), await start()
    for each in (one, other):
        assert isinstance(each.parts.cluster, Cluster)
        await waiting.so(each.parts.cluster.network.knows_all)
    for _ in range(5):
        url = runtime()
        rivals = Runtime(one, url), Runtime(other, f"{url}/tab")
        answers = await asyncio.gather(*(each.ask("open", SESSION) for each in rivals))
        assert [each["code"] for each in answers] in ([200, 200], [200, 403])


async def test_who_is_revoked_between_the_proof_and_the_session_gets_none(start: Start) -> None:
    worker = await start(reads_orders=False)
    comes = Runtime(worker)
    worker.parts.sockets.remove(comes.connection, "127.0.0.1")  # as before the upgrade is over
    comes.connection.identify(Identity(BROKER_ISSUER, "a", issued=time.time() - 1), "")
    await sync_to_async(revoke)(issuer=BROKER_ISSUER, subject="a")
    await worker.parts.control.read()
    assert (await comes.ask("open", SESSION))["code"] == 401
    assert not worker.parts.sessions.sessions


async def test_bans_that_could_not_be_read_are_read_in_the_next_round(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await start(reads_orders=False)
    caught = await Runtime(worker).open()
    store = type(worker.parts.session_store)
    load = store.load_bans

    def broken() -> Any:
        raise ValueError("the database says something else")

    monkeypatch.setattr(store, "load_bans", staticmethod(broken))
    await models.Ban.objects.acreate(kind="runtime", value=caught.url)
    await sync_to_async(operator_actions.publish_bans)()
    await worker.parts.control.read()
    await worker.parts.session_store.written()
    assert caught.link.closed is None
    monkeypatch.setattr(store, "load_bans", staticmethod(load))
    await worker.parts.control.read()
    assert caught.link.closed is not None
    assert caught.link.closed[0] == 4403
