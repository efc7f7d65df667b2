"""Status changes of registry entries, told to whoever subscribed `<url>/registration`.

The registry tells each transaction's announced changes; `outbox` writes them to the control outbox
in the same transaction, in whatever process it happens. Every worker reads the outbox and `tell`s
its own listeners, so that each subscriber hears of a change once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from time import time
from typing import Any

import msgspec

from msgnode.bus import delivery
from msgnode.bus.ports import Enforcer, Recorder
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.decision import Direction
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Origin, Speaker
from msgnode.core.record import Outcome, TrafficRecord
from registry import api

KIND = "registry.status"
MAX_CHANGES = 250
"""Changes in one row of the outbox, which every worker reads several times."""

Post = Callable[..., None]
"""Posts a control message: its kind, and its payload as keywords."""

_COMPONENT = Speaker(session_id="", runtime_url="", origin=Origin.COMPONENT)


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
        self._from = f"domain://registry.{domain}"
        self._table = table
        self._enforcer = enforcer
        self._recorder = recorder
        self._ids = itertools.count(1)

    def tell(self, payload: dict[str, Any]) -> None:
        """A handler of control messages: one update for each listener of each changed entry."""
        for url, status in payload["changes"]:
            to = f"{url}/registration"
            listeners = tuple(each for each in self._table.listeners(to) if each.is_here)
            if listeners:
                with FAULTS.kept_to("notification"):
                    self._send(to, status, listeners)

    def _send(self, to: str, status: str, listeners: tuple[Any, ...]) -> None:
        frame = msgspec.json.encode(
            {
                "id": next(self._ids),
                "type": "update",
                "from": self._from,
                "to": to,
                "body": {"value": status, "attribute": "status"},
            }
        )
        message = messages.parse(frame)
        decision = self._enforcer.enforce(message, _COMPONENT, Direction.OUT)
        outcome, count = Outcome.BLOCKED, 0
        if decision.passes:
            marked = message.forwarded(to, decision.auth, body=decision.body)
            outcome, count = delivery.hand_over(marked, listeners, _NODE, _NODE)
        self._recorder.note(
            TrafficRecord(
                at=time(),
                session="",
                id=message.id.decode(),
                type=message.type,
                sender=self._from,
                to=to,
                size=len(frame),
                listeners=count,
                outcome=outcome,
                component="domain-registry",
                effect=decision.effect,
            )
        )


class _Node:
    """The sender of what the node itself says: it has no token, and nobody can hold it back."""

    token = b""

    def wait_for(self, listener: Any) -> None:
        """A listener that is behind is cut off by its own limits."""


_NODE: Any = _Node()
