"""Builds the parts of a worker that serve the nodes of other domains, if that is enabled."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from django.conf import settings

from msgnode.bus.ports import Listener
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.table import RoutingTable
from msgnode.core.redaction import without_tokens
from msgnode.federation.discovery import KnownPeers
from msgnode.federation.exchange import Store
from msgnode.federation.held_subscriptions import Observed
from msgnode.federation.link_socket import LinkEndpoint, OwnNode, keys_of_this_node
from msgnode.federation.observers import Observers
from msgnode.federation.peer import QUEUE_BYTES, QUEUE_MESSAGES, Link, LinkLimits
from msgnode.federation.peer_session import PeerSessions
from msgnode.federation.service import Federation, FederationSettings, ServingWorker
from msgnode.federation.sockets import BYTES_PER_SECOND, SocketLimits
from msgnode.federation.store import PeerRow
from msgnode.federation.stored_messages import StoredMessages, StoreLimits
from msgnode.identity.encryption import decrypt, encrypt
from msgnode.monitoring import peer_figures
from msgnode.net.http import HttpClient, Network
from msgnode.scripts.service import Scripts
from msgnode.sessions.handshake import ConnectionParts
from msgnode.sessions.manager import SessionManager
from policies.enforcement.decision_buffer import masked

from . import options
from .base import Base, OtherDomains, PeerRoom
from .subsystem import Subsystem, until_stopped

_DESCRIPTOR_SECONDS = 10.0
_DESCRIPTOR_BYTES = 3 * 1024 * 1024


def other_domains(base: Base, sessions: SessionManager, scripts: Scripts) -> OtherDomains:
    """Build the parts that know peers, and the rest once messages can be carried.

    Args:
        base: of the worker.
        sessions: of the worker.
        scripts: of the worker, one of which may speak to a legacy network.
    """
    http = HttpClient(_networks(), _DESCRIPTOR_SECONDS, _DESCRIPTOR_BYTES)
    peers = KnownPeers(
        base.domain,
        settings.FEDERATION,
        http,
        base.writer,
        base.alarms.raise_alarm,
        settings.FEDERATION_SIGNED,
    )
    is_alone = not settings.REDIS_URL
    observers = Observers(base.table, base.writer, sessions.missed, is_alone)
    return OtherDomains(peers, observers, partial(_serve, base, peers, observers, http, scripts))


def _serve(
    base: Base,
    peers: KnownPeers,
    observers: Observers,
    http: HttpClient,
    scripts: Scripts,
    parts: ConnectionParts,
    guard: ResponseGuard,
) -> PeerRoom:
    """Build the service for peers."""
    limits, lease = settings.PEERS, base.lease
    flow = replace(parts.settings.flow, bytes_per_second=BYTES_PER_SECOND)  # the rest: its row
    store = StoreLimits(limits["STORED_MESSAGES"], seconds=limits["STORE_HOURS"] * 3600)
    stored = StoredMessages(
        store, base.table, base.writer, encrypt, decrypt, base.alarms.raise_alarm, guard.vouch
    )
    max_frame = int(settings.NODE["MAX_FRAME_BYTES"])
    node = OwnNode(base.domain, keys_of_this_node(), max_frame, _networks())
    federation = Federation(
        FederationSettings(
            base.domain,
            limits["MAX_STUBS"],
            _link_limits(store.seconds),
            masked if settings.POLICY["LOG_MASKS_BODIES"] else without_tokens,
            settings.SECRET_KEY,
            node,
        ),
        ServingWorker(base.me.epoch, base.table, base.writer, lambda: lease.is_held, base.alarms),
        peers,
        PeerSessions(replace(parts, settings=replace(parts.settings, flow=flow))),
        http,
        observers,
        stored,
        partial(_legacy, base, store.seconds, scripts),
    )
    room = Subsystem(
        serve=lambda: [until_stopped(federation.run)],
        handlers=federation.handlers(),
        state=lambda: ("federation", federation.state),
        metrics=partial(peer_figures.peers, federation),
        drain=federation.stop,
        abort=federation.abort,
    )
    endpoint = LinkEndpoint(node, federation.link_to)
    return PeerRoom(lambda: federation.links.values(), federation.proofs, (room,), endpoint)


def _legacy(
    base: Base, stored_seconds: float, scripts: Scripts, row: PeerRow, opener: PeerSessions,
    observed: Observed, stored: Store,
) -> Link:  # fmt: skip
    """Build the link to a legacy network; its code is loaded with the first."""
    from msgnode.legacy.link import Around, LegacyLink, LegacyPeer
    from msgnode.legacy.network import Here, LegacyNetwork, LegacySettings
    from msgnode.legacy.rows import KeptAddresses

    if (found := row.legacy) is None:
        raise ValueError(f"{row.domain} is no legacy network")
    settings = LegacySettings(
        row.domain, found.host, found.port, found.component, found.sealed and decrypt(found.sealed),
        found.wants_receipts, found.pool, found.per_minute, found.transport, found.media,
    )  # fmt: skip
    make: Callable[[Here], LegacyNetwork]
    if found.network == "sip":
        from msgnode.legacy.sip import SipNetwork

        make = partial(SipNetwork, settings)
    elif found.network == "script":
        from msgnode.legacy.script import ScriptNetwork

        make = partial(ScriptNetwork, settings, scripts.ports["legacy"])
    else:
        from msgnode.legacy.xmpp import XmppNetwork

        make = partial(XmppNetwork, settings)
    alarms = base.alarms
    kept, find = KeptAddresses(base.writer, row.pk), partial(_session_at, base.table)
    around = Around(
        base.domain, opener, observed, kept, base.others.holders, find, alarms.raise_alarm,
        alarms.clear_alarm, stored_seconds,
    )  # fmt: skip
    at_peer = f"runtime://{base.domain}/mn-{row.runtime_id}"
    peer = LegacyPeer(row.domain, row.stub_url, at_peer, found.trusted)
    return LegacyLink(peer, around, make, stored)


def _session_at(table: RoutingTable, address: str) -> Listener | None:
    """The session that has an address, or whose runtime has it."""
    return table.owner_of(address) or table.at_runtime(address)


def _link_limits(stored_seconds: float) -> LinkLimits:
    """The limits of each peer."""
    max_frame = int(settings.NODE["MAX_FRAME_BYTES"])
    return LinkLimits(
        options.sandbox_limits(),
        SocketLimits(frozenset(), _networks(), max_frame),
        QUEUE_MESSAGES,
        QUEUE_BYTES,
        stored_seconds,
    )


def _networks() -> list[Network]:
    """The private networks in which peers may be."""
    return [ipaddress.ip_network(each) for each in settings.FEDERATION_NETWORKS]
