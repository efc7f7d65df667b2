"""`/health/live` and `/health/ready`: what a supervisor asks."""

from __future__ import annotations

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.models.functions import Now
from django.http import HttpRequest, JsonResponse

from msgnode.core import database_limit
from msgnode.models import Worker
from msgnode.node import get_node

PATIENCE = 1.0
"""Seconds that the database is waited for: a supervisor waits for few."""


def live(request: HttpRequest) -> JsonResponse:
    """200 while the process answers at all."""
    return JsonResponse({"status": "live"})


def ready(request: HttpRequest) -> JsonResponse:
    """Whether this process serves: 200, else 503 and what is wrong.

    A worker does when the routing table is loaded, it holds its lease, the database answers, what
    it says to all workers comes back and what it holds is in their directory, its message to itself
    comes back and its background jobs run. `workers` counts it and those it is joined to; what its
    connectors say of themselves keeps it from nothing.
    The web process serves when the database answers, and counts the workers that hold a lease.
    """
    if settings.ROLE == "web":
        workers = _leased_workers()
        return _answer({"database": workers is not None}, workers or 0)
    node = get_node()
    parts = node.parts
    checks = {
        "node": node.is_ready,
        "lease": parts.lease.is_held,
        "database": parts.lease.is_held and _database_answers(),
        "workers": parts.cluster is None or parts.cluster.network.meets_others,
        "path": not parts.path.problem,
        "jobs": node.runs_all_jobs,
    }
    others = parts.cluster.transport.number_ready if parts.cluster is not None else 0
    connectors = {} if parts.mqtt is None else {"mqtt": parts.mqtt.state}
    if parts.federation is not None:
        connectors["federation"] = parts.federation.state
    if parts.qos.supervisor is not None:
        connectors["qos"] = parts.qos.state
    return _answer(checks, 1 + others, connectors)


def _answer(
    checks: dict[str, bool], workers: int, connectors: dict[str, str] | None = None
) -> JsonResponse:
    is_ready = all(checks.values())
    body: dict[str, object] = {
        "status": "ready" if is_ready else "not ready", "checks": checks, "workers": workers
    }  # fmt: skip
    if connectors:
        body["connectors"] = connectors
    return JsonResponse(body, status=200 if is_ready else 503)


def _leased_workers() -> int | None:
    """How many workers hold a lease, None if the database does not say."""
    try:
        with database_limit.at_most(PATIENCE):
            return Worker.objects.filter(lease_until__gte=Now()).count()
    except (DatabaseError, InterfaceError):
        return None


def _database_answers() -> bool:
    try:
        with database_limit.at_most(PATIENCE), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError):
        return False
    return True
