"""Runtimes of all kinds behind one face: Python, Node.js by both loaders, and a browser's page.

Each has our stub on a bare bus. A test posts messages as the runtime would, and waits for what
reaches the bus.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.node import ROOT
from tests.services import NotAvailable, nodejs_path

Message = dict[str, Any]
Wanted = Callable[[Message], bool]

SECONDS = 30.0
KINDS = ("python", "node-activate", "node-start", "browser", "node-http", "browser-http")
_numbers = itertools.count(1)
_HERE = Path(__file__).parent


class Bus(Protocol):
    """How a kind of runtime is reached."""

    def command(self, order: Message) -> None: ...
    def arrivals(self, seconds: float) -> list[Message]: ...


class Runtime:
    """A runtime with a stub. `seen` is everything that has reached its bus, in order."""

    def __init__(self, bus: Bus, url: str, stub_url: str) -> None:
        self.url = url
        self.stub_url = stub_url
        self.seen: list[Message] = []
        self._bus = bus
        self._read_to = 0

    def post(self, **message: Any) -> None:
        self._bus.command({"post": {**message, "from": message.get("from", f"{self.url}/sm")}})

    def call(self, method: str) -> None:
        """Have the stub do something, and wait until it has."""
        self._bus.command({"call": method})
        self.wait_for(lambda each: each["type"] == "done", f"the end of {method}()")

    def wait_for(self, wanted: Wanted, what: str = "the message") -> Message:
        """The next message that is wanted; those before it are passed over."""
        limit = time.monotonic() + SECONDS
        while True:
            while self._read_to < len(self.seen):
                message = self.seen[self._read_to]
                self._read_to += 1
                if wanted(message):
                    return message
            left = limit - time.monotonic()
            assert left > 0, f"{what} did not come: {self.seen[-10:]}"
            self.seen += self._bus.arrivals(left)

    def status(self, value: str) -> Message:
        """The next status event with this value."""
        return self.wait_for(
            lambda each: each["to"] == f"{self.stub_url}/status" and each["body"]["value"] == value,
            f"status {value}",
        )

    def statuses(self) -> list[str]:
        status = f"{self.stub_url}/status"
        return [each["body"]["value"] for each in self.seen if each["to"] == status]

    def ask(self, type_: str, to: str, body: Message) -> Message:
        """The body of the final answer to a request."""
        id_ = next(_numbers)
        self.post(id=id_, type=type_, to=to, body=body)
        answer = self.wait_for(
            lambda each: each["type"] == "response" and each["id"] == id_, f"the answer to {type_}"
        )
        body = answer["body"]
        assert body["via"] == self.stub_url
        return body


class _Process:
    """A runtime in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)

    def command(self, order: Message) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def arrivals(self, seconds: float) -> list[Message]:
        try:
            return [json.loads(self._lines.get(timeout=seconds))]
        except queue.Empty:
            return []


class _Page:
    """A runtime in a browser's page."""

    LOAD = """async ({ stubURL, name, ...config }) => {
        const { activate } = await import(`/.well-known/protocolstub/${name}.ps.js`);
        const arrivals = (window.arrivals = []);
        const outgoing = [];
        const bus = {
            addListener: (address, listener) => outgoing.push(listener),
            postMessage: (message) => { arrivals.push(message); window.arrived?.(); },
        };
        const { instance } = activate(stubURL, bus, config);
        window.command = ({ post, call }) => {
            if (post) outgoing.forEach((listener) => listener(post));
            else instance[call]().then(() => bus.postMessage({ type: "done", to: call }));
        };
    }"""
    ARRIVALS = """(milliseconds) => new Promise((resolve) => {
        const give = () => { window.arrived = null; resolve(window.arrivals.splice(0)); };
        if (window.arrivals.length) give();
        else { window.arrived = give; setTimeout(give, milliseconds); }
    })"""

    def __init__(self, page: Any, config: Message) -> None:
        self._page = page
        page.evaluate(self.LOAD, config)

    def command(self, order: Message) -> None:
        self._page.evaluate("(order) => { window.command(order); }", order)

    def arrivals(self, seconds: float) -> list[Message]:
        found: list[Message] = self._page.evaluate(self.ARRIVALS, seconds * 1000)
        return found


def node_js() -> list[str]:
    """The command that runs a script in a Node.js with a WebSocket class."""
    try:
        return [nodejs_path(), "--experimental-websocket", "--no-warnings"]
    except NotAvailable as lack:
        if os.environ.get("CI"):
            pytest.fail(f"CI has {lack}")
        pytest.skip(str(lack))


class Cast:
    """Brings runtimes of one kind to a node: `cast.enter("alice")`."""

    def __init__(self, kind: str, port: int, request: pytest.FixtureRequest) -> None:
        self._kind = kind
        self._port = port
        self._request = request
        self._stack = ExitStack()

    def __enter__(self) -> Cast:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def enter(self, name: str, **config: Any) -> Runtime:
        number = next(_numbers)
        url = f"runtime://localhost/{name}-{os.getpid()}-{number}"
        stub_url = f"runtime://localhost/protostub/{name}"  # others have it too; it must not matter
        settings = {"stubURL": stub_url, "runtimeURL": url, "url": self._url(), **config}
        return Runtime(self._bus(settings), url, stub_url)

    def _url(self) -> str:
        if self._kind.endswith("-http"):
            return f"http://127.0.0.1:{self._port}/device/v1"
        return f"ws://127.0.0.1:{self._port}/ws"

    def _bus(self, settings: Message) -> Bus:
        if self._kind.startswith("browser"):
            page = self._request.getfixturevalue("browser").new_page()
            self._stack.callback(page.close)
            page.goto(f"http://127.0.0.1:{self._port}/health/live")
            name = "http" if self._kind.endswith("-http") else "default"
            return _Page(page, {"maxDelay": 500, "name": name, **settings})
        if self._kind == "python":
            command = [sys.executable, str(_HERE / "runtime_process.py")]
            settings = {"max_delay": 0.5, **settings}
        else:
            command = [*node_js(), str(_HERE / "runtime_process.mjs")]
            settings = {"maxDelay": 500, "loader": self._kind.removeprefix("node-"), **settings}
        process = self._stack.enter_context(
            subprocess.Popen(
                [*command, json.dumps(settings)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        self._stack.callback(process.kill)
        return _Process(process)
