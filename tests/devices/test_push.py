"""Wake-ups by a push service: a real one of the tests', on this machine."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Network
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwt
from joserfc.jwk import ECKey

from msgnode.core.errors import BadMessage
from msgnode.devices.push import PushKey, read_endpoint
from msgnode.net.http import HttpClient
from tests.client import LIMIT, runtime
from tests.devices.client import Device
from tests.node import Node, running

HOSTS = ["fcm.googleapis.com", "*.push.services.mozilla.com", "push.example.org:8443", "127.0.0.1"]
OWN = IPv4Network("127.0.0.0/8")


@pytest.fixture(scope="module")
def woken(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    with running(
        tmp_path_factory.mktemp("woken"), template, DEVICE_HTTP=True,
        PUSH_HOSTS="127.0.0.1", WEBHOOK_NETWORKS="127.0.0.0/8", PUSH_CONTACT="mailto:o@example.org",
    ) as shared:  # fmt: skip
        yield shared
        assert shared.is_running(), shared.log()


class Service:
    """What a push service is asked, and what it answers: nothing while it may not."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.status = 201
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")[1:]
                pairs = (each.partition(":") for each in lines if each)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                assert headers["content-length"] == "0", "nothing of the message is told"
                self.asked.put_nowait(headers)
                await self.may_answer.wait()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % self.status)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()

    async def next(self) -> dict[str, str]:
        async with asyncio.timeout(LIMIT):
            return await self.asked.get()


@asynccontextmanager
async def service(host: str = "127.0.0.1") -> AsyncIterator[Service]:
    found = Service()
    server = await asyncio.start_server(found.serve, host, 0)
    port = server.sockets[0].getsockname()[1]
    found.endpoint = f"http://{host}:{port}/subscription"
    try:
        yield found
    finally:
        server.close()


async def put(device: Device, endpoint: str) -> httpx.Response:
    keys = {"p256dh": "x", "auth": "y"}
    subscription = {"endpoint": endpoint, "keys": keys}
    return await device.http.put("/push", json=subscription, headers=device.headers)


async def test_case_31_one_wake_up_for_what_begins_to_wait_signed_by_the_node(woken: Node) -> None:
    async with Device(woken) as device, service() as pushes, woken.ws() as socket:
        talker = await socket.open(runtime())
        key = (await device.http.get("/push/key")).json()["key"]
        assert (await put(device, pushes.endpoint)).status_code == 201
        for number in range(3):
            await talker.send("create", device.runtime_url, {"value": number})
        asked = await pushes.next()
        kind, _, rest = asked["authorization"].partition(" ")
        fields = dict(each.strip().split("=", 1) for each in rest.split(","))
        assert (kind, fields["k"]) == ("vapid", key)
        point = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        claims = jwt.decode(fields["t"], ECKey.import_key(pem(public)), ["ES256"]).claims
        assert claims["aud"] == pushes.endpoint.removesuffix("/subscription")
        assert time.time() < claims["exp"] <= time.time() + 24 * 3600
        assert claims["sub"] == "mailto:o@example.org"
        assert int(asked["ttl"]) > 0
        assert len(asked["topic"]) <= 32
        polled = (await device.poll()).json()
        assert len(polled["messages"]) == 3
        await talker.send("create", device.runtime_url, {"value": "again"})
        await asyncio.wait([asyncio.ensure_future(talker.settled())])
        assert pushes.asked.empty(), "one in thirty seconds"


def pem(public: ec.EllipticCurvePublicKey) -> bytes:
    return public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def numbers(node: Node) -> float:
    lines = node.text("/metrics").splitlines()
    return next(
        float(each.split()[-1]) for each in lines if "push_subscriptions" in each and each[0] != "#"
    )


ELSEWHERE = (
    "https://evil.example/x",
    "https://fcm.googleapis.com.evil.example/x",
    "http://fcm.googleapis.com/",
    "http://127.0.0.1/",
    "https://fcm.googleapis.com:22/x",
    "https://fcm.googleapis.com:80/x",
    "http://a.push.services.mozilla.com:443/x",
    "https://push.example.org/x",
    "https://push.example.org:8444/x",
    "https://evilpush.services.mozilla.com/x",
    "https://push.services.mozilla.com@evil.example/",
    "",
    7,
)


@pytest.mark.parametrize("endpoint", ELSEWHERE)
@pytest.mark.parametrize("networks", [(), (IPv4Network("10.0.0.0/8"),)])
def test_case_31_an_endpoint_that_is_not_that_of_a_push_service_is_refused(
    endpoint: object, networks: tuple[IPv4Network, ...]
) -> None:
    with pytest.raises(BadMessage):
        read_endpoint({"endpoint": endpoint}, HOSTS, HttpClient(networks, 1.0, 1))


def test_endpoints_of_push_services_are_taken() -> None:
    for each in (
        "https://fcm.googleapis.com/fcm/send/x",
        "https://fcm.googleapis.com:443/fcm/send/x",
        "https://a.b.push.services.mozilla.com/x",
        "https://push.example.org:8443/x",
        "http://127.0.0.1:8080/x",
    ):
        assert read_endpoint({"endpoint": each}, HOSTS, HttpClient((OWN,), 1.0, 1)) == each


def test_all_workers_have_one_key() -> None:
    assert PushKey("s", "mailto:x").public == PushKey("s", "mailto:y").public
    assert PushKey("s", "mailto:x").public != PushKey("t", "mailto:x").public


async def test_without_the_setting_there_are_none(node: Node) -> None:
    async with Device(node) as device:
        answer = await put(device, "https://fcm.googleapis.com/x")
        assert answer.status_code == 404
        assert "PUSH_CONTACT" in answer.json()["detail"]
