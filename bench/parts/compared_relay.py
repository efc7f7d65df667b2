"""What a part of the node costs a relayed message: the node with it against one without."""

from __future__ import annotations

from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan

LOADS = ((10, 10, 100), (10, 10, 1_000))  # pairs, window, size
TARGET = 0.9


def compare(
    plan: Plan,
    result: PartResult,
    whole: str,
    without: str,
    *,
    rounds: int,
    seconds: float,
    per_cpu: float | None = None,
) -> PartResult:
    """Relay through both servers in turns; the ratios of `whole` to `without`, by time and, aimed
    at `per_cpu`, by processor time. `rounds` and `seconds` multiply those of the plan."""
    with ExitStack() as stack:
        servers = [stack.enter_context(plan.servers.make(name)) for name in (without, whole)]
        generators = [stack.enter_context(Generator(server)) for server in servers]
        for pairs, window, size in LOADS:
            title = f"{pairs} pairs × window {window}, {size} B"
            for turn in plan.rotations(generators, rounds):
                for generator in turn:
                    sample = generator.call(
                        "relay", pairs=pairs, window=window, size=size,
                        seconds=plan.seconds * seconds,
                    )  # fmt: skip
                    result.case(title, generator.server.name).samples.append(sample)
            plan.say(title)
            mine, plain = result.case(title, whole), result.case(title, without)
            result.ratios.append(ratio(mine, plain, target=TARGET))
            result.ratios.append(ratio(mine, plain, "per_cpu_second", per_cpu))
    return result
