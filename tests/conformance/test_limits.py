"""Every limit of a session at its edge, over real sockets; each is a setting."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from tests.client import ALLOCATION, SM, address, code, runtime
from tests.conftest import Come, arriving
from tests.node import Node, eventually, running

BOTH = pytest.mark.parametrize("handshake", ["ws", "stub"])


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """A node with small limits."""
    with running(
        tmp_path_factory.mktemp("strict"),
        template,
        MAX_FRAME_BYTES=20_000,
        MAX_SESSIONS_PER_RUNTIME=2,
        MAX_CONNECTIONS_PER_SOURCE=40,
        MAX_MESSAGES_PER_SECOND=200,
        MAX_ADDRESSES_PER_REQUEST=6,
        MAX_ALLOCATIONS_PER_SESSION=8,
        MAX_SUBSCRIPTIONS_PER_SESSION=4,
        OUTBOX_BYTES=100_000,
        HANDSHAKE_TIMEOUT=0.5,
    ) as node:
        yield node


@pytest.fixture
async def guest(strict: Node) -> AsyncIterator[Come]:
    """Brings clients to the strict node."""
    async with arriving(strict) as arrive:
        yield arrive


@BOTH
async def test_the_largest_frame_passes_and_one_byte_more_closes_the_socket(
    guest: Come, handshake: str
) -> None:
    client, target = await guest(handshake=handshake), await guest()
    frame = {"id": 1, "type": "create", "from": client.runtime_url, "to": target.runtime_url}
    room = 20_000 - len(json.dumps({**frame, "body": {"value": ""}}))
    await client.send_raw(json.dumps({**frame, "body": {"value": "x" * room}}))
    await target.expect(type="create")
    await client.send_raw(json.dumps({**frame, "body": {"value": "x" * (room + 1)}}))
    assert await client.close_code() == 4413


async def test_a_frame_far_too_large_closes_with_the_same_code(guest: Come) -> None:
    client = await guest()
    await client.send_raw("x" * 5_000_000)
    assert await client.close_code() == 4413


async def test_no_more_sessions_of_a_runtime_than_it_may_have(guest: Come, strict: Node) -> None:
    url = runtime()
    await guest(url)
    await guest(url)
    async with strict.ws() as third:
        assert code(await third.ask("open", "mn:/session", sender=url)) == 429
    async with strict.ws() as third:
        assert code(await third.reopen(url, "made-up")) == 429
    async with strict.stub(url) as third:
        assert await third.close_code() == 4429
    async with strict.stub() as third:
        await third.send_raw(json.dumps({"cmd": "connect", "data": {"runtimeURL": url}}))
        assert (await third.receive())["response"] == 429
        assert await third.close_code() == 4429


async def test_a_session_bound_by_its_via_counts_too(guest: Come, strict: Node) -> None:
    url = runtime()
    await guest(url)
    await guest(url)
    async with strict.ws() as third:
        await third.send_raw('{"id":1,"type":"open","to":"mn:/session"}')
        token = (await third.answer(1))["body"]["runtimeToken"]
        third.runtime_url = url
        answer = await third.ask(
            "subscribe", SM, {"resources": [address()], "via": f"{url}/{token}"}
        )
        assert code(answer) == 429


async def test_claimed_addresses_count_as_allocated(guest: Come) -> None:
    client = await guest()
    for _ in range(2):
        claimed = await client.ask("subscribe", SM, {"resources": [address() for _ in range(4)]})
        assert code(claimed) == 200
    refused = await client.ask("subscribe", SM, {"resources": [address()]})
    assert code(refused) == 429
    assert "MAX_ALLOCATIONS_PER_SESSION" in str(refused["body"])
    assert code(await client.ask("create", ALLOCATION, {"value": {"number": 1}})) == 429


async def test_a_request_releases_as_many_addresses_as_it_may_name(guest: Come) -> None:
    client = await guest()
    body = {"childrenResources": [address() for _ in range(6)]}
    assert code(await client.ask("delete", ALLOCATION, body)) == 200
    refused = await client.ask("delete", ALLOCATION, {**body, "resource": "a key"})
    assert code(refused) == 400
    assert "at most 6" in str(refused["body"])


async def test_no_more_connections_of_one_source_than_it_may_have(strict: Node) -> None:
    async with AsyncExitStack() as stack:
        coming = (stack.enter_async_context(strict.stub(runtime())) for _ in range(41))
        came = await asyncio.gather(*coming, return_exceptions=True)
        refused = [each for each in came if isinstance(each, BaseException)]
        assert {type(each) for each in refused} == {InvalidStatus}
        answer = refused[0].response
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) > 0
        assert b"has reached its limit of connections" in (answer.body or b"")
    async with asyncio.timeout(20):
        while True:  # until the node has seen them go
            try:
                async with strict.ws() as client:
                    await client.open()
                return
            except InvalidStatus:
                continue


@pytest.mark.parametrize(
    ("limits", "status", "text"),
    [
        ({"MAX_CONNECTIONS": 1}, 503, b"The node has reached its limit of connections"),
        pytest.param(
            {"MAX_CONNECTIONS_PER_SOURCE": 1},
            429,
            b"Your address has reached its limit of connections",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_an_upgrade_that_finds_no_room_is_told_why(
    start_node: Callable[..., Node], limits: dict[str, int], status: int, text: bytes
) -> None:
    node = start_node(**limits, WS_ORIGINS="https://page.example")
    with pytest.raises(InvalidStatus) as refused:
        await node.ws().connect(origin="https://other.example")
    assert refused.value.response.status_code == 403
    assert b"origin" in (refused.value.response.body or b"")
    async with node.ws() as first:
        await first.open()
        for _ in range(2):
            with pytest.raises(InvalidStatus) as refused:
                await node.ws().connect()
            answer = refused.value.response
            assert answer.status_code == status
            assert int(answer.headers["Retry-After"]) > 0
            assert text in (answer.body or b"")
        await first.allocate()  # who is there goes on


async def test_a_socket_without_a_session_is_closed_in_time(strict: Node) -> None:
    async with strict.ws() as idle:
        assert await idle.close_code() == 4401


@BOTH
async def test_a_sender_over_its_rate_is_held_back_and_loses_nothing(
    guest: Come, handshake: str
) -> None:
    sender, target = await guest(handshake=handshake), await guest()
    for number in range(500):
        await sender.send("create", target.runtime_url, {"value": number})
    arrived = await target.received_from(sender)
    assert [each["body"]["value"] for each in arrived] == list(range(500))


@BOTH
async def test_what_was_sent_before_a_good_bye_arrives(
    guest: Come, strict: Node, handshake: str
) -> None:
    target = await guest()
    sender = await guest(handshake=handshake)
    for number in range(300):
        await sender.send("create", target.runtime_url, {"value": number})
    if handshake == "ws":
        await sender.send("close", "mn:/session", sender=sender.session_url)
    else:
        command = {"cmd": "disconnect", "data": {"runtimeURL": sender.runtime_url}}
        await sender.send_raw(json.dumps(command))
    assert await sender.close_code() == 1000
    arrived = await target.received_from(await guest())
    assert [each["body"]["value"] for each in arrived] == list(range(300))


@BOTH
async def test_what_was_sent_before_the_socket_closed_arrives(
    guest: Come, strict: Node, handshake: str
) -> None:
    target = await guest()
    sender = await guest(handshake=handshake)
    for number in range(300):
        await sender.send("create", target.runtime_url, {"value": number})
    await sender.hang_up()
    arrived = await target.received_from(await guest())
    assert [each["body"]["value"] for each in arrived] == list(range(300))


async def test_what_was_sent_behind_a_ping_before_the_socket_was_cut_arrives(guest: Come) -> None:
    target, sender = await guest(), await guest()
    texts = [
        json.dumps({"id": n, "type": "create", "from": sender.runtime_url,
                    "to": target.runtime_url, "body": {"value": n}}).encode()
        for n in range(300)
    ]  # fmt: skip
    frames = [Frame(Opcode.PING, b""), *(Frame(Opcode.TEXT, text) for text in texts)]
    sender.socket.transport.write(b"".join(each.serialize(mask=True) for each in frames))
    sender.socket.transport.write_eof()
    arrived = [await target.expect(type="create") for _ in texts]
    assert [each["body"]["value"] for each in arrived] == list(range(300))


async def test_a_sender_over_its_rate_that_sends_garbage_is_answered_each_time(
    guest: Come,
) -> None:
    sender = await guest()
    for _ in range(300):
        await sender.send_raw("garbage")
    assert len(await sender.settled()) == 300


async def test_no_more_addresses_than_a_session_may_hold(guest: Come) -> None:
    client = await guest()
    body = {"value": {"number": 7}}
    assert code(await client.ask("create", ALLOCATION, body)) == 400
    await client.allocate(number=5)
    assert code(await client.ask("create", ALLOCATION, {"value": {"number": 4}})) == 429
    await client.allocate(number=3)
    assert code(await client.ask("create", ALLOCATION, {})) == 429


async def test_no_more_subscriptions_than_a_session_may_have(guest: Come) -> None:
    client = await guest()
    assert code(await client.subscribe(*(f"{address()}/changes" for _ in range(5)))) == 400
    for _ in range(4):
        assert code(await client.subscribe(f"{address()}/changes")) == 200
    assert code(await client.subscribe(f"{address()}/changes")) == 429


async def test_a_reader_that_stalls_is_closed_and_told_of_its_gap_and_nobody_else_suffers(
    guest: Come, strict: Node
) -> None:
    reporter, neighbour = await guest(), await guest()
    stalled = await guest()
    (obj,) = await reporter.allocate("comm")
    for each in (stalled, neighbour):
        await each.subscribe(f"{obj}/changes")
    stalled.socket.transport.pause_reading()
    # More than the kernel's buffers and the outbox take.
    sent, alarmed = 0, False
    async with asyncio.timeout(60):
        while not alarmed:
            for _ in range(100):
                body = {"value": sent, "filling": "x" * 15_000}
                await reporter.send("update", f"{obj}/changes", body, sender=obj)
                sent += 1
            arrived = await neighbour.received_from(reporter)
            assert [each["body"]["value"] for each in arrived] == list(range(sent - 100, sent))
            alarmed = "Alarm" in strict.log()
    stalled.socket.transport.resume_reading()
    assert await stalled.close_code() in (3008, 1006)
    async with strict.ws() as back:
        assert code(await back.reopen(stalled.runtime_url, stalled.token)) == 200
        gap = await back.expect(type="update", to=f"{stalled.runtime_url}/status")
        assert gap["body"]["value"] == "gap"
        await reporter.send("update", f"{obj}/changes", {"value": "again"}, sender=obj)
        assert (await back.received_from(reporter))[-1]["body"]["value"] == "again"


@pytest.mark.long
async def test_a_socket_that_is_never_read_again_is_gone_in_time(
    start_node: Callable[..., Node], come: Come
) -> None:
    # The sender is held back for 5 s at most, and answers no pings meanwhile.
    node = start_node(PING_INTERVAL=1, PING_TIMEOUT=10)
    talker, stalled = await come(to=node), await come(to=node)
    line = stalled.socket.transport.get_extra_info("socket")
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    mine, process = line.getsockname(), psutil.Process(node.pid)
    stalled.socket.transport.pause_reading()
    for _ in range(80):  # more than the kernel's buffers take
        await talker.send("create", stalled.runtime_url, {"filling": "x" * 60_000})
    async with asyncio.timeout(60):
        while mine in [each.raddr for each in process.net_connections("tcp")]:
            await eventually()  # no event tells who does not read
    async with node.ws() as back:
        assert code(await back.reopen(stalled.runtime_url, stalled.token)) == 200
        assert await talker.settled() == []
    stalled.cut()  # nobody is left to say good-bye to


async def test_a_queue_that_runs_over_is_said_to_the_sender_and_to_the_owner(
    guest: Come, strict: Node
) -> None:
    talker = await guest()
    async with strict.ws() as away:
        await away.open()
    answers = 0
    for number in range(20):
        await talker.send("create", away.runtime_url, {"value": number, "filling": "x" * 10_000})
        answers += len([each for each in await talker.settled() if code(each) == 503])
    assert 0 < answers < 20
    async with strict.ws() as back:
        await back.reopen(away.runtime_url, away.token)
        arrived = await back.received_from(talker)
    values = [each["body"]["value"] for each in arrived]
    assert values[-1] == "gap"
    assert values[:-1] == list(range(20 - answers))
