"""Runtimes with direct connections, in Chromium and in Python, behind one face."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.node import ROOT, Node
from tests.runtime.pages import served
from tests.stubs.conftest import FLAGS

LIMIT = 60.0
OPEN = """async (options) => {
    const { talker } = await import("/tests/runtime/p2p.mjs");
    window.talker = await talker(options);
    const { url, runtimeURL, handler, registration } = window.talker;
    return { url, runtimeURL, handler, registration };
}"""
PATIENT = {"answer": 30, "setUp": 60, "fence": 30, "resume": 30, "ping": 20, "dead": 60}
"""Seconds: a starved machine answers late."""


class Talker(Protocol):
    """A runtime, and what it is told to do."""

    named: dict[str, Any]

    def do(self, name: str, *words: Any) -> Any: ...


class Page:
    """A runtime in Chromium."""

    def __init__(self, page: Any, options: dict[str, Any]) -> None:
        self.page = page
        self.named = dict(page.evaluate(OPEN, options))

    def do(self, name: str, *words: Any) -> Any:
        return self.page.evaluate("([name, words]) => talker[name](...words)", [name, list(words)])


class Process:
    """A runtime in Python."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.named = self._read()

    def do(self, name: str, *words: Any) -> Any:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": name, "with": words}) + "\n")
        self._process.stdin.flush()
        return self._read()["result"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the runtime has ended"
        return dict(json.loads(line))


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """A Chromium that uses the loopback for channels, which is all there may be."""
    from playwright.sync_api import sync_playwright

    flags = [*FLAGS, "--allow-loopback-in-peer-connection"]
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()


@contextmanager
def talker(
    kind: str,
    browser: Any,
    node: Node,
    timers: dict[str, float] | None = None,
    relay: dict[str, str] | None = None,
    **options: Any,
) -> Iterator[Talker]:
    """A runtime of a kind: "chromium" or "python".

    Args:
        timers: in seconds.
        relay: the ICE server that is its only way.
    """
    chosen = {**PATIENT, **(timers or {})}
    home = {"domain": "localhost", "catalogues": {"localhost": f"http://127.0.0.1:{node.port}"}}
    if kind == "chromium":
        p2p: dict[str, Any] = {"timers": {name: 1000 * each for name, each in chosen.items()}}
        if relay:
            p2p |= {"iceServers": [relay], "relayOnly": True}
        with _page(browser, {**home, "p2p": p2p, **options}) as page:
            yield page
        return
    names = {"setUp": "set_up"}
    given = {names.get(name, name): seconds for name, seconds in chosen.items()}
    script = Path(__file__).parent / "p2p_talker.py"
    with subprocess.Popen(
        [sys.executable, str(script), json.dumps({**home, "timers": given, "relay": relay})],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield Process(started)
        finally:
            started.kill()


@contextmanager
def _page(browser: Any, options: dict[str, Any]) -> Iterator[Page]:
    with served(ROOT) as url:
        context = browser.new_context(permissions=["microphone"])
        try:
            page = context.new_page()
            page.goto(f"{url}/msgnode/runtime/js/tests/browser/index.html")
            yield Page(page, options)
        finally:
            context.close()


def until(is_so: Callable[[], bool], *shown: Talker) -> None:
    """Wait until something holds."""
    limit = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < limit, [each.do("states") for each in shown]
        time.sleep(0.05)


def ask(one: Talker, other: Talker, value: Any, **named: Any) -> dict[str, Any]:
    """Ask the other's hyperty; `p2p=True` wants a channel."""
    return dict(one.do("ask", other.named["url"], value, named))


def ways(one: Talker, other: Talker) -> list[str]:
    """Which way each of the two sends to the other."""
    pairs = ((one, other), (other, one))
    return [str(here.do("way", there.named["runtimeURL"])) for here, there in pairs]


def connect(one: Talker, other: Talker) -> float:
    """A channel that is in use in both directions; ms from the first state to `live`."""
    wanted = {"p2p": True, "p2pHandler": other.named["handler"], "p2pRequester": "x"}
    assert ask(one, other, 0, **wanted)["value"] == 0
    until(lambda: ways(one, other) == ["channel", "channel"], one, other)
    told = [each for each in one.do("states") if each[0] == other.named["runtimeURL"]]
    assert [word for _, word, _ in told] == ["created", "in-progress", "live"]
    return float(told[-1][2] - told[0][2])


def count_of(node: Node) -> float:
    """Messages of the type that is asked with; a node's own probes are of others."""
    lines = node.text("/metrics").splitlines()
    named = [each for each in lines if each.startswith("msgnode_messages_total{")]
    return sum(float(each.split()[-1]) for each in named if 'type="create"' in each)
