"""The parts of the bench: each measures one thing in alternating rounds.

A part is a function of a Plan that gives a PartResult, and answers a question of a user of the
node. A new one is named in PARTS.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.figures import PartResult
from bench.plan import Plan

from . import (
    allocation,
    beside,
    fan_out,
    features,
    federation,
    link,
    many_sessions,
    operations,
    policy,
    registry,
    relay,
    reports,
    startup,
    workers,
)

PARTS: dict[str, Callable[[Plan], PartResult]] = {
    "startup": startup.measure,
    "varied_relay": relay.measure_varied,
    "varied_latency": relay.measure_latency,
    "beside": beside.measure,
    "relay": relay.measure,
    "fan_out": fan_out.measure,
    "single_update": fan_out.measure_single,
    "allocation": allocation.measure,
    "operations": operations.measure,
    "many_sessions": many_sessions.measure,
    "workers": workers.measure,
    "federation": federation.measure,
    "link": link.measure,
    "policy": policy.measure,
    "policed_relay": features.measure_policies,
    "recorded_relay": features.measure_record,
    "guarded_relay": features.measure_responses,
    "registry": registry.measure,
    "reports": reports.measure,
}

QUICK_PARTS = ("startup", "relay", "fan_out", "allocation")
