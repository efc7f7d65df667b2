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
from bench.servers import NODE, NODE_RELAXED, NODE_WITHOUT_RECORD, NODE_WITHOUT_RULES

LOADS = ((10, 10, 100), (10, 10, 1_000))  # pairs, window, size
TARGET = 0.9
TURNS = 10  # of each server in a round
SUMMED = frozenset({"lost"})


def measure_policies(plan: Plan) -> PartResult:
    """The node with 100 indexed rules against one without."""
    result = PartResult("policed_relay", "Relay with and without 100 rules: messages per second")
    return _compare(plan, result, NODE_WITHOUT_RULES)


def measure_record(plan: Plan) -> PartResult:
    """The turns of a round are longer together than the time between two files."""
    result = PartResult(
        "recorded_relay", "Relay with and without the traffic record: messages per second"
    )
    return _compare(plan, result, NODE_WITHOUT_RECORD)


def measure_responses(plan: Plan) -> PartResult:
    """Against a node that lets every response pass. Each message has an id of its own, so each is
    remembered."""
    result = PartResult(
        "guarded_relay", "Relay with strict responses and without: messages per second"
    )
    return _compare(plan, result, NODE_RELAXED, ids=8_192, target=0.97)


def _compare(
    plan: Plan, result: PartResult, without: str, ids: int = 1, target: float = TARGET
) -> PartResult:
    """Relay through the node and one without the feature, in turns; the ratios by time and by
    processor time. `ids` is how many different ids the messages of a pair have."""
    for _ in range(plan.rounds):
        with ExitStack() as stack:
            servers = [stack.enter_context(plan.servers.make(name)) for name in (without, NODE)]
            generators = [stack.enter_context(Generator(server)) for server in servers]
            for pairs, window, size in LOADS:
                title = f"{pairs} pairs × window {window}, {size} B"
                taken: dict[str, list[Sample]] = {without: [], NODE: []}
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
        mine, plain = result.case(title, NODE), result.case(title, without)
        result.ratios.append(ratio(mine, plain, target=target))
        result.ratios.append(ratio(mine, plain, "per_cpu_second", target))
    return result


def _together(samples: list[Sample]) -> Sample:
    return {
        key: (sum if key in SUMMED else fmean)(sample[key] for sample in samples)
        for key in samples[0]
    }
