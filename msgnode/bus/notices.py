"""Messages that a component sends unasked, through the policies, to listeners; recorded."""

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
    """Sends the notices of one component.

    Args:
        sender: the component's address.
        component: its name in the traffic record.
        enforcer: decides on each notice.
        recorder: keeps a row of each.
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
        """Send one message, which nobody answers, to the listeners of an address."""
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
    """The node as a sender: it has no token, and no reader can pause it."""

    token = b""

    def wait_for(self, listener: Any) -> None:
        """Do nothing: a listener that lags is ended by its own limits."""


_NODE: Any = _Node()
