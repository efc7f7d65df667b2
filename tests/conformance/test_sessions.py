"""Cases 1-17: sessions and their handshakes, over real sockets.

With later work come the pool's part of case 9 and the strict variants of cases 4, 10 and 11 (a
refusal by policy, the identity that is asked for).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest
from websockets.exceptions import InvalidStatus

from tests.client import SESSION, SM, Client, Frame, address, code, runtime
from tests.conftest import Come
from tests.node import Node, eventually

BOTH = pytest.mark.parametrize("handshake", ["ws", "stub"])


async def test_case_01_open_is_answered_with_a_token_from_exactly_the_session_address(
    node: Node,
) -> None:
    url = runtime()
    async with node.ws() as client:
        await client.send_raw(json.dumps({"id": 1, "type": "open", "from": url, "to": SESSION}))
        answer = await client.receive()
    token = answer["body"].pop("runtimeToken")
    assert answer == {
        "id": 1, "type": "response", "from": "mn:/session", "to": url, "body": {"code": 200},
    }  # fmt: skip
    assert str(uuid.UUID(token)) == token


@pytest.mark.parametrize("id_", ["7", 7, 7.5, -1, 0, 2**53, True, "é✓", ""])
async def test_case_02_the_id_comes_back_with_the_type_it_had(node: Node, id_: object) -> None:
    async with node.ws() as client:
        answer = await client.ask("open", SESSION, sender=runtime(), id=id_)
    assert answer["id"] == id_
    assert type(answer["id"]) is type(id_)


@pytest.mark.parametrize("text", ["1e2", "1.50", '"\\u0041"', "12345678901234567890123"])
async def test_case_02_the_id_comes_back_as_it_was_written(node: Node, text: str) -> None:
    async with node.ws() as client:
        frame = {"id": 0, "type": "open", "from": runtime(), "to": SESSION}
        await client.send_raw(json.dumps(frame).replace('"id": 0', f'"id": {text}'))
        answer = await client.socket.recv(decode=True)
    assert f'"id":{text},' in answer


async def test_case_03_reopen_with_the_token_resumes_addresses_and_subscriptions(
    node: Node, come: Come
) -> None:
    url, talker = runtime(), await come()
    async with node.ws() as first:
        await first.open(url)
        (mine,) = await first.allocate()
        changes = f"{(await talker.allocate('comm'))[0]}/changes"
        await first.subscribe(changes)
        first.cut()
        async with node.ws() as second:
            answer = await second.reopen(url, first.token)
            assert code(answer) == 200
            assert answer["to"] == first.session_url
            assert "runtimeToken" not in answer["body"]
            await talker.send("create", mine, {"value": "to the address"})
            await talker.send("update", changes, {"value": "to all"}, sender=changes[:-8])
            arrived = await second.received_from(talker)
    assert [frame["body"]["value"] for frame in arrived] == ["to the address", "to all"]


async def test_case_03_what_came_meanwhile_waits_and_arrives_in_order(
    node: Node, come: Come
) -> None:
    url, talker = runtime(), await come()
    async with node.ws() as first:
        await first.open(url)
        await first.hang_up()
    for number in range(50):
        await talker.send("create", url, {"value": number})
    await talker.settled()
    async with node.ws() as second:
        await second.reopen(url, first.token)
        arrived = await second.received_from(talker)
    assert [frame["body"]["value"] for frame in arrived] == list(range(50))


async def test_case_04_reopen_with_an_unknown_token_gives_a_new_token_and_an_empty_session(
    node: Node, come: Come
) -> None:
    owner, talker = await come(), await come()
    (held,) = await owner.allocate()
    async with node.ws() as stranger:
        answer = await stranger.reopen(owner.runtime_url, str(uuid.uuid4()))
        assert code(answer) == 200
        assert answer["from"] == SESSION
        assert stranger.token not in ("", owner.token)
        await talker.send("create", held, {"value": 1})
        assert await stranger.received_from(talker) == []
    assert (await owner.expect(to=held))["body"]["value"] == 1


@BOTH
async def test_case_05_a_runtime_whose_url_begins_alike_is_another_runtime(
    come: Come, handshake: str
) -> None:
    url = runtime()
    longer = await come(url + "0", handshake)
    shorter = await come(url, handshake)
    await longer.send("create", f"{url}/sm", {"value": "short"})
    assert (await shorter.expect(type="create"))["body"]["value"] == "short"
    await shorter.send("create", f"{url}0/sm", {"value": "long"})
    assert [each["body"]["value"] for each in await longer.received_from(shorter)] == ["long"]


@BOTH
async def test_case_06_two_live_sessions_of_one_runtime_keep_what_is_theirs(
    come: Come, handshake: str
) -> None:
    url, talker = runtime(), await come()
    first = await come(url, handshake)
    second = await come(url, handshake)
    (of_first,), (of_second,) = await first.allocate(), await second.allocate()
    changes = f"{(await talker.allocate('comm'))[0]}/changes"
    await first.subscribe(changes)
    await talker.send("create", url, {"value": "newest"})
    await talker.send("create", of_first, {"value": "first"})
    await talker.send("create", of_second, {"value": "second"})
    await talker.send("update", changes, {"value": "subscriber"}, sender=changes[:-8])
    await talker.settled()
    assert [f["body"]["value"] for f in await second.settled()] == ["newest", "second"]
    assert [f["body"]["value"] for f in await first.settled()] == ["first", "subscriber"]


async def test_case_06_closing_one_of_two_leaves_the_other_alone(come: Come) -> None:
    url, talker = runtime(), await come()
    first, second = await come(url), await come(url)
    (of_first,), (of_second,) = await first.allocate(), await second.allocate()
    assert await second.close_session() == 1000
    assert code(await talker.ask("create", of_second)) == 404
    await talker.send("create", of_first, {"value": 1})
    await talker.send("create", f"{url}/sm", {"value": 2})
    assert [f["body"]["value"] for f in await first.received_from(talker)] == [1, 2]


async def test_case_06_the_answer_finds_the_one_of_two_sessions_that_asked(come: Come) -> None:
    url, other = runtime(), await come()
    first, second = await come(url), await come(url)
    for client in (first, second):
        id_ = await client.send("read", other.runtime_url)
        asked = await other.expect(id=id_, type="read")
        for answer in (100, 200):
            await other.send("response", asked["from"], {"code": answer}, id=id_)
        assert code(await client.answer(id_)) == 100
        assert code(await client.answer(id_)) == 200


async def test_case_07_close_frees_everything_and_the_server_closes_the_socket(come: Come) -> None:
    leaving, talker = await come(), await come()
    (held,) = await leaving.allocate("comm")
    own = address()
    await leaving.subscribe(own, f"{held}/subscription")
    assert await leaving.close_session() == 1000
    for to in (held, own, f"{held}/subscription", leaving.runtime_url, f"{leaving.runtime_url}/sm"):
        answer = await talker.ask("create", to)
        assert (code(answer), answer["from"]) == (404, to)


async def test_case_07_close_is_answered_before_the_socket_goes(come: Come) -> None:
    client = await come()
    answer = await client.ask("close", SESSION, sender=client.session_url)
    assert (code(answer), answer["from"], answer["to"]) == (200, SESSION, client.session_url)
    assert await client.close_code() == 1000


@pytest.mark.long
async def test_case_08_messages_to_a_detached_session_are_refused_where_none_are_kept(
    start_node: Callable[..., Node], come: Come
) -> None:
    strict = start_node(STORE_FOR_DETACHED=0)
    talker = await come(to=strict)
    async with strict.ws() as client:
        await client.open()
        (held,) = await client.allocate()
    while not (answers := await _answers_to(talker, held)):
        await eventually()
    assert code(answers[0]) == 503


@pytest.mark.long
async def test_case_08_and_09_a_silent_session_is_given_up_and_after_its_grace_all_is_free(
    start_node: Callable[..., Node], come: Come
) -> None:
    hasty = start_node(GRACE_PERIOD=0.3, PING_INTERVAL=0.5, PING_TIMEOUT=2)
    talker = await come(to=hasty)
    silent = hasty.stub(runtime())
    await silent.connect()
    (held,) = await silent.allocate()
    observer = await come(to=hasty)
    await observer.subscribe(f"{held}/changes")
    silent.socket.transport.pause_reading()  # from here on it answers no ping
    try:
        while code((await _answers_to(talker, held) or [{"body": {"code": 0}}])[0]) != 404:
            await eventually()
        # An observer that only answers pings stays all the time.
        await talker.subscribe(held)
        await talker.send("update", f"{held}/changes", {"value": 1}, sender=held)
        assert len(await observer.received_from(talker)) == 1
    finally:
        silent.cut()


@pytest.mark.parametrize("type_", ["open", "re-open"])
async def test_case_10_a_session_without_a_runtime_is_bound_by_the_first_via(
    node: Node, come: Come, type_: str
) -> None:
    talker, url = await come(), runtime()
    async with node.ws() as client:
        await client.send_raw(json.dumps({"id": 1, "type": type_, "to": SESSION}))
        answer = await client.answer(1)
        assert code(answer) == 200
        client.runtime_url, client.token = url, answer["body"]["runtimeToken"]
        assert code(await client.ask("read", talker.runtime_url)) == 401
        bound = await client.ask(
            "subscribe", SM, {"resources": [address()], "via": client.session_url}
        )
        assert code(bound) == 200
        await talker.send("create", f"{url}/sm", {"value": 1})
        assert len(await client.received_from(talker)) == 1
    async with node.ws() as again:
        assert "runtimeToken" not in (await again.reopen(url, client.token))["body"]


async def test_case_10_a_via_with_another_token_binds_nothing(node: Node, come: Come) -> None:
    victim = await come()
    async with node.ws() as client:
        await client.send_raw(json.dumps({"id": 1, "type": "open", "to": SESSION}))
        await client.answer(1)
        client.runtime_url = victim.runtime_url
        via = f"{victim.runtime_url}/{uuid.uuid4()}"
        assert code(await client.ask("subscribe", SM, {"resources": ["x"], "via": via})) == 401


async def test_case_11_a_message_before_any_session_is_refused_and_not_delivered(
    node: Node, come: Come
) -> None:
    listener = await come()
    async with node.ws() as stranger:
        stranger.runtime_url = runtime()
        answer = await stranger.ask("create", listener.runtime_url)
        assert (code(answer), answer["from"]) == (401, listener.runtime_url)
    assert await listener.settled() == []


async def test_case_12_a_runtime_url_in_the_path_is_a_session_without_a_frame(
    node: Node, come: Come
) -> None:
    talker = await come()
    async with node.stub(runtime()) as client:
        (held,) = await client.allocate()
        await talker.send("create", held, {"value": 1})
        assert len(await client.received_from(talker)) == 1


@pytest.mark.parametrize("path", ["/stub/connect?runtimeURL=", "/stub", "/other", "/ws/more"])
async def test_case_12_other_paths_and_an_empty_runtime_url_are_answered_403(
    node: Node, path: str
) -> None:
    client = node.ws()
    client.url = client.url.removesuffix("/ws") + path
    with pytest.raises(InvalidStatus) as refused:
        await client.connect()
    assert refused.value.response.status_code == 403


async def test_case_12_the_same_runtime_reconnects_and_takes_its_session_over(
    node: Node, come: Come
) -> None:
    talker, url = await come(), runtime()
    async with node.stub(url) as first:
        (held,) = await first.allocate()
    while True:
        async with node.stub(url) as second:
            await talker.send("create", held, {"value": 1})
            if await second.received_from(talker):
                break
            await eventually()


async def test_case_13_the_connect_command_opens_a_session(node: Node, come: Come) -> None:
    talker, url = await come(), runtime()
    async with node.stub() as client:
        await client.send_raw(json.dumps({"cmd": "connect", "data": {"runtimeURL": url}}))
        answer = await client.receive()
        assert answer == {
            "cmd": "connect", "response": 200, "data": {"msg": "Connection accepted!"},
        }  # fmt: skip
        client.runtime_url = url
        await talker.send("create", url)
        assert len(await client.received_from(talker)) == 1


@pytest.mark.parametrize(
    "frame",
    ['{"cmd":"disconnect"}', '{"id":1,"type":"open","from":"runtime://d/1","to":"mn:/session"}']
    + ["nonsense", "[]", '{"cmd":1}', '{"cmd":"connect"}', '{"cmd":"connect","data":7}'],
)
async def test_case_13_any_other_first_frame_is_refused_and_the_socket_closed(
    node: Node, frame: str
) -> None:
    async with node.stub() as client:
        await client.send_raw(frame)
        answer = await client.receive()
        assert answer["cmd"] == "connect"
        assert answer["response"] in (400, 403)
        assert await client.close_code() == 4403


@pytest.mark.parametrize("field", ["data", "body"])
async def test_case_14_the_disconnect_command_frees_everything(
    node: Node, come: Come, field: str
) -> None:
    talker = await come()
    async with node.stub(runtime()) as client:
        (held,) = await client.allocate()
        elsewhere = json.dumps({"cmd": "disconnect", field: {"runtimeURL": talker.runtime_url}})
        await client.send_raw(elsewhere)
        await talker.send("create", held)
        assert len(await client.received_from(talker)) == 1
        here = json.dumps({"cmd": "disconnect", field: {"runtimeURL": client.runtime_url}})
        await client.send_raw(here)
        assert await client.close_code() == 1000
    assert code(await talker.ask("create", held)) == 404


@BOTH
@pytest.mark.parametrize(
    "frame",
    [
        "",
        " ",
        "nonsense",
        "{",
        "[]",
        '["a"]',
        "7",
        "null",
        '"text"',
        '{"id":1',
        b"\xff\xfe",
        b"\x00",
    ]
    + ["[" * 5000, '{"a":' * 5000, "{}", '{"id":{},"type":[],"from":1,"to":2,"body":"x"}'],
)
async def test_case_15_what_is_no_message_is_answered_400_and_the_session_goes_on(
    come: Come, handshake: str, frame: str | bytes
) -> None:
    client = await come(handshake=handshake)
    await client.send_raw(frame)
    (answer,) = await client.settled()
    assert code(answer) == 400
    assert answer["from"] != SESSION
    assert answer["body"]["desc"] == answer["body"]["description"] != ""
    assert code(await client.subscribe(address())) == 200


@BOTH
async def test_case_15_a_frame_over_the_limit_closes_the_socket_and_keeps_the_session(
    node: Node, come: Come, handshake: str
) -> None:
    talker, client = await come(), await come(handshake=handshake)
    (held,) = await client.allocate()
    await client.send("create", talker.runtime_url, {"value": "x" * 1024 * 1024})
    assert await client.close_code() == 4413
    await talker.send("create", held, {"value": "still there"})
    assert await talker.settled() == []


async def test_case_15_a_frame_of_nearly_the_limit_is_delivered(come: Come) -> None:
    talker, client = await come(), await come()
    await talker.send("create", client.runtime_url, {"value": "x" * (1024 * 1024 - 500)})
    (arrived,) = await client.received_from(talker)
    assert len(arrived["body"]["value"]) == 1024 * 1024 - 500


@pytest.mark.parametrize("missing", ["id", "type", "from", "to"])
async def test_case_16_a_message_that_lacks_a_field_is_answered_400(
    come: Come, missing: str
) -> None:
    client = await come()
    frame = {"id": 9, "type": "read", "from": client.runtime_url, "to": SM, "body": {}}
    del frame[missing]
    await client.send_raw(json.dumps(frame))
    (answer,) = await client.settled()
    assert code(answer) == 400
    assert missing in answer["body"]["desc"]
    assert answer["from"] != SESSION
    assert answer.get("id") == (None if missing == "id" else 9)


@pytest.mark.long
async def test_case_17_after_a_restart_a_reopen_resumes_the_session(
    start_node: Callable[..., Node], come: Come
) -> None:
    own = start_node()
    client = await come(to=own)
    (held,) = await client.allocate()
    own.terminate()
    assert await client.close_code() == 3001
    assert own.status() == 0
    own.start()
    talker = await come(to=own)
    async with own.ws() as again:
        answer = await again.reopen(client.runtime_url, client.token)
        assert code(answer) == 200
        assert "runtimeToken" not in answer["body"]
        await talker.send("create", held)
        assert len(await again.received_from(talker)) == 1


async def _answers_to(talker: Client, to: str) -> list[Frame]:
    """The node's own answers to a message, [] if it was taken."""
    await talker.send("create", to)
    return [frame for frame in await talker.settled() if frame["type"] == "response"]


# --- what a lost socket had been given ---


async def test_who_returns_is_told_of_a_gap_if_the_lost_socket_may_not_have_had_everything(
    node: Node, come: Come
) -> None:
    sender, slow = await come(), await come()
    slow.socket.transport.pause_reading()
    for _ in range(600):  # less than the kernel takes from the node, more than the peer's has room
        await sender.send("update", slow.runtime_url, {"value": "x" * 1_000})
    await sender.ask("read", SESSION)  # answered behind them
    slow.cut()
    async with node.ws() as again:
        back = await again.resume(slow)
        assert (await back.expect(type="update"))["body"]["value"] == "gap"


async def test_who_has_had_everything_returns_without_a_gap(node: Node, come: Come) -> None:
    sender, reader = await come(), await come()
    await sender.send("update", reader.runtime_url, {"value": 1})
    await reader.expect(type="update")
    reader.cut()
    async with node.ws() as again:
        back = await again.resume(reader)
        await sender.send("update", reader.runtime_url, {"value": 2})
        assert (await back.expect(type="update"))["body"]["value"] == 2
