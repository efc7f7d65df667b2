"""How the node of a peer is told from those who say that they are it; the peer is a real server."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.test import Client

from msgnode.core.errors import Forbidden, NodeError, TooMany, Unavailable
from msgnode.federation.node_proofs import (
    ASKED_A_SECOND,
    ASKED_FOR_A_SOURCE,
    PATH,
    PROVED_SECONDS,
    NodeProofs,
    digest,
    is_own,
    secret,
)
from msgnode.federation.store import PeerRow
from msgnode.net.http import HttpClient
from msgnode.sessions.rules import CloseCode

A, B, KEY = "a.example", "b.example", "the key of a"
SAID = f"{A} {secret(KEY, A, B)}"


class Peer:
    """The node of a, as b asks it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: int | None = None  # whatever is asked
        self.is_silent = False

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.asked.append(path)
        if self.is_silent:
            await reader.read()
        *_, domain, asked = path.split("/")
        status = self.answers or (204 if is_own([KEY], A, domain, asked) else 404)
        writer.write(
            f"HTTP/1.1 {status} So\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        writer.close()


class Connection:
    def __init__(self) -> None:
        self.ended: list[int] = []

    def end(self, code: int, reason: str) -> None:
        self.ended.append(code)


class Place:
    """What b's worker knows; the test tells the time."""

    def __init__(self, peer: Peer, url: str, patience: float) -> None:
        self.peer, self.url, self.now = peer, url, 0.0
        self.http = HttpClient([ipaddress.ip_network("127.0.0.0/8")], patience, 1_000)
        self.proofs = NodeProofs(B, self.http, lambda: self.now)
        self.decide("approved")

    def decide(self, decision: str, digest_: str = "1" * 64) -> None:
        row = PeerRow(1, A, self.url, frozenset(), decision, digest_, "", 0.0, "s", "r")
        self.proofs.use([row])

    async def refusal(self, said: str = SAID) -> type[NodeError]:
        with pytest.raises(NodeError) as caught:
            await self.proofs.prove(said)
        return caught.type

    def come(self, proved: str, said: str = SAID) -> Any:
        connection: Any = Connection()
        self.proofs.came(connection, said, proved)
        return connection


@asynccontextmanager
async def placed(patience: float = 20.0) -> AsyncIterator[Place]:
    peer = Peer()
    server = await asyncio.start_server(peer.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = Place(peer, f"http://127.0.0.1:{port}", patience)
    try:
        yield place
    finally:
        await place.http.close()
        server.close()


async def test_the_node_of_a_peer_is_known_by_what_the_peer_says_of_its_secret() -> None:
    async with placed() as place:
        assert await place.proofs.prove(SAID) == A
        assert place.peer.asked == [f"/{PATH}/{B}/{digest(SAID.split()[1])}"]
        assert SAID.split()[1] not in place.peer.asked[0]


@pytest.mark.parametrize(
    "said", [A, f"{A} ", f"{A} guessed", f"{A} {secret(KEY, A, 'm.example')}", f"{SAID} ", f"{A} é"]
)
async def test_anybody_else_is_refused_also_who_was_told_anothers_secret(said: str) -> None:
    async with placed() as place:
        assert await place.proofs.prove(SAID) == A
        assert await place.refusal(said) is Forbidden
        assert await place.proofs.prove(SAID) == A


@pytest.mark.parametrize("said", ["", "c.example secret", SAID.upper(), f"{B} x"])
async def test_who_names_no_peer_is_a_visitor_and_nobody_is_asked(said: str) -> None:
    async with placed() as place:
        assert await place.proofs.prove(said) == ""
        place.decide("pending")
        assert await place.proofs.prove(SAID) == ""
        assert not place.peer.asked


@pytest.mark.parametrize(("decision", "refusal"), [("blocked", Forbidden), ("paused", Unavailable)])
async def test_nobody_is_let_in_as_a_peer_that_is_blocked_or_paused(
    decision: str, refusal: type[NodeError]
) -> None:
    async with placed() as place:
        assert await place.proofs.prove(SAID) == A
        place.decide(decision)
        assert await place.refusal() is refusal


async def test_forgers_do_not_keep_out_a_node_that_is_known_and_have_the_peer_asked_so_often() -> (
    None
):
    async with placed() as place:
        assert await place.proofs.prove(SAID) == A
        forged = [f"{A} {number}" for number in range(100)]
        found = [await place.refusal(each) for each in forged]
        assert found.count(Forbidden) == len(place.peer.asked) - 1 == ASKED_A_SECOND - 1
        assert found[-1] is TooMany
        assert await place.proofs.prove(SAID) == A
        place.now += PROVED_SECONDS
        assert await place.proofs.prove(SAID) == A
        assert len(place.peer.asked) == ASKED_A_SECOND + 1, "asked again"


async def test_forgers_at_one_address_do_not_keep_out_a_node_that_is_not_known_yet() -> None:
    async with placed() as place:
        for number in range(100):
            with pytest.raises(NodeError):
                await place.proofs.prove(f"{A} {number}", f"2001:db8::{number}")
        assert len(place.peer.asked) == ASKED_FOR_A_SOURCE
        assert await place.proofs.prove(SAID, "192.0.2.1") == A


async def test_a_secret_that_the_peer_has_given_up_is_refused_after_a_while() -> None:
    async with placed() as place:
        assert await place.proofs.prove(SAID) == A
        place.peer.answers = 404
        assert await place.proofs.prove(SAID) == A
        place.now += PROVED_SECONDS
        assert await place.refusal() is Forbidden


async def test_a_peer_that_is_silent_is_not_waited_for_long() -> None:
    async with placed(patience=0.1) as place:
        place.peer.is_silent = True
        assert await place.refusal() is Unavailable


async def test_while_the_peer_cannot_be_asked_its_node_comes_again_later() -> None:
    async with placed() as place:
        place.peer.answers = 503
        assert await place.refusal() is Unavailable
        place.peer.answers = 200  # a page for whatever is asked
        assert await place.refusal() is Forbidden
        place.peer.answers = None
        assert await place.proofs.prove(SAID) == A


async def test_what_an_operator_decides_has_those_come_again_that_are_others_now() -> None:
    async with placed() as place:
        place.decide("pending")
        visitor, other = place.come(""), place.come("", "c.example x")
        place.decide("pending")
        assert visitor.ended == other.ended == []
        place.decide("approved")
        node, late, gone = place.come(A), place.come(""), place.come(A)
        place.proofs.left(gone)
        assert visitor.ended == late.ended == [CloseCode.GOING_AWAY]
        assert node.ended == []
        place.decide("blocked")
        assert node.ended == [CloseCode.GOING_AWAY]
        assert other.ended == gone.ended == []
        node = place.come(A)
        assert node.ended == [CloseCode.GOING_AWAY]
        place.proofs.use([])
        assert other.ended == []


def test_a_node_knows_its_own_secrets_and_no_others(settings: Any) -> None:
    settings.DOMAIN, settings.FEDERATION, settings.SECRET_KEY = A, "listed", KEY
    settings.SECRET_KEY_FALLBACKS = ["the key before"]
    own = digest(secret(KEY, A, B))

    def status(domain: str, asked: str) -> int:
        return Client().get(f"/{PATH}/{domain}/{asked}").status_code

    assert status(B, own) == status(B, digest(secret("the key before", A, B))) == 204
    assert status("c.example", own) == status(B, digest(secret("another", A, B))) == 404
    assert status(B, own[:-1]) == status(B, "x") == 404
    settings.FEDERATION = "off"
    assert status(B, own) == 404
