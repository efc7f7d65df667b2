"""Chromium and Node.js talk with each other, over one node and over two of different domains.

Over two, each loads the other domain's stub from its catalogue into a sandbox and is a visitor
there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node import ROOT, Node
from tests.runtime.pages import served
from tests.stubs.runtimes import node_js

HERE = Path(__file__).parent
OPEN = """async (options) => {
    const { Runtime } = await import("/msgnode/runtime/js/src/index.js");
    const { conversation } = await import("/tests/runtime/talk.mjs");
    window.runtime = new Runtime(options);
    window.talk = await conversation(window.runtime);
    return window.talk.url;
}"""


class NodeJs:
    """A runtime in Node.js."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = str(self._read()["url"])

    def ask(self, address: str, times: int) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"ask": address, "times": times}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the Node.js runtime has ended"
        return dict(json.loads(line))


class Page:
    """A runtime in Chromium."""

    def __init__(self, page: Any, options: dict[str, Any]) -> None:
        self._page = page
        self.url = page.evaluate(OPEN, options)

    def ask(self, address: str, times: int) -> dict[str, Any]:
        answer = self._page.evaluate(
            "([to, times]) => window.talk.ask(to, times)", [address, times]
        )
        return dict(answer)

    def frames(self) -> int:
        return len(self._page.query_selector_all("iframe[sandbox]"))


@contextmanager
def nodejs_runtime(options: dict[str, Any]) -> Iterator[NodeJs]:
    command = [*node_js(), str(HERE / "talker.mjs"), json.dumps(options)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            yield NodeJs(process)
        finally:
            process.kill()


@contextmanager
def chromium_runtime(browser: Any, options: dict[str, Any]) -> Iterator[Page]:
    with served(ROOT) as url:
        page = browser.new_page()
        try:
            page.goto(f"{url}/msgnode/runtime/js/tests/browser/index.html")
            yield Page(page, options)
        finally:
            page.close()


def they_talk(one: NodeJs | Page, other: NodeJs | Page, times: int = 20) -> None:
    for who, to in ((one, other), (other, one)):
        told = who.ask(to.url, times)
        assert told["codes"] == [200] * times, told


@pytest.mark.long
@pytest.mark.parametrize("sandbox", ["own", "all"])
def test_chromium_and_nodejs_over_one_node(sandbox: str, node: Node, browser: Any) -> None:
    catalogues = {"localhost": f"http://127.0.0.1:{node.port}"}
    options = {"domain": "localhost", "catalogues": catalogues, "sandbox": sandbox}
    with nodejs_runtime(options) as one, chromium_runtime(browser, options) as other:
        they_talk(one, other)
        assert other.frames() == (sandbox == "all")


@pytest.mark.long
def test_chromium_and_nodejs_over_two_nodes_of_different_domains(
    start_node: Callable[..., Node], browser: Any
) -> None:
    here, there = (start_node(DOMAIN=each) for each in ("a.test", "b.test"))
    catalogues = {
        "a.test": f"http://127.0.0.1:{here.port}",
        "b.test": f"http://127.0.0.1:{there.port}",
    }
    with (
        nodejs_runtime({"domain": "b.test", "catalogues": catalogues}) as one,
        chromium_runtime(browser, {"domain": "a.test", "catalogues": catalogues}) as other,
    ):
        they_talk(one, other)
        assert other.frames() == 1  # the foreign stub's
