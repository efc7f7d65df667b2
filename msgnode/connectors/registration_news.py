"""Tells subscribers of `<url>/registration` about status changes of registry entries.

The registry reports the announced changes of each transaction; `outbox` writes them to the control
outbox in the same transaction, in any process. Every worker reads the outbox and `tell`s its own
listeners, so that each subscriber is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgnode.bus.notices import Notices
from msgnode.bus.ports import Enforcer, Recorder
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from registry import api

KIND = "registry.status"
MAX_CHANGES = 250
"""Changes in one row of the outbox, which every worker reads several times."""

Post = Callable[..., None]
"""Posts a control message: its kind, and its payload as keywords."""


def leave(post: Post, pairs: Sequence[tuple[str, str]]) -> None:
    """Leave (url, status) pairs for the workers."""
    for start in range(0, len(pairs), MAX_CHANGES):
        post(KIND, changes=pairs[start : start + MAX_CHANGES])


def outbox(post: Post) -> Callable[[Sequence[api.Change]], None]:
    """A listener of the registry that leaves its changes; part of the registry's transaction."""

    def listen(changes: Sequence[api.Change]) -> None:
        leave(post, [(change.url, change.after) for change in changes])

    return listen


class RegistrationNews:
    """Tells the sessions of this worker."""

    def __init__(
        self, domain: str, table: RoutingTable, enforcer: Enforcer, recorder: Recorder
    ) -> None:
        self._table = table
        self._notices = Notices(
            f"domain://registry.{domain}", "domain-registry", enforcer, recorder
        )

    def tell(self, payload: dict[str, Any]) -> None:
        """A handler of control messages: one update for each listener of each changed entry."""
        for url, status in payload["changes"]:
            to = f"{url}/registration"
            listeners = tuple(each for each in self._table.listeners(to) if each.is_here)
            if listeners:
                with FAULTS.kept_to("notification"):
                    body = {"value": status, "attribute": "status"}
                    self._notices.send(to, body, listeners)
