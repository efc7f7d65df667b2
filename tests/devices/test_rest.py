"""Devices over HTTP (docs/connectors.md), against a real node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.client import SM, Client, Frame, address, runtime
from tests.conftest import Come
from tests.node import Node, running

from .client import Device

ALLOCATION = "domain://msg-node.localhost/address-allocation"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """A node for pages of one origin, on which a device may send 50 messages a second."""
    with running(
        tmp_path_factory.mktemp("narrow"),
        template,
        DEVICE_HTTP=True,
        WS_ORIGINS="https://app.example",
        MAX_MESSAGES_PER_SECOND=50,
    ) as node:
        yield node


async def test_case_01_a_message_to_a_device_appears_on_its_stream(node: Node, come: Come) -> None:
    talker = await come()
    async with Device(node) as device, device.events() as events:
        assert events.response.headers["content-type"] == "text/event-stream"
        await talker.send("create", device.runtime_url, {"value": "Grüße\nline"})
        heard = await events.message()
    assert (heard["from"], heard["body"]["value"]) == (talker.runtime_url, "Grüße\nline")


async def test_case_02_the_same_by_poll(node: Node, come: Come) -> None:
    talker = await come()
    async with Device(node) as device:
        waiting = asyncio.create_task(device.poll())
        await talker.send("create", device.runtime_url, {"value": 7})
        answer = (await waiting).json()
        assert [each["body"]["value"] for each in answer["messages"]] == [7]
        assert answer["gap"] is False
        again = await device.poll(answer["next"], wait=0)
        assert again.status_code == 204


async def _respond(client: Client, asked: Frame, body: object) -> None:
    await client.send("response", asked["from"], body, id=asked["id"], sender=asked["to"])


@pytest.mark.parametrize("token", ["nonsense", "mns_", "mns_cnVudGltZTovL2QvMQ.t0k"])
async def test_case_03_a_token_that_opens_nothing_is_401(node: Node, token: str) -> None:
    async with Device(node) as device:
        device.token = token
        answer = await device.poll(wait=0)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 401


async def test_case_03_the_token_of_another_session_speaks_for_that_one_only(node: Node) -> None:
    async with Device(node) as device, Device(node) as other:
        message = {"id": 1, "type": "create", "from": device.runtime_url, "to": other.runtime_url}
        answer = await other.post(message)
    assert answer.status_code == 403


async def test_case_04_a_request_with_wait_is_answered_in_the_body(node: Node) -> None:
    async with Device(node) as device:
        answer = await device.send(
            "create", ALLOCATION, {"value": {"number": 2}, "scheme": "hyperty"}, wait=10
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()["body"]
        assert len(body["value"]["allocated"]) == 2
        assert (await device.poll(wait=0)).status_code == 204  # and nowhere else


async def test_case_04_a_slow_answer_is_202_and_comes_by_the_downstream(
    node: Node, come: Come
) -> None:
    slow = await come()
    async with Device(node) as device, device.events() as events:
        answer = await device.send("read", slow.runtime_url, wait=1, id_="slow-1")
        assert (answer.status_code, answer.json()) == (202, {"id": "slow-1"})
        asked = await slow.receive()
        await _respond(slow, asked, {"code": 200, "value": "late"})
        heard = await events.message()
    assert (heard["id"], heard["body"]["value"]) == ("slow-1", "late")


async def test_case_05_what_wants_no_answer_is_202(node: Node, come: Come) -> None:
    listener = await come()
    async with Device(node) as device:
        (mine,) = await device.allocate()
        await listener.subscribe(f"{mine}/changes")
        update = {"id": 1, "type": "update", "from": mine, "to": f"{mine}/changes"}
        answer = await device.post({**update, "body": {"value": 1}}, wait=10)
        assert answer.status_code == 202
        assert (await listener.expect(type="update"))["body"]["value"] == 1


async def test_case_06_one_bad_message_of_a_hundred_is_refused_alone(
    node: Node, come: Come
) -> None:
    listener = await come()
    async with Device(node) as device:
        messages = [
            {"id": n, "type": "create", "from": device.runtime_url, "to": listener.runtime_url}
            for n in range(100)
        ]
        messages[41] = {"id": 41, "type": "create", "to": 5}  # type: ignore[dict-item]
        answer = await device.post(messages)
        assert answer.status_code == 207
        codes = {each["id"]: each["code"] for each in answer.json()}
        heard = [(await listener.receive())["id"] for _ in range(99)]
    assert heard == [n for n in range(100) if n != 41]
    assert [n for n in codes if codes[n] == 400] == [41]
    assert {codes[n] for n in codes if n != 41} == {202}


async def test_case_07_what_is_too_large_is_413_and_changes_nothing(node: Node, come: Come) -> None:
    listener = await come()
    async with Device(node) as device:
        one = {"id": 1, "type": "create", "from": device.runtime_url, "to": listener.runtime_url}
        assert (await device.post([one] * 101)).status_code == 413
        large = {**one, "body": {"value": "x" * (1024 * 1024)}}
        assert (await device.post(large)).status_code == 413
        assert (await device.post({**one, "id": "last"})).status_code == 202
        assert (await listener.receive())["id"] == "last"


async def test_case_08_a_stream_that_breaks_off_goes_on_without_loss_or_repetition(
    node: Node, come: Come
) -> None:
    talker = await come()
    async with Device(node) as device:
        heard: list[int] = []
        last = ""
        for round_ in range(5):
            async with device.events(last) as events:
                for n in range(10):
                    await talker.send("create", device.runtime_url, {"value": round_ * 20 + n})
                for _ in range(7):  # three are left behind
                    heard.append((await events.message())["body"]["value"])
                last = events.last_id
            for n in range(10, 20):
                await talker.send("create", device.runtime_url, {"value": round_ * 20 + n})
        async with device.events(last) as events:
            while len(heard) < 100:
                heard.append((await events.message())["body"]["value"])
    assert heard == list(range(100))


async def test_case_08_an_id_of_another_epoch_is_a_gap(node: Node) -> None:
    async with Device(node) as device, device.events("0badc0de-7") as events:
        assert (await events.next())[0] == "gap"


async def test_case_09_a_second_stream_ends_the_first(node: Node, come: Come) -> None:
    talker = await come()
    async with Device(node) as device, device.events() as first, device.events() as second:
        name, data = await first.next()
        assert (name, data["code"]) == ("close", 4409)
        assert await first.next() == ("end", None)
        await talker.send("create", device.runtime_url, {"value": 1})
        assert (await second.message())["body"]["value"] == 1


async def test_case_10_deleting_the_session_frees_its_addresses(node: Node, come: Come) -> None:
    talker = await come()
    async with Device(node) as device:
        (mine,) = await device.allocate()
        gone = await device.http.delete("/sessions/current", headers=device.headers)
        assert gone.status_code == 204
        assert (await talker.ask("read", mine))["body"]["code"] == 404
        assert (await device.poll(wait=0)).status_code == 401


async def test_case_11_a_repeated_key_is_answered_alike_and_carried_once(
    node: Node, come: Come
) -> None:
    listener = await come()
    async with Device(node) as device:
        key = {"Idempotency-Key": "k1"}
        several = [
            device.send("create", listener.runtime_url, {"value": 1}, **key) for _ in range(3)
        ]
        answers = await asyncio.gather(*several)
        assert {(each.status_code, each.text) for each in answers} == {(202, '{"id":1}')}
        other = await device.send("create", listener.runtime_url, {"value": 2}, **key)
        assert other.status_code == 422
        await device.send("create", listener.runtime_url, {"value": 3}, id_="end")
        heard = [(await listener.receive())["body"]["value"] for _ in range(2)]
    assert heard == [1, 3]


@pytest.mark.long
async def test_case_13_a_node_that_stops_says_so_on_the_stream(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(DEVICE_HTTP=True)
    async with Device(node) as device, device.events() as events, Device(node) as poller:
        waiting = asyncio.create_task(events.next())
        polled = asyncio.create_task(poller.poll(wait=25))
        assert (await poller.http.put("/sessions/current", headers=poller.headers)).is_success
        node.terminate()
        name, data = await waiting
        answer = await polled
    assert (name, data["code"]) == ("close", 3001)
    assert answer.status_code == 503 or answer.json()["close"]["code"] == 3001
    assert await asyncio.to_thread(node.status) == 0


async def test_responses_as_events_keep_their_place(node: Node, come: Come) -> None:
    talker = await come()
    async with Device(node) as device, device.events() as events:
        messages = [
            {"id": n, "type": "read", "from": device.runtime_url, "to": address()} for n in range(3)
        ]
        answer = await device.http.post(
            "/messages", params={"responses": "events"}, json=messages, headers=device.headers
        )
        assert [each["code"] for each in answer.json()] == [202] * 3
        await talker.send("create", device.runtime_url, {"value": 1})
        heard = [await events.message() for _ in range(4)]
    assert [each["id"] for each in heard[:3]] == [0, 1, 2]
    assert {each["body"]["code"] for each in heard[:3]} == {404}


async def test_requests_of_one_id_are_answered_each(node: Node) -> None:
    async with Device(node) as device:
        message = {"id": 1, "type": "read", "from": device.runtime_url, "to": address()}
        answers = (await device.post([message] * 5, wait=5)).json()
    assert [each["code"] for each in answers] == [404] * 5


async def test_case_15_from_the_address_of_another_is_403(node: Node, come: Come) -> None:
    other = await come()
    (theirs,) = await other.allocate()
    async with Device(node) as device:
        answer = await device.post(
            {"id": 1, "type": "create", "from": theirs, "to": other.runtime_url}
        )
    assert answer.status_code == 403
    assert answer.json()["body"]["code"] == 403


@pytest.mark.parametrize("to", ["domain://msg-node.localhost/sm", "hyperty://localhost/nobody"])
async def test_case_15_as_another_runtime_that_is_not_there_is_403(node: Node, to: str) -> None:
    """A runtime with a socket is taken at its word; a device, which is one runtime, is not."""
    async with Device(node) as device:
        for forged in (runtime(), f"{runtime()}/registry"):
            answer = await device.post({"id": 1, "type": "read", "from": forged, "to": to}, wait=5)
            assert answer.status_code == 403, answer.text
        own = {"id": 2, "type": "read", "from": f"{device.runtime_url}/registry", "to": to}
        assert (await device.post(own, wait=5)).status_code in (400, 404)


async def test_case_16_only_pages_of_listed_origins_may_call(narrow: Node) -> None:
    device = Device(narrow)
    assert (await device.open(Origin="https://evil.example")).status_code == 403
    answer = await device.open(Origin="https://app.example")
    assert answer.status_code == 201
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-credentials" not in answer.headers
    asked = await device.http.options("/messages", headers={"Origin": "https://app.example"})
    assert asked.status_code == 204
    assert "authorization" in asked.headers["access-control-allow-headers"]
    await device.http.aclose()


async def test_case_17_reading_a_resource_gives_the_body_a_message_would(
    node: Node, come: Come
) -> None:
    owner = await come()
    (mine,) = await owner.allocate()
    async with Device(node) as device:
        asking = asyncio.create_task(
            device.http.get(f"/resources/{mine.replace('/', '%2F')}", headers=device.headers)
        )
        asked = await owner.receive()
        assert (asked["type"], asked["to"], asked["body"]["resource"]) == ("read", mine, mine)
        await _respond(owner, asked, {"code": 200, "value": {"t": 20}})
        answer = await asking
        assert (answer.status_code, answer.json()["value"]) == (200, {"t": 20})
        nobody = await device.http.put(
            f"/resources/{address()}", json={"t": 1}, headers=device.headers
        )
        assert nobody.status_code == 404


async def test_case_19_a_device_that_floods_is_held_back_like_a_socket(narrow: Node) -> None:
    async with narrow.ws() as listener, Device(narrow) as device:
        await listener.open(runtime())
        to = listener.runtime_url
        message = {"id": 1, "type": "create", "from": device.runtime_url, "to": to}
        began = time.monotonic()
        answer = await device.post([message] * 100)
        assert time.monotonic() - began > 0.5  # 50 messages beyond the first second's 50
        assert {each["code"] for each in answer.json()} == {202}
        at_once = [device.post([message] * 20) for _ in range(30)]
        codes = {answer.status_code for answer in await asyncio.gather(*at_once)}
        assert codes == {207, 429}  # so many requests may wait, and no more


@pytest.mark.long
async def test_what_was_not_sent_before_a_clean_restart_is_a_gap_and_never_lost_in_silence(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(DEVICE_HTTP=True, DRAIN_SECONDS=1)
    async with node.ws() as talker, Device(node) as device:
        await talker.open(runtime())
        assert (await device.poll(wait=0)).status_code == 204
        await talker.send("create", device.runtime_url, {"value": 1})
        await talker.ask("read", SM)  # what was sent before it has been carried
        node.terminate()
        assert await asyncio.to_thread(node.status) == 0
        await asyncio.to_thread(node.start)
        answer = (await device.poll()).json()
        assert [each["body"]["value"] for each in answer["messages"]] == ["gap"]


@pytest.mark.long
async def test_a_node_without_devices_says_that_they_are_switched_off(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    answer = await Device(node).open()
    assert answer.status_code == 404
    assert "DEVICE_HTTP" in answer.json()["detail"]


async def test_a_session_that_is_gone_is_replaced_by_a_fresh_one(node: Node) -> None:
    async with Device(node) as device:
        await device.http.delete("/sessions/current", headers=device.headers)
        answer = await device.http.put("/sessions/current", headers=device.headers)
        assert (answer.status_code, answer.json()["resumed"]) == (200, False)
        device.take(answer)
        assert (await device.poll(wait=0)).status_code in (200, 204)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/sessions", 405),
        ("PUT", "/messages", 405),
        ("GET", "/nothing", 404),
        ("GET", "/poll?wait=26", 400),
        ("GET", "/poll?max=-1", 400),
        ("GET", "/poll?after=x", 400),
    ],
)
async def test_a_request_that_cannot_be_read_is_told_what_is_wrong(
    node: Node, method: str, path: str, status: int
) -> None:
    async with Device(node) as device:
        answer = await device.http.request(method, path, headers=device.headers)
    assert answer.status_code == status
    assert answer.json()["detail"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"runtimeURL": 5}', b'{"runtimeURL": "x"}'])
async def test_a_session_needs_the_url_of_a_runtime(node: Node, body: bytes) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"http://127.0.0.1:{node.port}/device/v1/sessions", content=body)
    assert answer.status_code == 400
