"""What a part of the node costs a relayed message: the node with it against one without.

The difference is smaller than what a busy machine adds and takes away between two samples, and two
processes of the same code differ by some percent for all of their lives. So every round starts both
servers afresh and lets them take many short turns; what a server did in a round is one figure.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import fmean

from bench.driver import Generator
from bench.figures import PartResult, Sample, ratio
from bench.plan import Plan

LOADS = ((10, 10, 100), (10, 10, 1_000))  # pairs, window, size
TARGET = 0.9
TURNS = 10  # of each server in a round
SUMMED = frozenset({"lost"})


def compare(
    plan: Plan,
    result: PartResult,
    whole: str,
    without: str,
    ids: int = 1,
    target: float = TARGET,
) -> PartResult:
    """Relay through both servers in turns; the ratios of `whole` to `without`, by time and by
    processor time. `ids` is how many different ids the messages of a pair have."""
    for _ in range(plan.rounds):
        with ExitStack() as stack:
            servers = [stack.enter_context(plan.servers.make(name)) for name in (without, whole)]
            generators = [stack.enter_context(Generator(server)) for server in servers]
            for pairs, window, size in LOADS:
                title = f"{pairs} pairs × window {window}, {size} B"
                taken: dict[str, list[Sample]] = {without: [], whole: []}
                for turn in range(TURNS):
                    for generator in generators if turn % 2 else generators[::-1]:
                        sample = generator.call(
                            "relay", pairs=pairs, window=window, size=size, ids=ids,
                            seconds=plan.seconds,
                        )  # fmt: skip
                        taken[generator.server.name].append(sample)
                for name, samples in taken.items():
                    result.case(title, name).samples.append(_together(samples))
                plan.say(title)
    for pairs, window, size in LOADS:
        title = f"{pairs} pairs × window {window}, {size} B"
        mine, plain = result.case(title, whole), result.case(title, without)
        result.ratios.append(ratio(mine, plain, target=target))
        result.ratios.append(ratio(mine, plain, "per_cpu_second", target))
    return result


def _together(samples: list[Sample]) -> Sample:
    return {
        key: (sum if key in SUMMED else fmean)(sample[key] for sample in samples)
        for key in samples[0]
    }
