"""Runtimes with direct connections, in Chromium and in Python, behind one face."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from tests import waiting
from tests.node import Node
from tests.runtime.started import Process, page, process
from tests.stubs.conftest import launched

LIMIT = 60.0
OPEN = """async (options) => {
    const { talker } = await import("/tests/runtime/p2p.mjs");
    window.talker = await talker(options);
    const { url, runtimeURL, handler, registration } = window.talker;
    return { url, runtimeURL, handler, registration };
}"""
PATIENT = {"answer": 30, "setUp": 60, "fence": 30, "resume": 30, "ping": 20, "dead": 60}
"""Seconds: a starved machine answers late."""
ANSWERS = 60
"""Seconds that a request waits: longer than what waits for a fence, or a resume, of PATIENT."""


class Talker(Protocol):
    """A runtime, and what it is told to do."""

    named: dict[str, Any]

    def do(self, name: str, *words: Any) -> Any: ...


class InChromium:
    """A runtime in Chromium."""

    def __init__(self, page: Any, named: dict[str, Any]) -> None:
        self.page = page
        self.named = named

    def do(self, name: str, *words: Any) -> Any:
        return self.page.evaluate("([name, words]) => talker[name](...words)", [name, list(words)])


class InProcess:
    """A runtime in Python or Node.js."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.named = process.first
        self.pid = process.pid

    def do(self, name: str, *words: Any) -> Any:
        return self._process.order(**{"do": name, "with": words})["result"]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """A Chromium that uses the loopback for channels, which is all there may be."""
    with launched(chromium, "--allow-loopback-in-peer-connection") as opened:
        yield opened


@contextmanager
def talker(
    kind: str,
    browser: Any,
    node: Node,
    timers: dict[str, float] | None = None,
    relay: dict[str, str] | None = None,
    identity: dict[str, Any] | None = None,
    stubs: str = "built-in",
    **options: Any,
) -> Iterator[Talker]:
    """A runtime of a kind: "chromium", "nodejs" or "python".

    Args:
        timers: in seconds.
        relay: the ICE server that is its only way.
        identity: what it logs in with.
        stubs: "catalogue" for P2P stubs of the node's catalogue; not in Python.
    """
    chosen = {**PATIENT, **(timers or {})}
    home: dict[str, Any] = {
        "domain": "localhost",
        "catalogues": {"localhost": f"http://127.0.0.1:{node.port}"},
    }
    if kind != "python":
        p2p: dict[str, Any] = {"timers": {name: 1000 * each for name, each in chosen.items()}}
        p2p["stubs"] = stubs
        home["answerTime"] = 1000 * ANSWERS
        if relay:
            p2p |= {"iceServers": [relay], "relayOnly": True}
        options = {**home, "p2p": p2p, **({"identity": identity} if identity else {}), **options}
    if kind == "nodejs":
        with process("p2p_nodejs", kind, options) as started:
            yield InProcess(started)
        return
    if kind == "chromium":
        with page(browser, OPEN, options, permissions=["microphone"]) as (opened, named):
            yield InChromium(opened, named)
        return
    names = {"setUp": "set_up"}
    given = {names.get(name, name): seconds for name, seconds in chosen.items()}
    chosen_too = {"timers": given, "relay": relay, "identity": identity}
    with process("p2p_talker", "python", {**home, **chosen_too, **options}) as started:
        yield InProcess(started)


def until(is_so: Callable[[], bool], *shown: Talker) -> None:
    """Wait until something holds."""
    waiting.until(is_so, LIMIT, lambda: str([each.do("states") for each in shown]))


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
