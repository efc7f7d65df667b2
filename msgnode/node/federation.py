"""Builds the parts of a worker that serve the nodes of other domains, if that is enabled."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any, NamedTuple

from django.conf import settings

from msgnode.bus.pipeline import Pipeline
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.table import RoutingTable
from msgnode.core.redaction import without_tokens
from msgnode.federation.known_peers import KnownPeers
from msgnode.federation.observers import Observers
from msgnode.federation.peer_session import PeerSessions
from msgnode.federation.peer_stub import LinkLimits
from msgnode.federation.sandbox import SandboxLimits
from msgnode.federation.service import Federation, FederationSettings
from msgnode.federation.stored_messages import StoredMessages, StoreLimits
from msgnode.federation.stub_sockets import SocketLimits
from msgnode.identity.encryption import decrypt, encrypt
from msgnode.net.http import HttpClient, Network
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.manager import SessionManager
from msgnode.storage.writer import GroupWriter
from msgnode.workers.lease import Lease
from policies.enforcement.decision_buffer import masked

from .alarms import Alarms

_DESCRIPTOR_SECONDS = 10.0
_DESCRIPTOR_BYTES = 3 * 1024 * 1024


class Foreign(NamedTuple):
    """The parts for other domains that must exist before a message can pass.

    `peers` are the known nodes, `observers` tells who listens to what is sent there; `http` queries
    nodes.
    """

    peers: KnownPeers
    observers: Observers
    http: HttpClient


def foreign(
    table: RoutingTable, sessions: SessionManager, writer: GroupWriter, alarms: Alarms
) -> Foreign:
    """Build the parts that know peers."""
    http = HttpClient(_networks(), _DESCRIPTOR_SECONDS, _DESCRIPTOR_BYTES)
    linger = settings.PEERS["LINGER_SECONDS"]
    return Foreign(
        KnownPeers(
            settings.DOMAIN,
            settings.FEDERATION,
            http,
            writer,
            alarms.raise_alarm,
            settings.FEDERATION_SIGNED,
        ),
        Observers(table, writer, sessions.missed, not settings.REDIS_URL, linger),
        http,
    )


def federation(
    foreign: Foreign,
    epoch: str,
    table: RoutingTable,
    pipeline: Pipeline,
    sessions: SessionManager,
    sockets: ConnectionLimits,
    connections: ConnectionSettings,
    writer: GroupWriter,
    lease: Lease,
    alarms: Alarms,
    guard: ResponseGuard,
) -> Federation:
    """Build the service for peers."""
    peers, sandbox = settings.PEERS, settings.SANDBOX
    limits: dict[str, Any] = settings.NODE
    max_frame = int(limits["MAX_FRAME_BYTES"])
    flow = replace(
        connections.flow,
        messages_per_second=peers["MESSAGES_PER_SECOND"],
        bytes_per_second=peers["BYTES_PER_SECOND"],
    )
    store = StoreLimits(
        peers["STORED_MESSAGES"], peers["STORED_BYTES"], peers["STORE_HOURS"] * 3600
    )
    stored = StoredMessages(store, table, writer, encrypt, decrypt, alarms.raise_alarm, guard.vouch)
    return Federation(
        FederationSettings(settings.DOMAIN, peers["MAX_STUBS"], settings.SECRET_KEY),
        foreign.peers,
        LinkLimits(
            SandboxLimits(
                sandbox["HEAP_MIB"],
                sandbox["DATA_MIB"],
                sandbox["MEMORY_MIB"],
                sandbox["SILENCE_SECONDS"],
                max_frame,
                sandbox["BUBBLEWRAP"],
            ),
            SocketLimits(
                frozenset(),
                _networks(),
                max_frame,
                peers["MESSAGES_PER_SECOND"],
                peers["BYTES_PER_SECOND"],
            ),
            peers["QUEUE_MESSAGES"],
            peers["QUEUE_BYTES"],
            stored.limits.seconds,
            peers["IDLE_SECONDS"],
        ),
        epoch,
        table,
        PeerSessions(pipeline, sessions, sockets, replace(connections, flow=flow)),
        foreign.http,
        writer,
        lambda: lease.is_held,
        alarms.raise_alarm,
        alarms.clear_alarm,
        foreign.observers,
        stored,
        masked if settings.POLICY["LOG_MASKS_BODIES"] else without_tokens,
    )


def _networks() -> list[Network]:
    """The private networks in which peers may be."""
    return [ipaddress.ip_network(each) for each in settings.FEDERATION_NETWORKS]
