"""`/health/live` and `/health/ready`: what a supervisor asks.

They are answered on the event loop, from what the process knows: nothing that keeps Django's
threads, the machine or the database busy makes a supervisor wait.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.db.models.functions import Now

from msgnode.core import database_errors, database_limit
from msgnode.models import Worker
from msgnode.node import Node
from msgnode.resources import version
from msgnode.storage.database_threads import DatabaseThreads

PATIENCE = 1.0
"""Seconds that the web process waits for the database: a supervisor waits for few."""

Application = Callable[..., Awaitable[None]]


class Health:
    """An ASGI application that answers for the process, and passes all other requests on.

    `/health/ready` is 200 if this process serves, else 503, with what is wrong. A worker serves
    when the routing table is loaded, it holds its lease, the database answered its last renewal,
    what it says to all workers comes back and what it holds is in their directory, its message to
    itself comes back and its own tasks run. `workers` counts it and those it is joined to. `jobs`
    says whether worker and beat run beside it: like what its connectors say of themselves, that
    keeps it from nothing.
    The web process serves when the database answers, and counts the workers that hold a lease.

    Args:
        application: serves all other requests.
        node: of a worker; None in the web process.
    """

    def __init__(self, application: Application, node: Node | None) -> None:
        self._application = application
        self._node = node
        self._leases = _Leases()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer, or pass a request on."""
        path = scope["path"]
        if path == "/health/live":
            await _answer(scope, send, {"status": "live", "version": version()})
        elif path == "/health/ready":
            body = await self._leases.ready() if self._node is None else _ready(self._node)
            await _answer(scope, send, body)
        else:
            await self._application(scope, receive, send)


def _ready(node: Node) -> dict[str, object]:
    """What a worker says of itself."""
    parts = node.parts
    checks = {
        "node": node.is_ready,
        "lease": parts.lease.is_held,
        "database": parts.lease.is_held and parts.lease.has_answer,
        "workers": parts.cluster.meets_others,
        "path": not parts.path.problem,
        "tasks": node.runs_all_tasks,
    }
    jobs = parts.monitoring.programs.all_run
    states = dict(each.state() for each in parts.subsystems)
    connectors = {name: state for name, state in states.items() if name}
    workers = 1 + parts.cluster.number_ready
    body = _body(checks, workers, parts.lease.trouble, connectors, {"jobs": jobs})
    if node.secrets_fault:  # keeps it from nothing but what needs them
        body["problems"] = {**body.get("problems", {}), "secrets": node.secrets_fault}
    return body


def _body(
    checks: dict[str, bool],
    workers: int,
    trouble: str,
    connectors: dict[str, str] | None = None,
    beside: dict[str, bool] | None = None,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "status": "ready" if all(checks.values()) else "not ready",
        "checks": {**checks, **(beside or {})},
        "workers": workers,
        "version": version(),
    }
    if told := trouble or database_errors.CONNECTING.problem:
        body["problems"] = {"database": told}
    if connectors:
        body["connectors"] = connectors
    return body


class _Leases:
    """Counts the leases for the web process, in a thread of its own, once for all who ask."""

    def __init__(self) -> None:
        self._threads = DatabaseThreads("health", 1, 1, "The database is being asked already.")
        self._asked: asyncio.Future[int] | None = None

    async def ready(self) -> dict[str, object]:
        """What the web process says of itself."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.ensure_future(self._threads.run(_number_of_leases))
            self._asked.add_done_callback(_forget)
        try:
            number = await asyncio.wait_for(asyncio.shield(self._asked), PATIENCE)
        except (DatabaseError, InterfaceError, TimeoutError) as error:
            answers = not database_errors.is_out_of_reach(error)
            return _body({"database": answers}, 0, database_errors.in_words(error))
        return _body({"database": True}, number, "")


def _number_of_leases() -> int:
    with database_limit.at_most(PATIENCE):
        return Worker.objects.filter(lease_until__gte=Now()).count()


def _forget(asked: asyncio.Future[int]) -> None:
    if not asked.cancelled():
        asked.exception()


async def _answer(scope: dict[str, Any], send: Any, body: dict[str, object]) -> None:
    text = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    status = 503 if body["status"] == "not ready" else 200
    await send({"type": "http.response.start", "status": status, "headers": headers})
    is_body_wanted = scope["method"] != "HEAD"
    await send({"type": "http.response.body", "body": text if is_body_wanted else b""})
