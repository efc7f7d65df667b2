"""How long a worker takes until it serves, on a database that is migrated, and what that costs."""

from __future__ import annotations

import time
import urllib.request

from bench.figures import PartResult
from bench.plan import Plan
from bench.processes import cpu_seconds, resident_bytes
from bench.servers import NODE

AIM = 3.0


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "startup", "A worker, until it is ready: seconds", unit="s", headline="seconds"
    )
    case = result.case("SQLite", NODE)
    for _ in range(plan.rounds):
        server = plan.servers.make(NODE)
        began = time.perf_counter()
        with server:
            _wait_until_ready(server.port)
            taken = time.perf_counter() - began
            used, memory = cpu_seconds(server.pid), resident_bytes(server.pid)
        sample = {"seconds": taken, "cpu_ms_each": used * 1e3, "memory_mb": memory / 2**20}
        case.samples.append(sample)
        plan.say("a start")
    middle = sorted(case.values("seconds"))[len(case.samples) // 2]
    verdict = "met" if middle <= AIM else "missed"
    result.notes.append(f"ready after {middle:.2f} s, aimed at {AIM:g}: {verdict}")
    return result


def _wait_until_ready(port: int, limit: float = 60.0) -> None:
    deadline = time.perf_counter() + limit
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=5).close()  # noqa: S310
            return
        except OSError:  # refused, or 503 so far
            if time.perf_counter() > deadline:
                raise RuntimeError("the node is not ready") from None
            time.sleep(0.01)
