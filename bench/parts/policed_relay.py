"""What policies cost a relayed message: the node with 100 indexed rules against one without."""

from __future__ import annotations

from bench.figures import PartResult
from bench.plan import Plan
from bench.servers import NODE, NODE_WITHOUT_RULES

from .compared_relay import compare


def measure(plan: Plan) -> PartResult:
    result = PartResult("policed_relay", "Relay with and without 100 rules: messages per second")
    return compare(plan, result, NODE, NODE_WITHOUT_RULES)
