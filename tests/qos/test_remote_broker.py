"""The field's broker behind the connector: its two calls, its texts, and its faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from msgnode.core.errors import BadGateway, Forbidden, GatewayTimeout, NotFound, Unavailable
from msgnode.net.back_end import BackEnd
from msgnode.net.http import Answer
from msgnode.qos.bookings import Limits
from msgnode.qos.broker import Criteria, Owner
from msgnode.qos.models import Reservation
from msgnode.qos.remote_broker import UNREACHABLE, RemoteBroker
from msgnode.qos.store import ReservationStore
from msgnode.scripts import service
from msgnode.scripts.ports import ScriptBroker
from tests.node import ROOT
from tests.scripts.stage import needs_deno, place

from . import rows

Broker = RemoteBroker | ScriptBroker

pytestmark = pytest.mark.django_db(transaction=True)

CLIENT = "0123456789abcdef0123456789abcdef"


def said(value: Any) -> Answer:
    return Answer(200, json.dumps(value).encode())


class FieldBroker:
    """What a broker of the field answers, by call; what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Callable[[], Answer]] = {
            "getAppropriateTurn": lambda: said(["10.0.0.2:3478", CLIENT]),
            "getCredentials": lambda: said(
                {"clientId": CLIENT, "password": f"pw{len(self.asked)}"}
            ),
            "getCspConso": lambda: said({"audio": "0", "video": "0", "data": "123"}),
            "getAllCspInfo": lambda: said(
                [{"csp": "prov:csp1", "audioQuota": "0", "dataQuota": "10737418240"}]
            ),
        }

    def says(self, call: str, status: int, text: str) -> None:
        self.answers[call] = lambda: Answer(status, text.encode())

    async def __call__(self, method: str, url: str, body: bytes | None, headers: Any) -> Answer:
        parts = urlsplit(url)
        call = parts.path.strip("/")
        self.asked.append(call)
        self.query = dict(parse_qsl(parts.query))
        return self.answers[call]()


@pytest.fixture
def field() -> FieldBroker:
    return FieldBroker()


@pytest.fixture(params=["remote", pytest.param("script", marks=needs_deno)])
async def broker(request: Any, field: FieldBroker) -> AsyncIterator[RemoteBroker | ScriptBroker]:
    """The part of the node that speaks to it, or the script of examples/connectors that does."""
    if request.param == "script":
        source = (ROOT / "examples" / "connectors" / "qos.js").read_text()
        base = "https://broker.example"
        async with place(source, "qos", configuration={"base": base}, origins=[base]) as one:
            client = one.port.script._world._clients[base]  # type: ignore[union-attr]
            client.request = field
            store = ReservationStore(Limits())
            yield ScriptBroker(store, one.port)
            await store.stop()
        return
    back_end = BackEnd("http://broker.example", UNREACHABLE, 1.0, 0, 4)
    back_end._client.request = field  # type: ignore[method-assign, assignment]
    store = ReservationStore(Limits())
    yield RemoteBroker(store, back_end, timeout=1.0)
    await store.stop()
    await back_end.close()


@pytest.fixture
def owner() -> Owner:
    rows.classes()
    return rows.owner()


async def test_cases_15_and_45_reserve_is_its_two_calls_and_one_configuration(
    broker: Broker, field: FieldBroker, owner: Owner
) -> None:
    value = await broker.reserve(rows.video(customer="csp 1", client_name="call"), owner)
    assert field.asked == ["getAppropriateTurn", "getCredentials"]
    assert value["iceServers"] == [
        {"urls": ["turn:10.0.0.2:3478"], "username": CLIENT, "credential": "pw2"}
    ]
    assert value["iceTransportPolicy"] == "relay"
    shown = await broker.read(value["reservationId"], owner)
    assert shown["state"] == "active"
    assert "pw2" not in json.dumps(shown)
    again = await broker.renew(value["reservationId"], 60, owner)
    assert again["iceServers"][0]["credential"] == "pw3"
    await broker.release(value["reservationId"], owner)
    with pytest.raises(NotFound):
        await broker.release(value["reservationId"], owner)


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (404, "Unable to get a turn server : CSP not found", NotFound),
        (404, "Unable to get a turn server : data consumption exceeded", Forbidden),
        (404, "No turn found", Unavailable),
        (404, "Unable to get a turn server : CSP consumption unknown", Unavailable),
        (500, "", Unavailable),
        (302, "", BadGateway),
        (200, "hello", BadGateway),
        (200, "[]", BadGateway),
        (200, '["a b", "c"]', BadGateway),
        (200, "[1, 2]", BadGateway),
    ],
)
async def test_case_16_refusals_become_codes_and_nothing_stays_booked(
    broker: Broker,
    field: FieldBroker,
    owner: Owner,
    status: int,
    text: str,
    error: type[Exception],
) -> None:
    field.says("getAppropriateTurn", status, text)
    with pytest.raises(error):
        await broker.reserve(rows.video(customer="csp1"), owner)
    assert await broker.list(owner) == []


async def test_case_16_a_broker_that_never_answers_is_504(
    broker: Broker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def silent(*_: Any) -> Answer:
        await never.wait()
        raise AssertionError

    client: Any
    monkeypatch.setattr(service, "CALL_SECONDS", 0.5)
    if isinstance(broker, RemoteBroker):
        client = broker._back_end._client
        broker._timeout = 0.2
    else:
        client = next(iter(broker._port.script._world._clients.values()))  # type: ignore[union-attr]
    client.request = silent
    with pytest.raises(GatewayTimeout):
        await broker.reserve(rows.video(), owner)
    assert await broker.list(owner) == []


async def test_case_45_an_inquiry_says_what_is_left(broker: Broker) -> None:
    value = await broker.inquire(Criteria("csp1"))
    assert value["quota"]["data"] == 10737418240
    assert value["available"] == {"data": 10737418117}
    with pytest.raises(NotFound):
        await broker.inquire(Criteria("csp2"))


@pytest.mark.parametrize("listed", ["7", '"csp1"', "{}", "[7, null]", "null", ""])
async def test_case_16_a_list_of_customers_that_is_none_is_no_fault_of_the_node(
    broker: Broker, field: FieldBroker, listed: str
) -> None:
    field.says("getAllCspInfo", 200, listed)
    with pytest.raises((BadGateway, NotFound)):
        await broker.inquire(Criteria("csp1"))


async def test_a_password_stands_in_no_row(
    broker: Broker, field: FieldBroker, owner: Owner
) -> None:
    await broker.reserve(rows.video(), owner)
    written: list[Any] = await broker._store.in_thread(lambda: list(Reservation.objects.values()))
    assert "pw2" not in str(written)
