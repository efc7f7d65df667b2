"""A call between Chromium and aiortc over a real coturn: booked, relayed, counted, given back.

The one truth that coturn's figures are compared with is what the other end's sockets have carried.
Browsers hold the thread's event loop: this module has no async tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node import ROOT, Node
from tests.redis.servers import running as redis_running
from tests.runtime.started import page
from tests.stubs.conftest import launched

from .coturn import Coturn, running

pytest.importorskip("aiortc")
pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

LIMIT = 60.0
OPEN = """async (options) => {
    const { caller } = await import("/tests/qos/caller.mjs");
    window.caller = await caller(options);
}"""
CUSTOMERS = """
for name in ("caller", "callee"):
    Customer.objects.create(name=name)
print(1)
"""
SUMS = """
from msgnode.qos.models import *
from django.db.models import Sum
print([(row.name, row.used, row.days.aggregate(s=Sum("received") + Sum("sent"))["s"] or 0)
       for row in Customer.objects.order_by("name")])
"""


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """A Chromium that uses the loopback for calls, which is all there may be."""
    with launched(chromium, "--allow-loopback-in-peer-connection") as opened:
        yield opened


class Caller:
    """The page."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def __call__(self, name: str, *words: Any) -> Any:
        return self._page.evaluate("([name, words]) => caller[name](...words)", [name, words])

    def ends(self) -> Any:
        return self._page.evaluate("caller.ends")

    def reads(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The reservation once it is so."""
        limit = time.monotonic() + LIMIT
        while not is_so(shown := self("read")):
            assert time.monotonic() < limit, shown
            self._page.wait_for_timeout(200)
        return dict(shown)

    def until(self, is_so: Callable[[], bool]) -> None:
        limit = time.monotonic() + LIMIT
        while not is_so():
            assert time.monotonic() < limit
            self._page.wait_for_timeout(200)


@contextmanager
def callee(options: dict[str, Any]) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "callee.py"), json.dumps(options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            assert started.stdout is not None
            line = started.stdout.readline()
            assert line, "the callee has ended"
            yield str(json.loads(line)["url"])
        finally:
            started.kill()


@contextmanager
def caller(browser: Any, options: dict[str, Any]) -> Iterator[Caller]:
    with page(browser, OPEN, options, permissions=["microphone"]) as (opened, _):
        yield Caller(opened)


class Place:
    """A node with its broker on, and the TURN server."""

    def __init__(self, node: Node, turn: Coturn) -> None:
        self.node = node
        self.turn = turn
        self.options = {
            "domain": "localhost",
            "catalogues": {"localhost": f"http://127.0.0.1:{node.port}"},
        }

    def shell(self, program: str) -> str:
        return self.node.manage("shell", "-c", program).strip().splitlines()[-1]


@pytest.fixture
def place(tmp_path: Path, start_node: Callable[..., Node]) -> Iterator[Place]:
    with redis_running(tmp_path) as store, running(tmp_path, store.port) as turn:
        node = start_node(QOS_BROKER="embedded", QOS_TURN_REDIS_URL=store.url, QOS_POLL_SECONDS=1)
        found = Place(node, turn)
        found.shell(turn.row() + CUSTOMERS)
        yield found


def test_cases_32_and_46_a_call_is_booked_relayed_and_counted_to_the_byte(
    place: Place, browser: Any
) -> None:
    """The other end is not relayed: coturn's peer bytes are those of its sockets."""
    with (
        callee(place.options) as other,
        caller(browser, place.options) as page,
    ):
        before = page("free")
        order = {"mediaTypes": ["data"], "cspId": "caller"}
        assert page("call", other, order) == "relay"
        assert before - page("free") == 2_000_000
        assert page("echo", 1500, 500) == 1500
        page.reads(lambda shown: bool(shown["state"] == "active"))
        page("ask", other, {"mute": True})
        page("hangUp")
        page.until(lambda: place.turn.number_running() == 0)
        counted = page("ask", other, {"count": True})
        assert counted["sent"] > 1500 * 500 < counted["received"]
        page.reads(
            lambda shown: bool(
                (shown["received"], shown["sent"]) == (counted["sent"], counted["received"])
            )
        )
        page("release")
        assert page("free") == before
        total = counted["sent"] + counted["received"]
        assert place.shell(SUMS) == str([("callee", 0, 0), ("caller", total, total)])
        assert page.ends() == [{"status": "released", "reason": "released"}]
        _shows_nowhere(place, page("credential"))


def _shows_nowhere(place: Place, credential: str) -> None:
    """Case 41, with coturn's own log."""
    files = [each for each in place.node.data_dir.rglob("*") if each.is_file()]
    for text in (credential, json.dumps(credential)[1:-1]):
        assert [each for each in files if text.encode() in each.read_bytes()] == []
        assert text not in place.turn.log()
