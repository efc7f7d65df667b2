"""How a worker meets the others: over Redis, under the name of its domain and secret."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from msgnode.workers.inbox import channel_layer
from msgnode.workers.transport import PeerTransport
from msgnode.workers.worker_process import WorkerId

from .alarms import Alarms


def peer_transport(me: WorkerId, alarms: Alarms) -> PeerTransport:
    """The links to the other workers, not open yet."""
    limits: dict[str, Any] = settings.NODE
    return PeerTransport(
        channel_layer(),
        me,
        f"{settings.DOMAIN} {settings.SECRET_KEY}",
        limits["WORKER_TIMEOUT"],
        limits["LINK_BYTES"],
        alarms.raise_alarm,
        alarms.clear_alarm,
    )
