"""Microseconds a policy decision takes, against casbin and against a chain of plain `if`s.

A decision begins at the parsed message and includes the extraction of its attributes.
"""

from __future__ import annotations

from bench.figures import PartResult, Ratio, Spread, ratio
from bench.plan import Plan
from bench.policy import LAYERS, SIZES, loads, sample

TARGETS = (
    ("400 rules", "equal, scanned", "p50_us", 20.0),
    ("400 rules", "equal, scanned", "p99_us", 100.0),
    ("400 rules", "mixed, scanned", "p50_us", 20.0),
    ("400 rules", "mixed, scanned", "p99_us", 100.0),
    (f"{LAYERS} layers", "nested", "p50_us", 100.0),
    ("publish 1,000 rules", "publish", "p50_us", 50_000.0),
)
GROWTH = 2.0


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "policy", "Policy decisions: microseconds each", unit="microseconds", headline="p50_us"
    )
    runs = list(loads(plan.quick))
    for turn in plan.rotations(runs):
        for title, who, run in turn:
            figures = sample(run, plan.seconds / 5)
            result.case(title, who).samples.append(figures)
        plan.say("a round of decisions")
    for title in (f"{size:,} rules" for size in SIZES):
        for who in ("equal, indexed", "equal, scanned"):
            mine = result.case(title, who)
            for other in ("casbin", "ifs"):
                if mine.samples:
                    result.ratios.append(ratio(mine, result.case(title, other), "p50_us"))
    result.cases = [case for case in result.cases if case.samples]
    for title, who, key, target in TARGETS:
        middle = Spread.of(result.case(title, who).values(key)).median
        verdict = "met" if middle <= target else "missed"
        name = key.removesuffix("_us")
        result.notes.append(
            f"{title}, {who}, {name}: {middle:,.1f} µs, aimed at {target:,g}: {verdict}"
        )
    if not plan.quick:
        for who in ("equal, indexed", "target, indexed"):
            result.ratios.append(_growth(result, who))
    return result


def _growth(result: PartResult, who: str) -> Ratio:
    """What 10,000 rules take, as a multiple of what 10 take."""
    large, small = (
        result.case(title, who).values("p50_us") for title in ("10,000 rules", "10 rules")
    )
    shares = [mine / theirs for mine, theirs in zip(large, small, strict=True)]
    return Ratio(
        f"{who}: 10,000 rules : 10", "p50_us", "10,000", "10", Spread.of(shares), GROWTH, "at most"
    )
