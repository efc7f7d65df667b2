"""What policies cost a relayed message: the node with 100 indexed rules against one without.

The difference is smaller than what a busy machine adds and takes away between two samples, so there
are many short ones.
"""

from __future__ import annotations

from bench.figures import PartResult
from bench.plan import Plan
from bench.servers import NODE, NODE_WITHOUT_RULES

from .compared_relay import TARGET, compare

SHORT = 5  # so many times more rounds, each so much shorter


def measure(plan: Plan) -> PartResult:
    result = PartResult("policed_relay", "Relay with and without 100 rules: messages per second")
    return compare(
        plan, result, NODE, NODE_WITHOUT_RULES, rounds=SHORT, seconds=1 / SHORT, per_cpu=TARGET
    )
