"""Runtimes that tests start: a process of Node.js or Python, or a page in Chromium.

A process reads orders and writes answers, each a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.node import ROOT
from tests.runtime.pages import served
from tests.stubs.runtimes import node_js

HERE = Path(__file__).parent

Options = dict[str, Any]


class Process:
    """A runtime in Node.js or Python; `first` is what it said when it was there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.first = self._read()

    def order(self, **order: Any) -> dict[str, Any]:
        """Have it do something; its answer."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        """Have it say good-bye to its node, and wait until it has ended."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(30)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the runtime has ended"
        return dict(json.loads(line))


@contextmanager
def process(script: str, kind: str, options: Options, **environment: str) -> Iterator[Process]:
    """A runtime of a kind, "nodejs" or "python", which runs `<script>.mjs` or `<script>.py`."""
    command = node_js() if kind == "nodejs" else [sys.executable]
    path = HERE / f"{script}.{'mjs' if kind == 'nodejs' else 'py'}"
    with subprocess.Popen(
        [*command, str(path), json.dumps(options)],
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
def page(
    browser: Any, script: str, options: Options, **context_options: Any
) -> Iterator[tuple[Any, Any]]:
    """A page in Chromium, and what `script`, a function of the options, returned there.

    `context_options` are playwright's, of its context.
    """
    with served(ROOT) as url:
        context = browser.new_context(**{"ignore_https_errors": True, **context_options})
        try:
            opened = context.new_page()
            opened.goto(f"{url}/msgnode/runtime/js/tests/browser/index.html")
            yield opened, opened.evaluate(script, options)
        finally:
            context.close()
