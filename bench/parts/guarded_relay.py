"""What it costs a relayed request that only who was asked may answer it: the node against one that
lets every response pass. Each message has an id of its own, so each is remembered."""

from __future__ import annotations

from bench.figures import PartResult
from bench.plan import Plan
from bench.servers import NODE, NODE_RELAXED

from .compared_relay import compare

IDS = 8_192
TARGET = 0.97


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "guarded_relay", "Relay with strict responses and without: messages per second"
    )
    return compare(plan, result, NODE, NODE_RELAXED, IDS, TARGET)
