"""Processor time of the node for one operation of each component, on SQLite and PostgreSQL.

Two operations that undo one another are measured as one, since what one leaves the other needs.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from bench.databases import nodes
from bench.driver import Generator
from bench.figures import PartResult
from bench.plan import Plan

OPERATIONS, SESSIONS = 2_000, 100
ONE, PAIR, SESSION = 0.3, 0.6, 0.5  # milliseconds aimed at
TARGETS = {
    "open and close": SESSION,
    "allocate and de-allocate": PAIR,
    "subscribe and unsubscribe": PAIR,
    "register and de-register": PAIR,
    "search, found": ONE,
    "search, not found": ONE,
}


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "operations",
        "Processor time of an operation, ms",
        unit="ms",
        headline="milliseconds",
    )
    with ExitStack() as stack:
        generators = {
            database: stack.enter_context(Generator(node))
            for database, node in nodes(plan, stack, result).items()
        }
        for turn in plan.rotations(list(generators.items())):
            for database, generator in turn:
                number = OPERATIONS // 10 if plan.quick else OPERATIONS
                sample = generator.call("operations", number=number, sessions=SESSIONS)
                for operation in TARGETS:
                    case = result.case(operation, f"node on {database}")
                    case.samples.append({"milliseconds": sample[operation]})
            plan.say("a round of operations")
    for case in result.cases:
        middle, target = median(case.values("milliseconds")), TARGETS[case.name]
        if middle > target:
            result.notes.append(f"{case.name}, {case.server}: aimed at {target} ms: missed")
    return result
