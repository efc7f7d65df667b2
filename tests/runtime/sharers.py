"""Runtimes of three kinds behind one face, each sharing a data object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.node import ROOT
from tests.runtime.pages import served
from tests.stubs.runtimes import node_js

HERE = Path(__file__).parent
OPEN = """async (options) => {
    const { Runtime, Syncher } = await import("/msgnode/runtime/js/src/index.js");
    const { sharing } = await import("/tests/runtime/share.mjs");
    window.act = await sharing(new Runtime(options), Syncher);
}"""

Options = dict[str, Any]


class Sharer(Protocol):
    """A runtime that does what it is told."""

    def act(self, do: str, **order: Any) -> dict[str, Any]: ...


class Process:
    """A runtime in Node.js or Python."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._read()

    def act(self, do: str, **order: Any) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
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
        page.evaluate(OPEN, options)

    def act(self, do: str, **order: Any) -> dict[str, Any]:
        return dict(self._page.evaluate("order => window.act(order)", {"do": do, **order}))


@contextmanager
def sharer(kind: str, browser: Any, domain: str, ports: Mapping[str, int]) -> Iterator[Sharer]:
    """A runtime of a kind ("nodejs", "python", "chromium"); `ports` are the nodes' by domain."""
    catalogues = {each: f"http://127.0.0.1:{port}" for each, port in ports.items()}
    options = {"domain": domain, "catalogues": catalogues}
    if kind == "chromium":
        with served(ROOT) as url:
            context = browser.new_context()
            try:
                page = context.new_page()
                page.goto(f"{url}/msgnode/runtime/js/tests/browser/index.html")
                yield Page(page, options)
            finally:
                context.close()
        return
    command = node_js() if kind == "nodejs" else [sys.executable]
    script = HERE / ("sharer.mjs" if kind == "nodejs" else "sharer.py")
    with subprocess.Popen(
        [*command, str(script), json.dumps(options)],
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
