"""Builds the probe, with which a worker tests its own message path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings

from msgnode.bus.pipeline import Pipeline
from msgnode.bus.ports import NoPolicies
from msgnode.bus.replies import ANSWER_TIMEOUT, Replies
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Barrier
from msgnode.monitoring.path_probe import PathProbe
from msgnode.sessions.handshake import SessionHandshake
from msgnode.sessions.probe import NoRecord, ProbeAuthorizer, ProbeEndpoint
from msgnode.storage.writer import GroupWriter

from .alarms import Alarms


def probe_endpoint(
    domain: str,
    table: RoutingTable,
    handshake: SessionHandshake,
    barrier: Barrier,
    missed: Callable[[str], None],
) -> ProbeEndpoint:
    """Build the endpoint. Its messages use the routing table only: no policies, no record."""
    pipeline = Pipeline(
        domain=domain,
        table=table,
        components=ComponentBook(()),
        authorizer=ProbeAuthorizer(),
        session_handler=handshake,
        enforcer=NoPolicies(),
        recorder=NoRecord(),
        answers=Replies(NoPolicies(), ANSWER_TIMEOUT, barrier),
        guard=ResponseGuard(table, is_strict=False, missed=missed),
    )
    return ProbeEndpoint(domain, settings.SECRET_KEY, table, pipeline.carry)


def path_probe(
    probe: ProbeEndpoint, table: RoutingTable, worker: str, writer: GroupWriter, alarms: Alarms
) -> PathProbe:
    """Build the client, which sends probes regularly and raises an alarm if one is not answered."""
    limits: dict[str, Any] = settings.NODE
    return PathProbe(
        probe,
        table,
        writer,
        worker,
        alarms.raise_alarm,
        alarms.clear_alarm,
        every=limits["PROBE_INTERVAL"],
        timeout=limits["PROBE_TIMEOUT"],
        worker_timeout=limits["WORKER_TIMEOUT"],
        shares_port=settings.WORKERS > 1,
    )
