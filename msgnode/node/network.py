"""Builds a worker's network to its peers: over Redis, keyed by the node's domain and secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings

from msgnode.bus.table import RoutingTable
from msgnode.workers.lease import Lease
from msgnode.workers.worker_process import WorkerId

from .alarms import Alarms

if TYPE_CHECKING:
    from msgnode.workers.network import PeerNetwork


def peer_network(
    me: WorkerId, table: RoutingTable, alarms: Alarms, lease: Lease
) -> PeerNetwork | None:
    """Build the network, not connected yet; None if there are no other workers."""
    if not settings.REDIS_URL:
        return None
    # The client of Redis is for who has one.
    from msgnode.redis.directory import Directory
    from msgnode.workers.announcements import Watchers
    from msgnode.workers.inbox import channel_layer
    from msgnode.workers.network import PeerNetwork
    from msgnode.workers.transport import PeerTransport

    limits: dict[str, Any] = settings.NODE
    watchers = Watchers(table)
    transport = PeerTransport(
        channel_layer(),
        me,
        f"{settings.DOMAIN} {settings.SECRET_KEY}",
        limits["WORKER_TIMEOUT"],
        limits["LINK_BYTES"],
        watchers.snapshot,
        alarms.raise_alarm,
        alarms.clear_alarm,
        lambda: lease.is_held,
    )
    directory = Directory(settings.REDIS_URL, transport.node[:12])
    return PeerNetwork(transport, watchers, directory, table)
