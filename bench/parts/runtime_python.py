"""The Python runtime: messages a second within a MessageBUS, the first message to a foreign domain,
and another conversation's latency beside hostile stubs.

Everything runs on the loopback: a catalogue with stubs as text, and sandboxes as in a runtime.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from bench.figures import PartResult, Spread, ratio
from bench.plan import Plan
from bench.stub_catalogue import HOSTILE, StubCatalogue
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.resolver import Resolver
from msgnode.runtime.python.settings import Settings

BATCH = 5_000
BODIES: dict[str, dict[str, Any]] = {
    "100 B": {"value": "x" * 20},
    "1 KB": {"value": {"text": "x" * 900, "list": [1, 2, 3]}},
}
LISTENERS = (1, 3)
FIRST, OTHER = "first message abroad", "another conversation"
ME, NEIGHBOUR = "hyperty://d/a", "hyperty://d/b"

BUS_TARGET = 40_000.0
COLD_TARGET = 500.0
P99_TARGET = 100.0


def measure_bus(plan: Plan) -> PartResult:
    """Deliveries within a MessageBUS."""
    result = PartResult(
        "runtime_python_bus", "Within a MessageBUS in Python", headline="messages_s"
    )
    asyncio.run(_measure_bus(plan, result))
    title = "100 B, 1 listener"
    bus = result.case(title, "MessageBUS")
    result.ratios.append(ratio(bus, result.case(title, "copy by JSON text alone"), "messages_s"))
    _note(result, title, "MessageBUS", "messages_s", BUS_TARGET, is_least=True)
    return result


def measure_sandbox(plan: Plan) -> PartResult:
    """The first message abroad, and the p99 of a conversation beside hostile stubs."""
    result = PartResult(
        "runtime_python_sandbox",
        "Sandboxes of the Python runtime",
        unit="milliseconds (of a conversation: p99)",
        headline="milliseconds",
    )
    asyncio.run(_measure_sandbox(plan, result))
    _note(result, FIRST, "cold", "milliseconds", COLD_TARGET, is_least=False)
    for name in HOSTILE:
        _note(result, f"beside a stub that {name}", OTHER, "milliseconds", P99_TARGET, False)
    return result


def _note(
    result: PartResult, title: str, who: str, key: str, target: float, is_least: bool
) -> None:
    middle = Spread.of(result.case(title, who).values(key)).median
    verdict = "met" if (middle >= target) is is_least else "missed"
    sense = "at least" if is_least else "at most"
    result.notes.append(f"{title}: {middle:,.1f}, wanted {sense} {target:,g}: {verdict}")


async def _measure_bus(plan: Plan, result: PartResult) -> None:
    for turn in plan.rotations(list(BODIES.items())):
        for size, body in turn:
            for listeners in LISTENERS:
                title = f"{size}, {listeners} listener{'s' if listeners > 1 else ''}"
                figures = {"messages_s": await _bus(body, listeners, plan.seconds / 10)}
                result.case(title, "MessageBUS").samples.append(figures)
            copies = {"messages_s": _copies(body, plan.seconds / 20)}
            result.case(f"{size}, 1 listener", "copy by JSON text alone").samples.append(copies)
        plan.say("a round of the bus")


async def _measure_sandbox(plan: Plan, result: PartResult) -> None:
    async with StubCatalogue() as catalogue:
        for turn in plan.rotations(["", *HOSTILE]):
            cold = {"milliseconds": await _first_message(catalogue)}
            result.case(FIRST, "cold").samples.append(cold)
            for name in turn:
                figures = await _conversation(catalogue, name)
                title = f"beside a stub that {name}" if name else "beside nobody"
                result.case(title, OTHER).samples.append(figures)
            plan.say("a round of sandboxes")


async def _bus(body: dict[str, Any], listeners: int, seconds: float) -> float:
    """Deliveries a second: each one posted, queued, copied and taken."""
    bus = MessageBus("runtime://d/1")
    taken = 0

    def take(_: Message) -> None:
        nonlocal taken
        taken += 1

    for _ in range(listeners):
        bus.add_listener(NEIGHBOUR, take)
    message = {"type": "update", "from": ME, "to": NEIGHBOUR, "body": body}
    began = time.perf_counter()
    posted = 0
    while time.perf_counter() - began < seconds:
        for _ in range(BATCH):
            bus.post_message(message)
        posted += BATCH
        while taken < posted * listeners:  # noqa: ASYNC110 (the bus has the loop meanwhile)
            await asyncio.sleep(0)
    return posted / (time.perf_counter() - began)


def _copies(body: dict[str, Any], seconds: float) -> float:
    """The same message copied through JSON text, and nothing else: what machines compare by."""
    message = {"id": 1, "type": "update", "from": ME, "to": NEIGHBOUR, "body": body}
    began = time.perf_counter()
    done = 0
    while time.perf_counter() - began < seconds:
        for _ in range(1_000):
            json.loads(json.dumps(message))
        done += 1_000
    return done / (time.perf_counter() - began)


def _runtime(catalogue: StubCatalogue) -> tuple[MessageBus, Resolver]:
    bus = MessageBus("runtime://d/1")
    bus.on_error(lambda _: None)
    return bus, Resolver(Settings("d", catalogues=catalogue.domains()), bus)


async def _first_message(catalogue: StubCatalogue) -> float:
    """Milliseconds from the first message to a foreign domain until its stub is live."""
    bus, resolver = _runtime(catalogue)
    live = asyncio.Event()

    def status(message: Message) -> None:
        if message["body"]["value"] == "live":
            live.set()

    bus.add_listener("runtime://d/1/status", status)
    began = time.perf_counter()
    bus.post_message({"type": "create", "from": ME, "to": "hyperty://good/x"})
    async with asyncio.timeout(30):
        await live.wait()
    took = time.perf_counter() - began
    await resolver.close()
    return took * 1000


async def _conversation(catalogue: StubCatalogue, hostile: str) -> dict[str, float]:
    """Latency of 400 questions to a good stub while a hostile one does its worst."""
    bus, resolver = _runtime(catalogue)
    ask = {"type": "create", "from": ME, "to": "hyperty://good/x", "body": {"value": 1}}
    await bus.request(ask)
    if hostile:
        bus.add_listener(NEIGHBOUR, lambda _: None)
        bus.post_message({**ask, "to": f"hyperty://{hostile.replace(' ', '-')}/x"})
        await asyncio.sleep(0.8)  # it has started by now
    took = []
    for _ in range(400):
        began = time.perf_counter()
        await bus.request(ask)
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.004)
    await resolver.close()
    took.sort()
    return {"p50_ms": took[200], "milliseconds": took[395]}
