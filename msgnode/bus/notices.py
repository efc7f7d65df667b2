"""What a component says unasked: one message to listeners, past the policies, recorded."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from time import time
from typing import Any

import msgspec

from msgnode.core import messages
from msgnode.core.decision import Direction
from msgnode.core.identity import Origin, Speaker
from msgnode.core.record import Outcome, TrafficRecord

from . import delivery
from .ports import Enforcer, Listener, Recorder

_COMPONENT = Speaker(session_id="", runtime_url="", origin=Origin.COMPONENT)


class Notices:
    """The voice of one component.

    Args:
        sender: its address.
        component: its name in the record.
    """

    def __init__(self, sender: str, component: str, enforcer: Enforcer, recorder: Recorder) -> None:
        self._sender = sender
        self._component = component
        self._enforcer = enforcer
        self._recorder = recorder
        self._ids = itertools.count(1)

    def send(
        self,
        to: str,
        body: Mapping[str, Any],
        listeners: tuple[Listener, ...],
        type_: str = "update",
    ) -> None:
        """One message to an address, handed to these who listen there; nobody answers it."""
        frame = msgspec.json.encode(
            {
                "id": next(self._ids),
                "type": type_,
                "from": self._sender,
                "to": to,
                "body": body,
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
                sender=self._sender,
                to=to,
                size=len(frame),
                listeners=count,
                outcome=outcome,
                component=self._component,
                effect=decision.effect,
            )
        )


class _Node:
    """The sender of what the node itself says: it has no token, and nobody can hold it back."""

    token = b""

    def wait_for(self, listener: Any) -> None:
        """A listener that is behind is cut off by its own limits."""


_NODE: Any = _Node()
