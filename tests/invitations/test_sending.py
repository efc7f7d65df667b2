"""What becomes of an invitation whose endpoint is slow, fails or does not answer."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings

from msgnode import models
from msgnode.bus.table import RoutingTable
from msgnode.connectors.identity_requests import Execute
from msgnode.core import addresses
from msgnode.core.errors import BadGateway, BadMessage, GatewayTimeout, Gone, NotFound, TooMany
from msgnode.core.identity import Identity, Speaker
from msgnode.invitations import guests, service
from msgnode.invitations.service import InvitationService
from msgnode.net.http import HttpClient
from tests.devices.receiver import answering
from tests.fakes import FakeSession

pytestmark = pytest.mark.django_db(transaction=True)
ALICE = "runtime://localhost/alice"
HYPERTY = f"{ALICE}/call"
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]
SECONDS = 0.4
CREATED = b"HTTP/1.1 201 X\r\nLocation: /push/e/n\r\nContent-Length: 0\r\n\r\n"
BROKEN = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"
SILENT = b""


class Home:
    """Alice, and the part of her node that sends her invitations."""

    def __init__(self, subject: str) -> None:
        issuer = settings.PROVIDER["ISSUER"]
        identity = Identity(issuer, subject, user_url="user://localhost/alice@example.org")
        self.alice = FakeSession(ALICE)
        self.alice.speaker = Speaker(self.alice.id, ALICE, identity=identity)
        http = HttpClient(LOOPBACK, SECONDS, 4_096)
        table: Any = RoutingTable()
        self.service = InvitationService("localhost", issuer, table, http, service.threads())

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        request = Execute(method, params)
        async with asyncio.timeout(20):
            body = await self.service.answer(request, f"{ALICE}/invitations", self.alice)
        return dict(body.get("value") or {})

    async def send(self, port: int) -> dict[str, Any]:
        endpoint = f"http://127.0.0.1:{port}/push/e"
        to = {"endpoint": endpoint, "user": "user://b.example/bob"}
        return await self.ask("sendInvitation", **to, hyperty=HYPERTY)


@pytest.fixture
async def home(django_user_model: Any) -> AsyncIterator[Home]:
    users = django_user_model.objects
    user = await sync_to_async(users.create_user)("alice", "alice@example.org", "wonderland 7")
    made = Home(str(user.pk))
    yield made
    await made.service.stop()


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[int, asyncio.Queue[bytes]]]:
    """An endpoint that takes what is posted and never answers: its port, and what has come."""
    came: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], came


@sync_to_async
def kept() -> int:
    return models.SentInvitation.objects.count()


@sync_to_async
def accepted() -> None:
    models.SentInvitation.objects.update(runtime_url="runtime://b.example/bob", session="s")


@pytest.mark.parametrize(
    "hyperty", [f"{ALICE}/\0", f"{ALICE}/{'x' * (addresses.MAX_HELD - len(ALICE))}"]
)
async def test_nothing_is_stored_that_is_no_address_or_too_long_for_one(
    home: Home, hyperty: str
) -> None:
    """PostgreSQL would not take it."""
    with pytest.raises(BadMessage, match=r"params\.hyperty"):
        await home.ask("subscribePush", hyperty=hyperty)
    good = f"{ALICE}/{'x' * (addresses.MAX_HELD - len(ALICE) - 1)}"
    assert await home.ask("subscribePush", hyperty=good)


async def test_one_of_which_nobody_says_that_it_came_is_good_for_nothing(home: Home) -> None:
    for text, error in ((SILENT, GatewayTimeout), (BROKEN, BadGateway)):
        async with answering(text) as port:
            with pytest.raises(error):
                await home.send(port)
        assert await kept() == 0
    assert home.service.steps["sent"] == 0


async def test_one_that_is_accepted_before_its_endpoint_answers_was_sent(home: Home) -> None:
    async with silent() as (port, came):
        sending = asyncio.ensure_future(home.send(port))
        await came.get()
        await accepted()
        value = await sending
    assert value.keys() == {"invitation", "expires"}
    assert await kept() == 1
    assert home.service.steps["sent"] == 1


async def test_a_withdrawal_of_which_a_frozen_node_is_not_told_holds_all_the_same(
    home: Home,
) -> None:
    async with answering(CREATED) as port:
        value = await home.send(port)
    asked = {"invitation": value["invitation"], "location": value["location"]}
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", port)):  # takes connections and reads nothing
        told = await home.ask("withdrawInvitation", **asked)
    assert told == {"told": False}
    assert time.monotonic() - began < SECONDS + 5
    assert home.service.steps == {"sent": 1, "withdrawn": 1, "withdrawal_untold": 1}
    accept = sync_to_async(guests.accept)
    assert not await accept(value["invitation"], HYPERTY, "runtime://b.example/bob", "s")


async def test_an_inviter_ends_what_he_has_sent_and_nothing_else(home: Home) -> None:
    async with answering(CREATED) as port:
        name = (await home.send(port))["invitation"]
    await sync_to_async(guests.accept)(name, HYPERTY, "runtime://b.example/bob", "s")
    for wrong, asked in ((NotFound, {"invitation": "another"}), (BadMessage, {})):
        with pytest.raises(wrong, match="invitation"):
            await home.ask("endInvitation", **asked)
    assert await sync_to_async(lambda: len(list(guests.rights_of(["s"]))))() == 1
    assert await home.ask("endInvitation", invitation=name) == {}
    assert not await sync_to_async(lambda: list(guests.rights_of(["s"])))()
    assert home.service.steps == {"sent": 1, "ended_by_user": 1}


async def test_an_inviter_reopens_what_somebody_accepts_who_then_does_nothing(home: Home) -> None:
    async with answering(CREATED) as port:
        value = await home.send(port)
    name, accept = value["invitation"], sync_to_async(guests.accept)
    bob, phone = "runtime://b.example/bob", "runtime://b.example/phone"
    assert await accept(name, HYPERTY, bob, "s")
    assert not await accept(name, HYPERTY, phone, "t")
    with pytest.raises(NotFound):
        await home.ask("reopenInvitation", invitation="another")
    assert await home.ask("reopenInvitation", invitation=name) == {"expires": value["expires"]}
    assert not await sync_to_async(lambda: list(guests.rights_of(["s"])))()
    assert [
        each.session for each in await sync_to_async(lambda: list(guests.ended_rights(60)))()
    ] == ["s"]
    assert await accept(name, HYPERTY, phone, "t")
    await home.ask("reopenInvitation", invitation=name)
    assert await home.ask("reopenInvitation", invitation=name), "nobody has accepted it since"
    await home.ask("withdrawInvitation", invitation=name)
    with pytest.raises(Gone):
        await home.ask("reopenInvitation", invitation=name)
    assert not await accept(name, HYPERTY, bob, "s")
    assert home.service.steps["reopened"] == 3


async def test_a_users_slow_endpoints_cost_others_nothing_and_him_no_withdrawal(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "AT_ONCE_PER_USER", 2)
    async with answering(CREATED) as port:
        value = await home.send(port)
    async with silent() as (slow, came):
        waiting = [asyncio.ensure_future(home.send(slow)) for _ in range(2)]
        for _ in waiting:
            await came.get()
        with pytest.raises(TooMany):
            await home.send(slow)
        asked = {"invitation": value["invitation"], "location": value["location"]}
        assert await home.ask("withdrawInvitation", **asked) == {"told": False}
        assert not any(each.done() for each in waiting)
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in found] == [GatewayTimeout] * 2
    async with answering(CREATED) as port:
        assert (await home.send(port))["location"]
