"""domain://qos.<domain> on a real node: a reservation's whole life, and a node without one."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client import Client, code
from tests.conftest import Come
from tests.node import Node

QOS = "domain://qos.localhost"
SERVER = """
from msgnode.qos.models import *
TurnServer.objects.create(name="t", urls="turn:127.0.0.1:PORT", capacity=5_000_000)
Customer.objects.create(name="csp1", quota=1000)
"""
SECRET = "from msgnode.qos import secret_store; print(secret_store.signing())"
EXPIRE = """
from django.utils import timezone
from msgnode.qos.models import Reservation
Reservation.objects.update(expires_at=timezone.now())
"""
VIDEO = {"resource": "/reservations", "value": {"flows": [{"mediaType": "video"}]}}


async def test_cases_20_and_44_without_a_broker_the_answer_is_503(come: Come) -> None:
    client = await come()
    for to in (QOS, f"{QOS}/"):
        answer = await client.ask("create", to, VIDEO)
        assert code(answer) == 503
        assert answer["body"]["desc"].startswith("no QoS broker")
        assert (answer["from"], answer["to"]) == (to, client.runtime_url)


@pytest.fixture
def answering_stun() -> Iterator[int]:
    """The port of something that answers STUN, as a TURN server that is up does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", 0))
        line.settimeout(0.2)
        is_over = threading.Event()

        def answer() -> None:
            while not is_over.is_set():
                with contextlib.suppress(TimeoutError):
                    asked, place = line.recvfrom(2048)
                    line.sendto(b"\x01\x01\x00\x00" + asked[4:20], place)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield int(line.getsockname()[1])
        is_over.set()
        thread.join(5)


@pytest.fixture
def node_with_broker(start_node: Callable[..., Node], answering_stun: int) -> Node:
    node = start_node(QOS_BROKER="embedded")
    node.manage("shell", "-c", SERVER.replace("PORT", str(answering_stun)))
    return node


async def free(client: Client) -> int:
    answer = await client.ask("read", QOS, {"resource": "/resources"})
    assert code(answer) == 200, answer
    (video,) = (each for each in answer["body"]["value"]["classes"] if each["class"] == "video")
    bits = video["free"]
    assert isinstance(bits, int)
    return bits


@pytest.mark.long
async def test_a_reservation_from_its_inquiry_to_its_end(
    node_with_broker: Node, come: Come
) -> None:
    """Cases 15, 17, 18, 21, 24, 25, 28, 29, 30, 40 and 41."""
    node = node_with_broker
    alice, bob = await come(to=node), await come(to=node)
    assert await free(alice) == 5_000_000
    made = await alice.ask("CREATE", f"{QOS}/", VIDEO)
    assert code(made) == 200, made
    value = made["body"]["value"]
    assert await free(alice) == 2_500_000
    _check(value, node)
    path = {"resource": f"/reservations/{value['reservationId']}"}
    shown = (await alice.ask("read", QOS, path))["body"]["value"]
    assert shown["state"] == "held"
    assert "iceServers" not in shown
    for type_ in ("read", "update", "delete"):
        assert code(await bob.ask(type_, QOS, path)) == 403
    assert (await bob.ask("read", QOS, {"resource": "/reservations"}))["body"]["value"] == []
    renewed = (await alice.ask("update", QOS, {**path, "value": {"seconds": 7200}}))["body"]
    assert renewed["value"]["expires"] > value["expires"]
    assert code(await bob.ask("create", QOS, VIDEO)) == 200
    full = await bob.ask("create", QOS, VIDEO)
    assert code(full) == 503
    assert "class video" in full["body"]["desc"]
    assert code(await alice.ask("delete", QOS, path)) == 200
    assert code(await alice.ask("delete", QOS, path)) == 404
    assert await free(alice) == 2_500_000
    told = await alice.expect(type="update", sender=QOS)
    assert told["body"]["value"] == "released"
    assert told["body"]["resource"] == path["resource"]
    node.manage("shell", "-c", EXPIRE)
    told = await bob.expect(type="update", sender=QOS)
    assert (told["body"]["value"], told["body"]["reason"]) == ("ended", "expired")
    assert await free(bob) == 5_000_000
    _nowhere(node, value, renewed["value"])


def _check(value: dict[str, Any], node: Node) -> None:
    """The credential is the HMAC of a user name that ends in the future."""
    (server,) = value["iceServers"]
    user = server["username"]
    assert int(user.partition(":")[0]) > time.time()
    assert user.partition(":")[2] == value["reservationId"]
    secret = node.manage("shell", "-c", SECRET).split()[-1]
    mac = hmac.new(secret.encode(), user.encode(), hashlib.sha1).digest()
    assert server["credential"] == base64.b64encode(mac).decode()
    assert server["urls"][0].startswith("turn:127.0.0.1:")
    assert (value["class"], value["bitrate"]) == ("video", 2_500_000)
    assert value["iceTransportPolicy"] == "relay"
    files = [each.read_bytes() for each in node.data_dir.rglob("*") if each.is_file()]
    assert not any(secret.encode() in each for each in files)


def _nowhere(node: Node, *values: dict[str, Any]) -> None:
    """Case 41: no file that the node has written holds a credential, its log included."""
    files = [each.read_bytes() for each in node.data_dir.rglob("*") if each.is_file()]
    for value in values:
        credential = value["iceServers"][0]["credential"]
        for text in (credential, json.dumps(credential)):
            assert not any(text.encode() in each for each in files)
