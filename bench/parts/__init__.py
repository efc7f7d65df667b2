"""The parts of the bench: each measures one thing in alternating rounds.

A part is a function of a Plan that gives a PartResult. A new one is named in PARTS.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.figures import PartResult
from bench.plan import Plan

from . import (
    allocation,
    beside,
    cluster,
    devices,
    endings,
    fan_out,
    federation,
    growth,
    guarded_relay,
    heavy_pages,
    identified_relay,
    identity,
    idle_memory,
    local_pairs,
    many_sessions,
    operations,
    policed_relay,
    policy,
    recorded_relay,
    registry,
    relay,
    reports,
    resumption,
    runtime_js,
    runtime_python,
    sensors,
    single_requests,
    stalled_reader,
    subscription,
    traced_relay,
    varied_relay,
    watched_overview,
    watched_relay,
    workers,
    year,
)

PARTS: dict[str, Callable[[Plan], PartResult]] = {
    "varied_relay": varied_relay.measure,
    "varied_latency": varied_relay.measure_latency,
    "beside": beside.measure,
    "relay": relay.measure,
    "fan_out": fan_out.measure,
    "single_update": fan_out.measure_single,
    "allocation": allocation.measure,
    "single_requests": single_requests.measure,
    "single_requests_workers": single_requests.measure_workers,
    "operations": operations.measure,
    "idle_memory": idle_memory.measure,
    "many_sessions": many_sessions.measure,
    "devices": devices.measure,
    "sensors": sensors.measure,
    "growth": growth.measure,
    "resumption": resumption.measure,
    "runtime_python_bus": runtime_python.measure_bus,
    "runtime_python_sandbox": runtime_python.measure_sandbox,
    "endings": endings.measure,
    "workers": workers.measure,
    "local_pairs": local_pairs.measure,
    "federation": federation.measure,
    "cluster": cluster.measure,
    "subscription": subscription.measure,
    "stalled_reader": stalled_reader.measure,
    "policy": policy.measure,
    "policed_relay": policed_relay.measure,
    "recorded_relay": recorded_relay.measure,
    "watched_relay": watched_relay.measure,
    "traced_relay": traced_relay.measure,
    "watched_overview": watched_overview.measure,
    "heavy_pages": heavy_pages.measure,
    "guarded_relay": guarded_relay.measure,
    "identity": identity.measure,
    "identified_relay": identified_relay.measure,
    "registry": registry.measure,
    "reports": reports.measure,
    "year": year.measure,
    "runtime_bus": runtime_js.measure_bus,
    "runtime_latency": runtime_js.measure_latency,
}

QUICK_PARTS = ("relay", "fan_out", "allocation", "idle_memory", "growth")
