"""Relay to runtimes of another node over a link, beside that within one node, in the same run.

What a message costs is compared with a relay within each of the two nodes at the same time: two
processors of one core that are both busy take longer for the same work. It is also compared with
such a relay of as many messages a second: a node works for each second, too, and more so for each
message the fewer there are at once.
"""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.processes import Server
from bench.servers import NODE, manage

A, B = "a.example", "b.example"
ONE, BOTH = "one node", "each node by itself"
AS_MANY = "each node by itself, as many messages"
LINKED, THERE = "over a link", "the node there"
LOADS = ((1, 1, 100), (10, 10, 100), (10, 50, 100), (100, 1, 100), (10, 10, 1_000))
QUICK = ((10, 10, 100),)
LEAST_SHARE, MOST_CPU = 0.4, 1.2
QUIET, MOST_ADDED_MS = 20, 1.5
READY = 90.0


def measure(plan: Plan) -> PartResult:
    """Messages a second and the processor that one costs; what a link adds to a message."""
    result = PartResult("link", "Relay to another node over a link: messages per second")
    shared: dict[str, Any] = {
        "ALLOWED_HOSTS": "*", "FEDERATION": "open", "FEDERATION_NETWORKS": "127.0.0.0/8",
    }  # fmt: skip
    with (
        plan.servers.make(NODE, DOMAIN=B, **shared) as second,
        plan.servers.make(NODE, DOMAIN=A, **shared) as first,
        Generator(first) as generator,
        Generator(second) as other,
    ):
        _introduce(first, second)
        for load in QUICK if plan.quick else LOADS:
            _relay(plan, result, (generator, other), load)
        _quiet(plan, result, generator, second)
    return result


def _relay(
    plan: Plan,
    result: PartResult,
    generators: tuple[Generator, Generator],
    load: tuple[int, int, int],
) -> None:
    pairs, window, size = load
    title = f"{pairs} × window {window}, {size} B"
    first, second = generators
    one, other, linked = (
        partial(
            at.call, do, to=to.server.port, pid=to.server.pid, domains=domains, pairs=pairs,
            size=size, seconds=plan.seconds,
        )
        for at, do, to, domains in (
            (first, "relay_beside", first, (A, A)),
            (second, "relay_beside", second, (B, B)),
            (first, "relay_linked", second, (A, B)),
        )
    )  # fmt: skip
    with ThreadPoolExecutor(1) as beside:
        for turn in plan.rotations((ONE, BOTH, LINKED)):
            for name in turn:
                meanwhile = beside.submit(other, window=window) if name == BOTH else None
                sample = (linked if name == LINKED else one)(window=window)
                result.case(title, name).samples.append(sample)
                if meanwhile is not None:
                    meanwhile.result()
                if name == LINKED:
                    at_other = {**sample, "cpu_us": sample["cpu_us_there"]}
                    result.case(title, THERE).samples.append(at_other)
                    meanwhile = beside.submit(other, rate=sample["rate"])
                    result.case(title, AS_MANY).samples.append(one(rate=sample["rate"]))
                    meanwhile.result()
    alone, both, over, there = (result.case(title, each) for each in (ONE, BOTH, LINKED, THERE))
    as_many = result.case(title, AS_MANY)
    is_busy = window > 1
    result.ratios.append(ratio(over, alone, target=LEAST_SHARE if is_busy else None))
    for each in (over, there):
        for under in (both, as_many):
            target = MOST_CPU if is_busy else None
            result.ratios.append(ratio(each, under, "cpu_us", target, "at most"))
    plan.say(title)


def _quiet(plan: Plan, result: PartResult, generator: Generator, second: Server) -> None:
    title = f"{QUIET} requests a second"
    for _ in range(plan.rounds):
        for name, domain, at in ((ONE, A, generator.server), (LINKED, B, second)):
            sample = generator.call(
                "ask", domains=[domain], own=A, node=domain, port=at.port, rate=QUIET,
                seconds=plan.seconds * 3,
            )  # fmt: skip
            result.case(title, name).samples.append({"rate": float(QUIET), **sample})
    for what, key in (("a request alone", "there_p50_ms"), ("with its answer", "p50_ms")):
        one, linked = (result.case(title, name).values(key) for name in (ONE, LINKED))
        added = median(mine - theirs for mine, theirs in zip(linked, one, strict=True))
        verdict = "met" if added <= MOST_ADDED_MS else "missed"
        aim = f", aimed at {MOST_ADDED_MS} ms: {verdict}" if key != "p50_ms" else ""
        result.notes.append(
            f"{title}, {what}: p50 {median(one):.2f} ms within a node, {added:.2f} ms more over "
            f"the link{aim}"
        )


def _introduce(first: Server, second: Server) -> None:
    """Have each be the other's peer, and wait for the link."""
    for here, domain, there in ((first, B, second), (second, A, first)):
        code = (
            "from msgnode.federation import store; from msgnode.models import Peer; "
            f"Peer.objects.create(domain={domain!r}, url='http://127.0.0.1:{there.port}', "
            "messages_per_second=100_000); store.post(store.CHANGED)"
        )
        manage(here.environment, "shell", "-c", code)
    until = time.monotonic() + READY
    for here in (first, second):
        database = Path(here.environment["DATA_DIR"]) / "node.sqlite3"
        told: Any = None
        while told is None or '"open": true' not in str(told[0]):
            if time.monotonic() > until:
                raise RuntimeError(f"There is no link: {told}")
            time.sleep(0.2)
            with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as rows:
                told = rows.execute("SELECT figures, last_error FROM msgnode_peer").fetchone()
