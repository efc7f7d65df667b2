"""Requests to runtimes of another node through its stub, and what each peer costs.

Two nodes on one machine; the second one stands for as many domains as there are peers, and each of
them has a sandbox of its own at the first one. Beside the round trip through the stub stands the
one through a single node; beside the start of many sandboxes, a pair of the first node that talks.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.driver import Generator
from bench.figures import PartResult
from bench.plan import Plan
from bench.processes import Server, cpu_seconds
from bench.servers import NODE, manage

A, B = "a.example", "b.example"
SIZES = (1, 10, 50)
QUICK = (1, 3)
RATES = (20, 200)
SECONDS, SETTLE, READY = 5.0, 3.0, 90.0
BESIDE_RATE, BESIDE_SECONDS = 100, 12.0
EACH_RATE = 4
"""Requests a second to each peer, where all have traffic."""
AIM_MS = 5.0
ONE, THROUGH = "one node", "through the stub"


class _Used(NamedTuple):
    """Memory of sandboxes, and processor that they and their node have used."""

    bytes: int
    sandboxes: float
    node: float


def measure(plan: Plan) -> PartResult:
    """Round trips in ms; memory in MB and processor in % of a core, for each peer."""
    result = PartResult(
        "federation", "Requests through the stub of another node, ms", unit="ms", headline="p50_ms"
    )
    for size in QUICK if plan.quick else SIZES:
        with _nodes(plan, size) as (first, second, generator):
            domains = _domains(size)
            if size > SIZES[0]:
                pool = ThreadPoolExecutor(1)
                entering = pool.submit(_enter, first, second, domains)
                sample = _ask(generator, [A], first, BESIDE_RATE, BESIDE_SECONDS)
                result.case(f"while {size} sandboxes start", ONE).samples.append(sample)
                entering.result()
                pool.shutdown()
            else:
                _enter(first, second, domains)
            _wait_live(first, size)
            _round_trips(plan, result, generator, first, second, domains)
            _costs(result, generator, first, second, domains)
        plan.say(f"{_peers(size)}")
    for rate in RATES:
        name = f"1 peer, {rate}/s"
        middle = median(result.case(name, THROUGH).values("p50_ms"))
        verdict = "met" if middle <= AIM_MS else "missed"
        result.notes.append(f"{name}: p50 {middle:.1f} ms, aimed at {AIM_MS:.0f} ms: {verdict}")
    return result


def _round_trips(
    plan: Plan,
    result: PartResult,
    generator: Generator,
    first: Server,
    second: Server,
    domains: Sequence[str],
) -> None:
    if len(domains) > 1:
        return
    for _ in range(plan.rounds):
        for rate in RATES:
            alone = _ask(generator, [A], first, rate, plan.seconds * 3)
            through = _ask(generator, domains, second, rate, plan.seconds * 3)
            result.case(f"1 peer, {rate}/s", ONE).samples.append(alone)
            result.case(f"1 peer, {rate}/s", THROUGH).samples.append(through)


def _costs(
    result: PartResult,
    generator: Generator,
    first: Server,
    second: Server,
    domains: Sequence[str],
) -> None:
    """What each peer costs, idle and with traffic."""
    size = len(domains)
    time.sleep(SETTLE)
    before = _used(first)
    time.sleep(SECONDS)
    idle = _each(before, _used(first), SECONDS, size)
    result.notes.append(f"{_peers(size)}, idle: {idle}")
    before = _used(first)
    began = time.monotonic()
    sample = _ask(generator, domains, second, EACH_RATE * size, SECONDS)
    busy = _each(before, _used(first), time.monotonic() - began, size)
    result.case(f"{_peers(size)}, {EACH_RATE}/s to each", THROUGH).samples.append(sample)
    result.notes.append(f"{_peers(size)}, {EACH_RATE} requests a second to each: {busy}")


def _each(before: _Used, now: _Used, seconds: float, size: int) -> str:
    memory = now.bytes / size / 1e6
    sandbox = 100 * (now.sandboxes - before.sandboxes) / seconds / size
    node = 100 * (now.node - before.node) / seconds / size
    return f"{memory:.0f} MB each; processor {sandbox:.2f} % each, and {node:.2f} % of the node"


def _ask(
    generator: Generator, domains: Sequence[str], at: Server, rate: float, seconds: float
) -> dict[str, float]:
    node = A if at is generator.server else B
    return generator.call(
        "ask", domains=list(domains), own=A, node=node, port=at.port, rate=rate, seconds=seconds
    )


@contextmanager
def _nodes(plan: Plan, size: int) -> Iterator[tuple[Server, Server, Generator]]:
    shared: dict[str, Any] = {"ALLOWED_HOSTS": "*"}
    settings: dict[str, Any] = {
        "DOMAIN": A, "FEDERATION": "open", "FEDERATION_NETWORKS": "127.0.0.0/8",
        "FEDERATION_MAX_STUBS": str(size),
    }  # fmt: skip
    with (
        plan.servers.make(NODE, DOMAIN=B, **shared) as second,
        plan.servers.make(NODE, **settings, **shared) as first,
        Generator(first) as generator,
    ):
        yield first, second, generator


def _peers(size: int) -> str:
    return "1 peer" if size == 1 else f"{size} peers"


def _domains(size: int) -> list[str]:
    return [f"p{number}.example" for number in range(size)]


def _enter(first: Server, second: Server, domains: Sequence[str]) -> None:
    """Introduce the second node to the first one, as the node of all these domains."""
    url = f"http://127.0.0.1:{second.port}"
    code = (
        "from msgnode.federation import store; from msgnode.models import Peer; "
        f"Peer.objects.bulk_create(Peer(domain=each, url={url!r}) for each in {list(domains)!r}); "
        "store.post(store.CHANGED)"
    )
    manage(first.environment, "shell", "-c", code)


def _wait_live(first: Server, size: int) -> None:
    database = Path(first.environment["DATA_DIR"]) / "node.sqlite3"
    until, states = time.monotonic() + READY, {}
    while time.monotonic() < until:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as rows:
            found = rows.execute("SELECT state, last_error, discovery FROM msgnode_peer").fetchall()
        if sum(state == "live" for state, *_ in found) == size:
            return
        states = {state: why for state, *why in found}
        time.sleep(0.2)
    raise RuntimeError(f"{_peers(size)} are not live: {json.dumps(states)}")


def _used(first: Server) -> _Used:
    sandboxes = _below(first.pid)
    cpu = sum(cpu_seconds(pid) for pid in sandboxes)
    return _Used(sum(map(_own_bytes, sandboxes)), cpu, cpu_seconds(first.pid))


def _below(pid: int) -> list[int]:
    """All processes that a process, and those, have started."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *_below(child)]
    return found


def _own_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others counted in shares."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
