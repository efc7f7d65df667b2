"""Runtimes of three kinds behind one face, each with a hyperty that answers and asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.node import ROOT
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

Options = dict[str, Any]


class Talker(Protocol):
    """A runtime; `url` is its hyperty's."""

    url: str

    def ask(self, address: str, times: int) -> dict[str, Any]: ...


class Process:
    """A runtime in Node.js or Python."""

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
        assert line, "the runtime has ended"
        return dict(json.loads(line))


class Page:
    """A runtime in Chromium."""

    def __init__(self, page: Any, options: Options) -> None:
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
def process(kind: str, options: Options, **environment: str) -> Iterator[Process]:
    command = node_js() if kind == "nodejs" else [sys.executable]
    script = HERE / ("talker.mjs" if kind == "nodejs" else "talker.py")
    with subprocess.Popen(
        [*command, str(script), json.dumps(options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield Process(started)
        finally:
            started.kill()


@contextmanager
def page(browser: Any, options: Options) -> Iterator[Page]:
    with served(ROOT) as url:
        context = browser.new_context(ignore_https_errors=True)
        try:
            opened = context.new_page()
            opened.goto(f"{url}/msgnode/runtime/js/tests/browser/index.html")
            yield Page(opened, options)
        finally:
            context.close()


@contextmanager
def talker(kind: str, browser: Any, options: Options, **environment: str) -> Iterator[Talker]:
    """A runtime of a kind: "nodejs", "python" or "chromium"."""
    if kind == "chromium":
        with page(browser, options) as opened:
            yield opened
    else:
        with process(kind, options, **environment) as started:
            yield started
