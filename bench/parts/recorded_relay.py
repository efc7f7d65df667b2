"""What the traffic record costs a relayed message: the node with it against one without. The turns
of a round are longer together than the time between two files."""

from __future__ import annotations

from bench.figures import PartResult
from bench.plan import Plan
from bench.servers import NODE, NODE_WITHOUT_RECORD

from .compared_relay import compare


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "recorded_relay", "Relay with and without the traffic record: messages per second"
    )
    return compare(plan, result, NODE, NODE_WITHOUT_RECORD)
