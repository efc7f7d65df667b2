"""A node that has begun again, with another key or at another worker: how it is met soon."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from msgnode import models
from msgnode.bus.table import RoutingTable
from msgnode.federation import link_keys, service, store
from msgnode.federation.discovery import KnownPeers
from msgnode.federation.link_protocol import ELSEWHERE, LinkFault
from msgnode.federation.linked_peer import LinkedPeer
from msgnode.federation.observers import Observers
from msgnode.federation.service import Federation, FederationSettings, ServingWorker
from msgnode.models import Peer
from msgnode.net.http import Answer
from msgnode.storage.alarms import STUB_CHANGED
from tests.fakes import AlarmCalls

A, B = "a.example", "b.example"
PLACE = f"https://{B}/{link_keys.PATH}"

pytestmark = [pytest.mark.asyncio, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def written_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


class Inline:
    """A writer that writes at once."""

    def submit(self, *changes: Any) -> asyncio.Future[None]:
        for each in changes:
            each.action()
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class Published:
    """The node of a domain: what it publishes, and what was asked of it."""

    networks = ()

    def __init__(self, secrets: list[str]) -> None:
        document = link_keys.document(link_keys.own_keys(secrets, B), B, time.time())
        self.answers = {PLACE: Answer(200, json.dumps(document).encode())}
        self.asked: list[str] = []

    async def get(self, url: str, headers: Any = None) -> Answer:
        self.asked.append(url)
        return self.answers.get(url, Answer(404, b""))


class Worker:
    """A worker of a.example, of which b.example is an approved peer with the key `old`."""

    def __init__(self, *published: str) -> None:
        [self.old] = link_keys.own_keys(["old"], B)
        counts = json.dumps({self.old.kid: {"x": self.old.x, "since": 1}})
        Peer.objects.create(domain=B, decision="approved", kind="ours", node_keys=counts)
        self.node, nothing = Published(list(published)), None
        self.raised: list[str] = []
        self.alarms = AlarmCalls(lambda kind, *_: self.raised.append(kind))
        writer: Any = Inline()
        self.peers = KnownPeers(A, "listed", self.node, writer, self.alarms.raise_alarm)  # type: ignore[arg-type]
        settings = FederationSettings(A, 32, nothing, nothing)  # type: ignore[arg-type]
        worker = ServingWorker("epoch", RoutingTable(), writer, lambda: True, self.alarms)
        observers = Observers(RoutingTable(), nothing, nothing, True, 30.0)  # type: ignore[arg-type]
        self.federation = Federation(
            settings, worker, self.peers, nothing, nothing, observers, nothing, nothing  # type: ignore[arg-type]
        )  # fmt: skip
        self.federation._use(store.read())
        self.row = self.peers.rows[B]

    def dial_requests(self) -> int:
        return models.ControlMessage.objects.filter(kind=store.DIAL).count()


async def test_the_keys_alone_are_looked_at_if_a_node_comes_with_another_one() -> None:
    """Neither its catalogue, nor the next round of this worker, is waited for."""
    worker = Worker("new", "old")
    [new, old] = link_keys.own_keys(["new", "old"], B)
    for _ in range(3):
        worker.federation._key_is_unknown(worker.row)
    async with asyncio.timeout(20):
        await worker.federation._is_stale.wait()
    assert worker.node.asked == [PLACE], "and once, whoever claims to be that node"
    assert set(json.loads(store.read()[0].node_keys)) == {new.kid, old.kid}


async def test_a_key_that_no_accepted_one_has_signed_is_for_an_operator_as_before() -> None:
    worker = Worker("new")
    assert await worker.peers.look_for_keys(worker.row)
    assert not json.loads(store.read()[0].node_keys or "{}")
    assert worker.raised == [STUB_CHANGED]


async def test_a_worker_that_does_not_serve_a_node_has_it_dialled_by_the_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker("old")
    for _ in range(3):
        with pytest.raises(LinkFault) as refused:
            worker.federation.link_to(B)
        assert refused.value.code == ELSEWHERE
    assert worker.dial_requests() == 1, "whoever claims to be that node"
    monkeypatch.setattr(service, "DIAL_SECONDS", 0.0)
    with pytest.raises(LinkFault):
        worker.federation.link_to(B)
    assert worker.dial_requests() == 2


async def test_the_worker_that_serves_a_node_dials_it_when_it_has_come_to_another_one() -> None:
    worker = Worker("old")
    dialled: list[str] = []
    for pk, domain in enumerate((B, "c.example")):
        link: Any = LinkedPeer.__new__(LinkedPeer)
        link.peer = SimpleNamespace(domain=domain)
        link.wire = SimpleNamespace(hurry=lambda domain=domain: dialled.append(domain))
        worker.federation.links[pk] = link
    worker.federation.handlers()[store.DIAL]({"domain": B})
    assert dialled == [B]
