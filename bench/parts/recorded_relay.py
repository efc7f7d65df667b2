"""What the traffic record costs a relayed message: the node with it against one without.

Files are written every few seconds by a thread beside the event loop: a sample is longer than that,
and by processor time the record costs more than by time.
"""

from __future__ import annotations

from bench.figures import PartResult
from bench.plan import Plan
from bench.servers import NODE, NODE_WITHOUT_RECORD

from .compared_relay import compare

LONG = 4.0  # so many times longer than other samples


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "recorded_relay", "Relay with and without the traffic record: messages per second"
    )
    return compare(plan, result, NODE, NODE_WITHOUT_RECORD, rounds=1, seconds=LONG)
