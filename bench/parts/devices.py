"""Idle devices with a stream of events over HTTP, beside as many runtimes with a socket: memory of
each, and the time of a message to one of them."""

from __future__ import annotations

import time

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.processes import resident_bytes
from bench.servers import NODE

CLIENTS, QUICK_CLIENTS = 2_000, 300
MESSAGES, QUICK_MESSAGES = 1_000, 200
SETTLE = 1.0
KINDS = {"streams": "event streams", "sockets": "WebSockets"}


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "devices", "Memory of an idle device, KiB", unit="KiB", headline="kib_per_client"
    )
    clients = QUICK_CLIENTS if plan.quick else CLIENTS
    messages = QUICK_MESSAGES if plan.quick else MESSAGES
    title = f"{clients:,} idle clients"
    for order in plan.rotations(list(KINDS)):
        for kind in order:
            node = plan.servers.make(NODE, DEVICE_HTTP="true")
            with node as server, Generator(server) as generator:
                generator.call("devices", **{kind: 50})  # what the first ones load is nobody's
                time.sleep(SETTLE)
                empty = resident_bytes(server.pid)
                held = generator.call("devices", **{kind: clients})
                time.sleep(SETTLE)
                each = (resident_bytes(server.pid) - empty) / 1024 / (clients - 50)
                times = generator.call("devices", messages=messages)
            sample = {"kib_per_client": each, "lost": held["lost"], **times}
            result.case(title, KINDS[kind]).samples.append(sample)
            plan.say(kind)
    over, under = (result.case(title, name) for name in KINDS.values())
    result.ratios += [ratio(over, under, key) for key in ("kib_per_client", "p50_ms", "p99_ms")]
    return result
