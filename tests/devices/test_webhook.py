"""A network server's outlet: posted in order, signed, repeated, and never to a private address."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from msgnode.net.http import Answer, HttpClient, NoAnswer, NotAllowed, is_allowed
from msgnode.resources import user_agent
from tests.client import runtime
from tests.devices.client import Device, api_key
from tests.devices.receiver import Receiver, answering, is_signed, receiver
from tests.node import Node, running

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """A node whose webhooks may lead to this machine."""
    with running(
        tmp_path_factory.mktemp("hooked"), template, DEVICE_HTTP=True, DEVICE_WEBHOOKS=True,
        WEBHOOK_NETWORKS="127.0.0.0/8",
    ) as shared:  # fmt: skip
        yield shared
        assert shared.is_running(), shared.log()


@pytest.fixture(scope="module")
def key(hooked: Node) -> str:
    """Of a network server."""
    return api_key(hooked, "device:connect", "device:many")


async def put(device: Device, url: str, **more: str) -> httpx.Response:
    return await device.http.put("/webhook", json={"url": url, **more}, headers=device.headers)


async def hook(device: Device, server: Receiver) -> None:
    answer = await put(device, server.url)
    assert answer.status_code == 200, answer.text
    server.secret = answer.json()["secret"]


async def test_case_21_messages_to_many_addresses_arrive_by_one_stream_in_order(
    hooked: Node, key: str
) -> None:
    async with Device(hooked, key=key) as device, receiver() as server, hooked.ws() as socket:
        talker = await socket.open(runtime())
        await hook(device, server)
        addresses = await device.allocate(1_000)
        for number, each in enumerate(addresses):
            await talker.send("create", each, {"value": number})
        heard = await server.messages(1_000)
        assert [each["body"]["value"] for each in heard] == list(range(1_000))
        assert {each["to"] for each in heard} == set(addresses)


async def test_case_22_a_signature_is_good_for_five_minutes_and_for_its_body_alone(
    hooked: Node, key: str
) -> None:
    async with Device(hooked, key=key) as device, receiver() as server, hooked.ws() as socket:
        talker = await socket.open(runtime())
        await hook(device, server)
        await talker.send("create", device.runtime_url, {"value": 1})
        await server.messages(1)
        ((headers, body),) = server.raw
        assert headers["user-agent"] == user_agent()
        sent = int(headers["webhook-timestamp"])
        assert is_signed(server.secret, headers, body, sent + 299)
        assert not is_signed(server.secret, headers, body, sent + 301)
        assert not is_signed(server.secret, headers, body + b" ", sent)


async def test_an_answer_may_carry_messages_of_the_server(hooked: Node, key: str) -> None:
    async with Device(hooked, key=key) as device, receiver() as server, hooked.ws() as socket:
        talker = await socket.open(runtime())
        await hook(device, server)
        reply = {"id": 7, "type": "create", "from": device.runtime_url, "to": talker.runtime_url,
                 "body": {"value": "back"}}  # fmt: skip
        server.answer = lambda _: (200, b'{"messages":[' + httpx.Request(
            "POST", "http://x", json=reply).content + b"]}")  # fmt: skip
        await talker.send("create", device.runtime_url, {"value": 1})
        assert (await talker.expect(type="create"))["body"]["value"] == "back"


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/", "https://localhost/", "https://0.0.0.0/", "https://[::ffff:10.0.0.1]/",
        "https://2130706433/", "http://example.org/", "ftp://example.org/", "https://u:p@example.org/",
        "https://", "x", "https://exa mple.org/", "https://example.org:99999/",
    ],
)  # fmt: skip
async def test_case_23_what_is_not_public_is_refused(url: str) -> None:
    http = HttpClient((), 5.0, 1024)
    with pytest.raises(NotAllowed):
        await http.post(url, b"{}", {})
    await http.close()


async def test_case_23_a_redirect_is_no_delivery_and_is_not_followed(
    hooked: Node, key: str
) -> None:
    async with receiver() as inside:
        moved = f"HTTP/1.1 307 X\r\nLocation: {inside.url}\r\nContent-Length: 0\r\n\r\n".encode()
        async with answering(moved) as port, Device(hooked, key=key) as device:
            answer = await put(device, f"http://127.0.0.1:{port}/")
            assert answer.status_code == 400
        assert not inside.raw
        assert inside.posted.empty()


async def test_case_24_a_server_that_does_not_give_the_challenge_back_is_refused(
    hooked: Node, key: str
) -> None:
    async with Device(hooked, key=key) as device, receiver() as server:
        server.is_polite = False
        assert (await put(device, server.url)).status_code == 400
        assert (await put(device, "http://127.0.0.1:1/")).status_code == 400
        assert (await put(device, "http://10.0.0.1/")).status_code == 403
        assert (await put(device, server.url, secret="short")).status_code == 400
        assert (await put(device, "")).status_code == 400


async def test_a_name_with_a_private_address_beside_a_public_one_is_refused() -> None:
    asked: list[str] = []

    async def two(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.215.14", "127.0.0.1"]

    http = HttpClient((), 5.0, 1024, two)
    with pytest.raises(NotAllowed):
        await http.post("https://two.example/", b"{}", {})
    assert asked == ["two.example"]
    await http.close()


async def test_a_name_is_resolved_once_and_that_address_is_connected_to() -> None:
    """A name that leads elsewhere a moment later (DNS rebinding) leads nowhere."""
    told = iter([["127.0.0.1"], ["127.0.0.2"]])

    async def changing(host: str, port: int) -> list[str]:
        return next(told)

    networks = [ipaddress.ip_network("127.0.0.1/32")]
    async with answering(
        b"HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    ) as port:
        http = HttpClient(networks, 5.0, 1024, changing)
        url = f"http://changing.example:{port}/"
        assert await http.post(url, b"{}", {}) == Answer(200, b"ok")
        with pytest.raises(NotAllowed):
            await http.post(url, b"{}", {})
        await http.close()


async def test_a_server_that_drips_or_floods_or_says_nothing_is_left_in_time() -> None:
    head = b"HTTP/1.1 200 X\r\nContent-Length: 5000000\r\n\r\n"
    http = HttpClient(LOOPBACK, 1.0, 1024)
    for text, drip in (
        (head, 0.2),
        (b"", 0.0),
        (head + b"x" * 5_000_000, 0.0),
        (b"\xff" * 99, 0.0),
    ):
        async with answering(text, drip) as port, asyncio.timeout(20):
            with pytest.raises(NoAnswer):
                await http.post(f"http://127.0.0.1:{port}/", b"{}", {})
    await http.close()


async def test_names_whose_servers_do_not_answer_hold_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered, asked = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *args: Any, **options: Any) -> Any:
        if host == "slow.example":
            answered.wait(20)
        return asked("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    http = HttpClient(LOOPBACK, 0.5, 1024)
    try:
        posts = [http.post("http://slow.example/", b"", {}) for _ in range(40)]
        posting = asyncio.gather(*posts, return_exceptions=True)
        async with answering(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n") as port:
            async with asyncio.timeout(5):
                assert await asyncio.to_thread(int, "1") == 1
                assert (await http.post(f"http://good.example:{port}/", b"", {})).status == 200
        assert {type(each) for each in await posting} == {NoAnswer}
    finally:
        answered.set()
        await http.close()


DISGUISED = (
    *("::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1%eth0", "100.64.0.1"),
    *("224.0.0.1", "255.255.255.255", "::", "fc00::1", "ff02::1", "198.18.0.1"),
    *("64:ff9b:1::a9fe:a9fe", "::127.0.0.1", "::ffff:0:10.0.0.1", "fec0::1"),
)


def test_addresses_in_disguise_are_private() -> None:
    assert not [each for each in DISGUISED if is_allowed(each, ())]
    assert is_allowed("2606:2800:21f:cb07:6820:80da:af6b:8b2c", ())


async def test_without_tls_only_the_listed_networks_are_connected_to() -> None:
    """What is in the open passes nobody else's networks."""

    async def public(host: str, port: int) -> list[str]:
        return ["93.184.215.14"]

    http = HttpClient(LOOPBACK, 1.0, 1024, public)
    with pytest.raises(NotAllowed, match="without TLS"):
        await http.post("http://public.example/", b"{}", {})
    await http.close()


async def test_without_the_setting_there_is_none(node: Node) -> None:
    async with Device(node) as device:
        answer = await put(device, "https://example.org/")
        assert answer.status_code == 404
        assert "DEVICE_WEBHOOKS" in answer.json()["detail"]


async def test_case_20_a_key_needs_the_scope_for_a_session_and_another_for_a_webhook(
    hooked: Node, key: str
) -> None:
    reads, connects = api_key(hooked, "status:read"), api_key(hooked, "device:connect")
    assert (await Device(hooked, key=reads).open()).status_code == 403
    assert (await Device(hooked, key=f"{key}x").open()).status_code == 401
    async with receiver() as server:
        async with Device(hooked) as nobody, Device(hooked, key=connects) as device:
            assert (await put(nobody, server.url)).status_code == 403
            assert (await put(device, server.url)).status_code == 403
        async with Device(hooked, key=key) as good:
            assert (await put(good, server.url)).status_code == 200


async def test_sub_devices_lie_below_the_runtime_of_their_server(hooked: Node, key: str) -> None:
    async with (
        Device(hooked, key=key) as device, receiver() as server, hooked.ws() as socket
    ):  # fmt: skip
        talker = await socket.open(runtime())
        await hook(device, server)
        below = [f"{device.runtime_url}/lamp-{number}" for number in range(3)]
        for number, each in enumerate(below):
            await talker.send("create", each, {"value": number})
        assert [each["to"] for each in await server.messages(3)] == below
        said = {"id": 1, "type": "create", "from": below[1], "to": talker.runtime_url}
        assert (await device.post(said)).status_code == 202
        assert (await talker.expect(type="create"))["from"] == below[1]
