"""The API of devices without a server, at the worker that has the session and at another one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from msgnode.devices import downstream, http
from msgnode.devices.api import MAX_CALLS
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.session import SessionLimits
from msgnode.sessions.session_factory import session_of, state_of
from tests.devices.in_process import OUTBOX, Worker
from tests.node import eventually


@pytest.fixture
def pair() -> tuple[Worker, Worker]:
    """The worker that has the session, and one that knows of it."""
    mine, other = Worker(), Worker()
    other.beside(mine)
    mine.beside(other)
    return mine, other


def values(asked: Any) -> list[int]:
    return [each["body"]["value"] for each in asked.json()["messages"]]


async def test_requests_that_wait_for_an_earlier_one_of_their_key_count_as_under_way() -> None:
    worker = Worker()
    token = await worker.open()
    me = worker.session().runtime_url
    asked = {"id": 1, "type": "read", "from": me, "to": me, "body": {}}
    under_way = [
        worker.request("POST", "/messages?wait=1", asked, token, idempotency_key="one")
        for _ in range(MAX_CALLS + 1)
    ]
    async with asyncio.timeout(20):
        await asyncio.wait([each.task for each in under_way])
    assert sorted(each.status for each in under_way) == [202] * MAX_CALLS + [429]


async def test_sessions_that_are_being_opened_count_towards_the_limit_of_their_source() -> None:
    worker = Worker(most_of_a_source=2)
    worker.store.commits = asyncio.get_running_loop().create_future()
    asked = [
        worker.request("POST", "/sessions", {"runtimeURL": f"runtime://d/{number}"})
        for number in range(4)
    ]
    while sum(each.task.done() for each in asked) < 2:
        await eventually()
    worker.store.commits.set_result(None)
    async with asyncio.timeout(20):
        await asyncio.wait([each.task for each in asked])
    assert sorted(each.status for each in asked) == [201, 201, 429, 429]
    assert len(worker.sockets.connections) == 2


async def test_a_session_that_could_not_be_opened_counts_no_more() -> None:
    worker = Worker(most_of_a_source=1)
    worker.store.is_full = True
    assert (await worker.ask("POST", "/sessions", {"runtimeURL": "runtime://d/1"})).status == 503
    assert not worker.sockets.connections
    worker.store.is_full = False
    assert (await worker.ask("POST", "/sessions", {"runtimeURL": "runtime://d/1"})).status == 201


async def test_a_gap_is_told_again_until_it_is_confirmed() -> None:
    worker = Worker()
    token = await worker.open()
    worker.deliver(1)
    after = (await worker.ask("GET", "/poll", token=token)).json()["next"]
    device = worker.devices.of_session(worker.session().id)
    assert device is not None
    device.buffer.give_up()
    for _ in range(2):  # as if the first answer had been lost on its way
        lost = await worker.ask("GET", f"/poll?after={after}", token=token)
        assert lost.json()["gap"] is True
    stream = worker.request("GET", "/events", token=token, last_event_id=after)
    told = lost.json()["next"]
    await stream.says(f"id: {told}\nevent: gap\n".encode())
    assert (await worker.ask("GET", f"/poll?wait=0&after={told}", token=token)).status == 204


async def test_a_stream_says_what_comes_and_ends_with_the_session() -> None:
    worker = Worker()
    token = await worker.open()
    stream = worker.request("GET", "/events", token=token)
    worker.deliver(1)
    await stream.says(b'{"body": {"value": 1}}')
    assert (await worker.ask("DELETE", "/sessions/current", token=token)).status == 204
    await stream.says(b'event: close\ndata: {"code":1000')
    await stream.task
    assert not worker.sockets.connections
    assert worker.sessions.queues.bytes == 0
    assert (await worker.ask("GET", "/poll", token=token)).status == 401


async def test_an_operator_has_the_last_word() -> None:
    worker = Worker()
    token = await worker.open()
    stream = worker.request("GET", "/events", token=token)
    await stream.says(b"retry")
    worker.deliver(1)
    worker.sessions.end(worker.session(), CloseCode.REFUSED, "banned")
    await stream.task
    assert stream.body.index(b'"value": 1') < stream.body.index(b'{"code":4403')
    assert worker.sessions.queues.bytes == 0


async def test_a_connection_that_ends_gives_back_what_was_not_sent() -> None:
    worker = Worker()
    token = await worker.open()
    worker.deliver(1)
    answer = await worker.ask("GET", "/poll", token=token)
    worker.deliver(2, 3)
    (connection,) = worker.sockets.connections
    connection.end(CloseCode.GOING_AWAY, "the node restarts")
    while worker.sockets.connections:
        await eventually()
    worker.deliver(4)
    assert worker.session().outbox.waiting_bytes > 0
    after = answer.json()["next"]
    came = await worker.ask("GET", f"/poll?after={after}", token=token)
    assert (values(came), came.json()["gap"]) == ([2, 3, 4], False)
    assert int(came.json()["next"].rpartition("-")[2]) == 4


async def test_a_device_that_is_silent_is_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msgnode.devices.devices.LOOKS_EVERY", 0.01)
    worker = Worker(idle=0.0)
    token = await worker.open()
    while worker.session().is_connected:
        await eventually()
    worker.deliver(1)
    assert values(await worker.ask("GET", "/poll", token=token)) == [1]


async def test_a_reader_that_stalls_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downstream, "STALLED_SECONDS", 0.05)
    worker = Worker()
    token = await worker.open()
    stream = worker.request("GET", "/events", token=token)
    await stream.says(b"retry")
    stream.is_stalled = True
    worker.deliver(1)
    async with asyncio.timeout(20):
        await stream.task
    assert values(await worker.ask("GET", "/poll", token=token)) == [1]


async def test_what_is_kept_for_a_device_is_bounded_and_the_loss_is_told() -> None:
    worker = Worker()
    token = await worker.open()
    stream = worker.request("GET", "/events", token=token)
    await stream.says(b"retry")
    stream.is_stalled = True
    for _ in range(100):
        worker.session().deliver(b'{"body":{"value":"%b"}}' % (b"x" * 5_000))
        assert worker.sessions.queues.bytes < 300_000
        await asyncio.sleep(0)
    assert worker.session().outbox.has_gap


async def test_a_body_counts_until_its_request_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    token = await worker.open()
    await worker.open("runtime://d/2")
    bodies = worker.api._bodies
    message = {"id": 1, "type": "read", "from": "runtime://d/1", "to": "runtime://d/2"}
    asked = worker.request("POST", "/messages?wait=1", message, token)
    while not bodies.bytes:
        await eventually()
    monkeypatch.setattr(http, "BYTES_PER_SOURCE", bodies.bytes + 10)
    assert (await worker.ask("POST", "/messages", message, token)).status == 429
    await asked.task
    assert asked.status == 202
    assert bodies.bytes == 0
    assert not bodies._of


async def test_any_worker_takes_a_request(pair: tuple[Worker, Worker]) -> None:
    mine, other = pair
    token = await mine.open()
    mine.deliver(1)
    answer = await other.ask("GET", "/poll", token=token)
    assert values(answer) == [1]
    after = answer.json()["next"]
    assert (await mine.ask("GET", f"/poll?wait=0&after={after}", token=token)).status == 204
    message = {"id": 1, "type": "create", "from": "runtime://d/1", "to": "runtime://d/1"}
    assert (await other.ask("POST", "/messages", message, token)).status == 202
    kept = await other.ask("PUT", "/sessions/current", token=token)
    assert (kept.status, kept.json()["resumed"]) == (200, True)
    assert (await other.ask("POST", "/messages", "x" * 60_000, token)).status == 413
    assert (await other.ask("GET", "/poll?wait=99", token=token)).status == 400
    assert (await other.ask("DELETE", "/sessions/current", token=token)).status == 204
    assert (await other.ask("GET", "/poll", token=token)).status == 401
    assert not mine.sessions.sessions
    assert not other.sessions.sessions


async def test_one_key_at_two_workers_is_carried_once(pair: tuple[Worker, Worker]) -> None:
    mine, other = pair
    token = await mine.open()
    message = {"id": 1, "type": "create", "from": "runtime://d/1", "to": "runtime://d/1"}
    asked = [
        each.request("POST", "/messages", message, token, idempotency_key="k")
        for each in (mine, other, mine, other)
    ]
    await asyncio.gather(*(each.task for each in asked))
    assert {(each.status, each.body) for each in asked} == {(202, b'{"id":1}')}
    answer = await mine.ask("GET", "/poll?wait=0", token=token)
    assert len(answer.json()["messages"]) == 1


async def test_a_stream_at_another_worker_misses_and_repeats_nothing(
    pair: tuple[Worker, Worker],
) -> None:
    mine, other = pair
    token = await mine.open()
    mine.deliver(1)
    stream = other.request("GET", "/events", token=token)
    await stream.says(b'"value": 1}')
    other.others.lose = 1  # an answer, with what was in it
    mine.deliver(2)
    await stream.says(b'"code":3001')
    last = stream.body.split(b"id: ")[-1].split(b"\n")[0].decode()
    again = other.request("GET", "/events", token=token, last_event_id=last)
    mine.deliver(3)
    await again.says(b'"value": 3}')
    assert again.body.count(b'"value": 2}') == 1
    assert b"event: gap" not in again.body
    again.leave()
    await again.task


async def test_readers_at_two_workers_end_one_another_and_do_not_fight(
    pair: tuple[Worker, Worker],
) -> None:
    mine, other = pair
    token = await mine.open()
    remote = other.request("GET", "/events", token=token)
    await remote.says(b"retry")
    local = mine.request("GET", "/events", token=token)
    await remote.says(b'{"code":4409')
    await remote.task
    mine.deliver(1)
    await local.says(b'"value": 1')
    again = other.request("GET", "/events", token=token)
    await local.says(b'{"code":4409')
    mine.deliver(2)
    await again.says(b'"value": 2')
    again.leave()
    await again.task


async def test_a_stream_that_is_left_asks_no_more(pair: tuple[Worker, Worker]) -> None:
    mine, other = pair
    token = await mine.open()
    stream = other.request("GET", "/events", token=token)
    await stream.says(b"retry")
    stream.leave()
    await stream.task
    calls = other.others.calls
    mine.deliver(1)
    await asyncio.sleep(0.05)
    assert other.others.calls == calls


async def test_a_worker_that_does_not_answer_is_504_and_one_that_stops_503(
    pair: tuple[Worker, Worker],
) -> None:
    mine, other = pair
    token = await mine.open()
    other.others.lose = 1
    assert (await other.ask("PUT", "/sessions/current", token=token)).status == 504
    mine.devices.is_closed = True
    assert (await other.ask("PUT", "/sessions/current", token=token)).status == 503
    assert (await mine.ask("PUT", "/sessions/current", token=token)).status == 503


async def test_what_moves_with_a_session_lets_the_device_go_on(
    pair: tuple[Worker, Worker],
) -> None:
    mine, other = pair
    token = await mine.open()
    mine.deliver(1, 2)
    answer = await mine.ask("GET", "/poll?max=1", token=token)
    session = mine.session()
    mine.sessions.release(session)
    moved = session_of(state_of(session), SessionLimits(OUTBOX, stores=True))
    while (frame := session.outbox.take()) is not None:
        moved.outbox.put(frame)
    mine.sessions.hand_off(session.id)
    other.sessions.adopt(moved)
    other.table.add_runtime(moved)
    after = answer.json()["next"]
    came = await other.ask("GET", f"/poll?after={after}", token=token)
    assert (values(came), came.json()["gap"]) == ([2], False)
    assert not mine.devices
    assert not mine.sockets.connections


async def test_a_full_disk_is_503_and_leaves_nothing_behind() -> None:
    worker = Worker()
    worker.store.is_full = True
    asked = await worker.ask("POST", "/sessions", {"runtimeURL": "runtime://d/1"})
    assert asked.status == 503
    assert not worker.sessions.sessions
    assert not worker.sockets.connections
    worker.store.is_full = False
    token = await worker.open()
    (connection,) = worker.sockets.connections
    connection.end(CloseCode.GOING_AWAY, "the node restarts")
    while worker.sockets.connections:
        await eventually()
    worker.deliver(1)
    worker.store.is_full = True
    assert (await worker.ask("GET", "/poll", token=token)).status == 503
    worker.store.is_full = False
    assert values(await worker.ask("GET", "/poll", token=token)) == [1]
    assert len(worker.sockets.connections) == 1


@pytest.mark.parametrize("number", [1, 10])
async def test_requests_that_come_at_once_resume_a_session_once(number: int) -> None:
    worker = Worker()
    token = await worker.open()
    (connection,) = worker.sockets.connections
    connection.end(CloseCode.GOING_AWAY, "the node restarts")
    asked = [worker.request("PUT", "/sessions/current", token=token) for _ in range(number)]
    await asyncio.gather(*(each.task for each in asked))
    assert {each.status for each in asked} == {200}
    assert len(worker.sockets.connections) == 1
    assert len(worker.sessions.sessions) == 1
