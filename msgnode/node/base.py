"""What the rooms of a worker are built from, in groups of what belongs together.

A default is what a worker has where that room is switched off.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings

from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.holders import NO_OTHERS, Holders
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.ownership import Ownership
from msgnode.bus.ports import Listener, Proof
from msgnode.bus.recording import CountingRecorder
from msgnode.bus.refusals import NO_FOREIGN_DOMAINS, ForeignDomains
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Barrier, no_barrier, no_name_barrier
from msgnode.connectors.identity import FindElsewhere, Invitations, invitations_are_off
from msgnode.core.record import SessionRecord
from msgnode.devices.http import switched_off
from msgnode.identity.ports import NO_GUESTS, Guests
from msgnode.monitoring import collector
from msgnode.sessions.consumer import NO_NODES, ForeignNodes
from msgnode.sessions.rivals import Findable
from msgnode.storage.fence import Check, Fence
from msgnode.storage.writer import GroupWriter
from msgnode.subscriptions.abroad import NOTHING_ABROAD, Abroad
from msgnode.traffic.recorder import ParquetRecorder
from msgnode.workers.lease import Lease
from msgnode.workers.remote_sessions import ask_worker
from msgnode.workers.worker_process import WorkerId, this_host

from . import options
from .alarms import Alarms
from .subsystem import Subsystem

if TYPE_CHECKING:
    from msgnode.allocation.component import AllocationComponent
    from msgnode.bus.response_guard import ResponseGuard
    from msgnode.federation.peer import Link
    from msgnode.sessions.connection_limits import ConnectionLimits
    from msgnode.sessions.handshake import ConnectionParts
    from msgnode.sessions.manager import SessionManager
    from msgnode.sessions.session_factory import SessionSettings
    from msgnode.sessions.store import SessionStore
    from msgnode.subscriptions.component import SubscriptionComponent
    from msgnode.workers.network import WorkerNetwork

Prove = Callable[[str], Awaitable[Proof]]


def _keep_no_row(row: SessionRecord) -> None:
    """Keep no row: there is no traffic record."""


class TrafficRecord(NamedTuple):
    """What notes messages, and sessions; it only counts if no record is kept."""

    recorder: CountingRecorder
    note_session: Callable[[SessionRecord], None] = _keep_no_row
    subsystems: tuple[Subsystem, ...] = ()


class Others(NamedTuple):
    """The other workers as the rooms see them; by default, there are none."""

    network: WorkerNetwork | None = None
    holders: Holders = NO_OTHERS
    barrier: Barrier = no_barrier
    of_answers: tuple[Barrier, Barrier] = (no_barrier, no_barrier)
    findable: Findable = no_name_barrier
    find_identity: FindElsewhere | None = None
    ask_worker: Callable[[Listener], None] | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """What every room has.

    Attributes:
        domain: the node's domain.
        me: this worker.
        table: its routing table.
        lease: its lease.
        check: raises inside a transaction if the worker may not write any more.
        writer: its writer.
        alarms: the node's alarms.
        record: the traffic record.
        others: the other workers.
    """

    domain: str
    me: WorkerId
    table: RoutingTable
    lease: Lease
    check: Check
    writer: GroupWriter
    alarms: Alarms
    record: TrafficRecord
    others: Others


def base() -> Base:
    """Build it, with an epoch of its own."""
    domain: str = settings.DOMAIN
    name = f"{socket.gethostname()}:{os.getpid()}"[:64]
    me = WorkerId(name, str(uuid.uuid4()), this_host(), os.getpid())
    timeout: float = settings.NODE["WORKER_TIMEOUT"]
    is_alone = not settings.REDIS_URL
    lease = Lease(me.epoch, timeout * (2 if is_alone else 1), is_alone)
    check, table = Fence(me.epoch, timeout).check, RoutingTable()
    writer = GroupWriter(check, lease.refused)
    alarms = Alarms(writer)
    others = Others() if is_alone else _others(me, table, lease, alarms)
    record = _record(domain, name, alarms)
    return Base(domain, me, table, lease, check, writer, alarms, record, others)


def _record(domain: str, worker: str, alarms: Alarms) -> TrafficRecord:
    """Build the traffic record, if one is to be kept."""
    if not settings.RECORD["ON"]:
        return TrafficRecord(CountingRecorder())
    record = ParquetRecorder(
        options.record_options(),
        node=domain,
        worker=worker,
        raise_alarm=alarms.raise_from_thread,
        clear_alarm=alarms.clear_from_thread,
    )

    async def start() -> None:
        record.start()

    async def close() -> None:
        await asyncio.to_thread(record.close)

    figures = partial(collector.record, record)
    room = Subsystem(start=start, close=close, fence=close, metrics=figures)
    return TrafficRecord(CountingRecorder(record), record.note_session, (room,))


def _others(me: WorkerId, table: RoutingTable, lease: Lease, alarms: Alarms) -> Others:
    """Build the network to the other workers, not connected yet.

    It is over Redis, keyed by the node's domain and secret.
    """
    # The client of Redis is for who has one.
    from msgnode.redis.directory import Directory
    from msgnode.workers.announcements import Watchers
    from msgnode.workers.inbox import channel_layer
    from msgnode.workers.network import WorkerNetwork
    from msgnode.workers.transport import LinkTransport

    limits: dict[str, Any] = settings.NODE
    watchers = Watchers(table)
    transport = LinkTransport(
        channel_layer(),
        me,
        f"{settings.DOMAIN} {settings.SECRET_KEY}",
        limits["WORKER_TIMEOUT"],
        limits["LINK_BYTES"],
        watchers.snapshot,
        alarms,
        lambda: lease.is_held,
    )
    directory = Directory(settings.REDIS_URL, transport.node[:12])
    network = WorkerNetwork(transport, watchers, directory, table)
    return Others(
        network,
        network.homes,
        transport.barrier,
        network.names.barriers,
        network.names.findable,
        network.identities.find,
        ask_worker,
    )


class Sessions(NamedTuple):
    """The sessions of the worker."""

    settings: SessionSettings
    manager: SessionManager
    store: SessionStore
    sockets: ConnectionLimits


class Holdings(NamedTuple):
    """What sessions hold besides their runtime URL, and who may hold what."""

    allocation: AllocationComponent
    subscriptions: SubscriptionComponent
    owners: LastOwnerCache
    ownership: Ownership
    addresses: AddressBudget


class InvitationRoom(NamedTuple):
    """What identities need of invitations."""

    guests: Guests = NO_GUESTS
    answer: Invitations = invitations_are_off
    subsystems: tuple[Subsystem, ...] = ()


Application = Callable[..., Awaitable[None]]


class PeerRoom(NamedTuple):
    """The nodes of other domains, once messages can be carried."""

    links: Callable[[], Iterable[Link]] = tuple
    proofs: ForeignNodes = NO_NODES
    subsystems: tuple[Subsystem, ...] = ()
    endpoint: Application | None = None


def _serve_no_peers(parts: ConnectionParts, guard: ResponseGuard) -> PeerRoom:
    """Build nothing: the node serves no peers."""
    return PeerRoom()


class OtherDomains(NamedTuple):
    """What must be known of other domains before messages can be carried."""

    peers: ForeignDomains = NO_FOREIGN_DOMAINS
    observers: Abroad = NOTHING_ABROAD
    serve: Callable[[ConnectionParts, ResponseGuard], PeerRoom] = _serve_no_peers


class DeviceRoom(NamedTuple):
    """Devices without a WebSocket: the ASGI application of their requests."""

    application: Application = switched_off
    subsystems: tuple[Subsystem, ...] = ()


def send_task(name: str, arguments: tuple[Any, ...]) -> None:
    """Send a task to the Celery worker. Blocks."""
    from msgnode.celery import app  # the node does without

    app.send_task(name, arguments, ignore_result=True)
