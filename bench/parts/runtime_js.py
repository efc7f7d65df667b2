"""The JavaScript runtime in Node.js and in Chromium: its bus, its loader, its sandboxes.

A node of each of two domains stands behind the cold start; the bus and the sandboxes need none. A
browser that is not there is left out and noted.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.figures import PartResult, Spread
from bench.plan import Plan
from bench.processes import ROOT
from bench.servers import NODE

NODEJS, CHROMIUM = "Node.js", "Chromium"
LEAST_RATE = 150_000.0  # messages a second within the bus
MOST_LIVE = 500.0  # ms
MOST_P99 = 100.0  # ms
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CALL = """async ([load, options]) => {
    const runtime = await import("/msgnode/runtime/js/src/index.js");
    const loads = await import("/bench/nodejs/runtime_loads.mjs");
    return loads[load](runtime, options);
}"""

Load = tuple[str, str, dict[str, Any]]
Run = Callable[[str, dict[str, Any]], dict[str, float]]


def measure_bus(plan: Plan) -> PartResult:
    """Messages a second within a MessageBUS."""
    result = PartResult("runtime_bus", "The JavaScript runtime: messages within its MessageBUS")
    with ExitStack() as stack:
        _rounds(plan, result, _runs(stack, result), _rates(plan.seconds / 3))
    _judge(result, "rate", lambda middle: middle >= LEAST_RATE, f"at least {LEAST_RATE:,g}")
    return result


def measure_latency(plan: Plan) -> PartResult:
    """How long a foreign stub takes to be live, and a conversation beside one that does harm."""
    result = PartResult(
        "runtime_latency",
        "The JavaScript runtime: a cold start abroad, and the p99 of a conversation beside a stub "
        "that does harm",
        unit="milliseconds",
        headline="ms",
    )
    with ExitStack() as stack:
        runs = _runs(stack, result)
        servers = {
            domain: stack.enter_context(plan.servers.make(NODE, DOMAIN=domain))
            for domain in ("a.test", "b.test")
        }
        catalogues = {domain: f"http://127.0.0.1:{each.port}" for domain, each in servers.items()}
        _rounds(plan, result, runs, _latencies(plan.seconds, catalogues))
    _judge(result, "ms", lambda middle: middle <= MOST_P99, f"at most {MOST_P99:,g}", "beside")
    _judge(result, "ms", lambda middle: middle <= MOST_LIVE, f"at most {MOST_LIVE:,g}", "first")
    return result


def _runs(stack: ExitStack, result: PartResult) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    if node := shutil.which("node"):
        runs[NODEJS] = functools.partial(_in_nodejs, node)
    if chromium := next(filter(None, map(shutil.which, _BROWSERS)), None):
        runs[CHROMIUM] = stack.enter_context(_chromium(chromium))
    result.notes += [f"{name} is not on this machine" for name in {NODEJS, CHROMIUM} - {*runs}]
    return runs


def _rounds(plan: Plan, result: PartResult, runs: dict[str, Run], loads: Iterable[Load]) -> None:
    for turn in plan.rotations([(each, who) for each in loads for who in runs]):
        for (title, load, options), who in turn:
            if who == CHROMIUM and options.get("harm") == "memory":
                continue  # its sandboxes share a process: the conversation begins anew
            result.case(title, who).samples.append(runs[who](load, options))
        plan.say("a round of the runtime")


def _rates(seconds: float) -> Iterator[Load]:
    for listeners in (1, 3):
        for size in (100, 1000):
            sizes: dict[str, Any] = {"listeners": listeners, "size": size, "seconds": seconds}
            yield f"{listeners} listeners, {size} B", "bus", sizes
    yield "requests one by one, 100 B", "requests", {"size": 100, "seconds": seconds}


def _latencies(seconds: float, catalogues: dict[str, str]) -> Iterator[Load]:
    domains = {"domain": "a.test", "foreign": "b.test", "catalogues": catalogues}
    yield "first message abroad until live", "cold", domains
    for harm in ("nothing", "loop", "memory", "flood"):
        yield f"beside harm: {harm}", "beside", {"harm": harm, "seconds": seconds * 2}


def _judge(
    result: PartResult, key: str, is_met: Callable[[float], bool], aim: str, of: str = ""
) -> None:
    for case in result.cases:
        if case.name.startswith(of) and not case.name.startswith("requests"):
            middle = Spread.of(case.values(key)).median
            verdict = "met" if is_met(middle) else "missed"
            result.notes.append(
                f"{case.name}, {case.server}: {middle:,.1f}, aimed at {aim}: {verdict}"
            )


def _in_nodejs(node: str, load: str, options: dict[str, Any]) -> dict[str, float]:
    script = ROOT / "bench" / "nodejs" / "runtime.mjs"
    done = subprocess.run(
        [node, "--no-warnings", str(script), load, json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "NODE_OPTIONS": "--experimental-websocket"},
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


class _Files(SimpleHTTPRequestHandler):
    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        **dict.fromkeys((".js", ".mjs"), "text/javascript"),
    }

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def _chromium(program: str) -> Iterator[Run]:
    """A page of the repository's files in a headless Chromium."""
    from playwright.sync_api import sync_playwright

    handler = functools.partial(_Files, directory=str(ROOT))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        sync_playwright() as play,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page_url = (
            f"http://127.0.0.1:{server.server_port}/msgnode/runtime/js/tests/browser/index.html"
        )

        def run(load: str, options: dict[str, Any]) -> dict[str, float]:
            page = browser.new_page()
            try:
                page.goto(page_url)
                return dict(page.evaluate(_CALL, [load, options]))
            finally:
                page.close()

        yield run
        browser.close()
        server.shutdown()
