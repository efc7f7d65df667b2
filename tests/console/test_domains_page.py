"""The map of domains: what it is told of workers and rows, and how it moves in a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client as Http

from msgnode.console import roles
from msgnode.console.live import domains
from msgnode.console.live.domains import PeerRow
from msgnode.monitoring.domain_watch import (
    TOLD,
    DomainFigures,
    DomainWatch,
    PeerFigures,
    VisitorFigures,
)
from tests import waiting
from tests.accessibility import axe_faults
from tests.node import Node

from . import window
from .browser import operated_node

PEERS = """
from msgnode.models import Peer
Peer.objects.create(domain="paused.example", decision="paused")
Peer.objects.create(domain="waits.example")
"""


def link(domain: str, sent: int, received: int, waiting: int = 0) -> Any:
    counters = SimpleNamespace(sent=sent, received=received, round_trip=0.004)
    exchange = SimpleNamespace(counters=counters, queue=[0] * waiting)
    return SimpleNamespace(peer=SimpleNamespace(domain=domain), state="live", exchange=exchange)


def visit(id_: str, domain: str, read: int, given: int) -> Any:
    socket = SimpleNamespace(flow=SimpleNamespace(frames=read))
    session = SimpleNamespace(id=id_, socket=socket, outbox=SimpleNamespace(frames=given))
    return SimpleNamespace(domain=domain, session=session)


def test_a_worker_tells_rates_since_it_was_asked_last() -> None:
    now = [100.0]
    peers: dict[int, Any] = {1: link("b.example", 10, 20)}
    visitors = [visit("1", "c.example", 5, 5), visit("2", "c.example", 0, 100)]
    watch = DomainWatch("w", visitors, peers.values, lambda: now[0])  # type: ignore[arg-type]
    first = watch.ask()
    assert first.peers == [PeerFigures("b.example", "live", 0, 0, 0, 0.004)]
    assert first.visitors == [VisitorFigures("c.example", 2, 0, 0)]
    peers[1] = link("b.example", 30, 24, waiting=2)
    visitors[0] = visit("1", "c.example", 9, 25)
    visitors[1] = visit("2", "c.example", 6, 100)
    now[0] += 0.4
    assert watch.ask() is first, "another page asks at the same time"
    now[0] += 1.6
    told = watch.ask()
    assert told.peers == [PeerFigures("b.example", "live", 10, 2, 2, 0.004)]
    assert told.visitors == [VisitorFigures("c.example", 2, 10, 5)]
    visitors[0] = visit("1", "c.example", 2, 27)  # it has come back on another socket
    now[0] += 1
    assert watch.ask().visitors == [VisitorFigures("c.example", 2, 2, 2)]
    visitors.clear()
    peers.clear()
    now[0] += 60
    assert watch.ask() == DomainFigures("w", [], [], (0, 0))


def test_of_domains_without_end_so_many_are_told() -> None:
    visitors = [visit(f"{n}", f"d{n}.example", 0, 0) for n in range(1_000)]
    visitors += [visit("more", "d500.example", 0, 0)]
    told = DomainWatch("w", visitors, tuple).ask()  # type: ignore[arg-type]
    assert len(told.visitors) == TOLD
    assert told.visitors[0] == VisitorFigures("d500.example", 2)
    assert told.others == (1_000 - TOLD, 1_000 - TOLD)


def test_the_map_adds_up_the_workers_and_says_who_is_missing() -> None:
    rows = [
        PeerRow(1, "b.example", "approved"), PeerRow(2, "free.example", "approved"),
        PeerRow(3, "new.example", "pending"), PeerRow(4, "bad.example", "blocked"),
        PeerRow(5, "quiet.example", "approved"), PeerRow(6, "sip.example", "approved", 6),
    ]  # fmt: skip
    one = DomainFigures(
        "one",
        [
            PeerFigures("b.example", "live", 12.34, 5, 1, 0.0042),
            PeerFigures("quiet.example", "idle"),
        ],
        [VisitorFigures("c.example", 2, 1, 2), VisitorFigures("e.example", 9)],
        (3, 4),
    )
    other = DomainFigures("other", [], [VisitorFigures("c.example", 8, 3, 4)], (0, 0))
    told = domains.now_of({"one": one, "other": other, "third": None}, rows)
    assert told["missing"] == ["third"]
    states = {each["domain"]: each["state"] for each in told["peers"]}
    assert states == {
        "b.example": "live", "free.example": "waits for a worker",
        "new.example": "waits for approval", "bad.example": "blocked", "quiet.example": "idle",
        "sip.example": "waits for a worker",
    }  # fmt: skip
    assert told["peers"][-1]["url"].endswith("/legacynetwork/6/change/")
    well = [each["domain"] for each in told["peers"] if each["is_well"]]
    assert well == ["b.example", "quiet.example"], "one that nobody needs is no fault"
    assert told["peers"][0] == {
        "domain": "b.example", "state": "live", "is_well": True, "sent": 12.3, "received": 5,
        "waiting": 1, "round_trip_ms": 4.2, "url": "/admin/msgnode/peer/1/change/",
    }  # fmt: skip
    assert [(each["domain"], each["sessions"]) for each in told["visitors"]] == [
        ("c.example", 10), ("e.example", 9),
    ]  # fmt: skip
    assert told["visitors"][0]["url"].endswith("?visitor=c.example")
    assert (told["other_domains"], told["other_sessions"]) == (3, 4)


@pytest.mark.django_db
def test_who_sees_sessions_sees_the_map(client: Http) -> None:
    user = User.objects.create_user("somebody", is_staff=True)
    client.force_login(user)
    assert client.get("/admin/domains/").status_code == 403
    user.groups.add(Group.objects.get(name=roles.VIEWER))
    assert b"domains-peers" in client.get("/admin/domains/").content
    client.logout()
    assert client.get("/admin/domains/").status_code == 302


@pytest.fixture
def node(tmp_path: Path, template: Path) -> Iterator[Node]:
    with operated_node(tmp_path, template) as node:
        yield node


class Talk:
    """Two visitors of one domain that talk until told to stop, and some that are silent."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_over = threading.Event()
        self.has_begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._talk()))

    def __enter__(self) -> Talk:
        self._thread.start()
        assert self.has_begun.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(30)

    async def _talk(self) -> None:
        clients = [self._node.ws() for _ in range(5)]
        for number, client in enumerate(clients):
            await client.connect()
            domain = "talks.example" if number < 2 else "silent.example"
            await client.open(f"runtime://{domain}/{number}")
        self.has_begun.set()
        while not self._is_over.is_set():
            await clients[0].send("create", clients[1].runtime_url, {"value": 1})
            await clients[1].expect(type="create")
            await asyncio.sleep(0.02)
        for client in clients:
            await client.hang_up()


@pytest.mark.long
def test_the_map_moves_and_is_read_with_eyes_ears_and_keyboard(node: Node, chromium: str) -> None:
    from playwright.sync_api import expect

    node.manage("shell", "-c", PEERS)
    with window.opened(chromium) as chromium_window, Talk(node) as talk:
        page = window.operator_page(chromium_window, node.port)
        page.goto("/admin/domains/")
        rows = page.locator("#domains-visitors tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("silent.example3")
        expect(page.locator("#domains-peers tr")).to_have_count(2)
        talking = page.locator("a.domains-box", has_text="talks.example")
        waiting.in_page(page, BUSY)
        name = talking.get_attribute("aria-label")
        assert name.startswith("talks.example: 2 visitors; ")
        talking.focus()
        waiting.in_page(page, f"{LABEL} !== {name!r}")  # it moves, and the focus stays
        assert page.evaluate("document.activeElement.dataset.key") == "visitors talks.example"
        held = page.get_by_role("button", name="Pause")
        held.click()
        assert held.get_attribute("aria-pressed") == "true"
        held.click()
        for theme, width in (("light", 1440), ("dark", 390)):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 900})
            waiting.in_page(page, "document.querySelectorAll('a.domains-box').length === 4")
            assert axe_faults(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("a.domains-box", has_text="talks.example").press("Enter")
        page.wait_for_url("**/session/?visitor=talks.example")
        expect(page.locator("#result_list tbody tr")).to_have_count(2)
        assert page.faults == []
        assert talk.has_begun.is_set()
        page.close()


BUSY = "document.querySelectorAll('path.domains-line[data-busy=true]').length === 1"
LABEL = "document.activeElement.getAttribute('aria-label')"
