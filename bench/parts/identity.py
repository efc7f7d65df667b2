"""Microseconds that a message's identity costs in the node: known, known by hash, and new."""

from __future__ import annotations

from bench.figures import PartResult, Spread
from bench.identity import loads
from bench.plan import Plan
from bench.policy import sample

TARGETS = (
    ("100 B", "the same identity", 5.0),
    ("1,000 B", "the same identity", 5.0),
)


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "identity", "Identity of a message: microseconds", unit="microseconds", headline="p50_us"
    )
    runs = list(loads())
    for turn in plan.rotations(runs):
        for title, what, run in turn:
            result.case(title, what).samples.append(sample(run, plan.seconds / 5))
        plan.say("a round of identity checks")
    for title, what, target in TARGETS:
        middle = Spread.of(result.case(title, what).values("p50_us")).median
        verdict = "met" if middle <= target else "missed"
        note = f"{title}, {what}, p50: {middle:,.2f} µs, aimed at {target:g}: {verdict}"
        result.notes.append(note)
    return result
