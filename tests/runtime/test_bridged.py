"""Case R72 in Chromium over two real nodes: the home node is the way to the other domain.

Either node is killed while a request is on its way. What the peer was asked only the peer answers,
and it may come back with the answer; so who asked is told 408 by his bus, if not 503 before. What
could not leave for a peer that is known to be away is 504.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client import Client, code
from tests.federation.nodes import A, B, TwoNodes, come, subscribe
from tests.federation.sandboxes import needs_deno
from tests.node import Node
from tests.runtime import started
from tests.runtime.talkers import OPEN, Page, Process

pytestmark = [needs_deno, pytest.mark.long, pytest.mark.timeout(240)]

SECONDS = 60.0
BUS_SECONDS = 15.0  # until a bus answers 408
SLACK_SECONDS = 5.0


class Loop:
    """An event loop in a thread of its own: Playwright holds that of the test's."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path_factory.mktemp("bridged"), template).running() as two:
        yield two


@pytest.fixture
def nodes(both: TwoNodes) -> TwoNodes:
    """Both run and know each other, whatever a test before has left."""
    for node in (both.a, both.b):
        if not node.is_running():
            node.start()
    both.wait_live()
    return both


@pytest.fixture
def loop() -> Iterator[Loop]:
    own = Loop()
    yield own
    own.close()


@contextmanager
def device(browser: Any, nodes: TwoNodes, routing: str, at_b: str) -> Iterator[tuple[Page, Any]]:
    """A page of domain A; its conversation, and the page itself."""
    catalogues = {A: f"http://127.0.0.1:{nodes.a.port}", B: at_b}
    options = {"domain": A, "catalogues": catalogues, "routing": {B: routing}}
    with started.page(browser, OPEN, options) as (page, url):
        yield Page(page, url), page


@pytest.mark.parametrize("routing", ["node", "stub-else-node"])
def test_r72_a_page_reaches_the_other_domain_by_its_node_and_loads_no_code_of_it(
    nodes: TwoNodes, browser: Any, routing: str
) -> None:
    b = f"http://127.0.0.1:{nodes.b.port}"
    other = {"domain": B, "catalogues": {B: b, A: f"http://127.0.0.1:{nodes.a.port}"}}
    at_b = b if routing == "node" else "http://127.0.0.1:1"
    with (
        device(browser, nodes, routing, at_b) as (here, page),
        started.process("talker", "python", other) as process,
    ):
        there, asked = Process(process), []
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        # Its hyperty listens to that one address: an answer says that `to` came unchanged.
        assert here.ask(there.url, 20)["codes"] == [200] * 20
        assert there.ask(here.url, 20)["codes"] == [200] * 20
        assert here.frames() == 0
        assert [each for each in asked if f":{nodes.b.port}" in each] == []


async def silent(nodes: TwoNodes, address: str) -> Client:
    """Somebody of B who is asked at an address, and says nothing."""
    client = await come(nodes.b, B, address.rpartition("/")[2])
    assert code(await subscribe(client, B, address)) == 200
    return client


def answered(here: Page, address: str, limit: float) -> None:
    """Until a request passes; before that each is answered by a code that says why not."""
    until = time.monotonic() + limit
    while (told := here.ask(address, 1))["codes"] != [200]:
        assert told["codes"][0] in (404, 408, 503, 504), told
        assert time.monotonic() < until, told


@pytest.mark.parametrize("which", ["home", "other"])
def test_r72_a_node_is_killed_in_the_middle_of_a_request(
    nodes: TwoNodes, browser: Any, loop: Loop, which: str
) -> None:
    killed: Node = nodes.a if which == "home" else nodes.b
    b = f"http://127.0.0.1:{nodes.b.port}"
    other = {"domain": B, "catalogues": {B: b}}
    address = f"hyperty://{B}/silent-{uuid.uuid4().hex}"
    with (
        device(browser, nodes, "node", b) as (here, page),
        started.process("talker", "python", other) as process,
    ):
        there = Process(process)
        assert here.ask(there.url, 1)["codes"] == [200]
        client = loop.run(silent(nodes, address))
        page.evaluate("(to) => { window.asked = window.talk.ask(to, 1); }", address)
        loop.run(client.expect(type="create", to=address))
        killed.kill()
        if which == "other":
            nodes.wait(lambda peer: peer["state"] == "disconnected")
            late = here.ask(there.url, 1)
            assert late["codes"] == [504], late
            assert late["desc"], late
        killed.start()
        told = page.evaluate("() => window.asked")
        assert told["codes"][0] in (408, 503), told
        assert told["desc"], told
        assert told["latencies"][0] < (BUS_SECONDS + SLACK_SECONDS) * 1000, told
        nodes.wait_live()
        answered(here, there.url, SECONDS)
        loop.run(client.hang_up())
