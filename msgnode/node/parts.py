"""What a worker is made of: picks stores, components and connectors and wires them.

A new component or connector is one class (bus.ports.Component) and one line in `Parts.components`.
Each part exists before it is handed to another. Nothing runs yet: `worker` starts and stops.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings

from msgnode.allocation.component import AllocationComponent
from msgnode.allocation.store import AllocationStore
from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.ownership import Ownership
from msgnode.bus.pipeline import Pipeline
from msgnode.bus.ports import Component, Listener
from msgnode.bus.recording import CountingRecorder
from msgnode.bus.replies import Replies
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import no_barrier
from msgnode.connectors import registration_news
from msgnode.connectors.embedded_registry import EmbeddedRegistry
from msgnode.connectors.registration_news import RegistrationNews
from msgnode.connectors.registries import Registries
from msgnode.devices.mqtt.connector import TOPICS_CHANGED
from msgnode.federation.store import CHANGED as PEERS_CHANGED
from msgnode.federation.store import RESTART as PEERS_RESTART
from msgnode.identity.provider.backend import EmbeddedProvider
from msgnode.identity.service import IdentityService
from msgnode.invitations.endpoints import LEFT
from msgnode.monitoring import alarm_rules, peer_queries
from msgnode.monitoring.domain_watch import DomainWatch
from msgnode.policy.service import PolicyService
from msgnode.qos.service import QosService
from msgnode.redis.directory import Directory
from msgnode.sessions.authorization import SessionAuthorizer
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.handshake import SessionHandshake
from msgnode.sessions.hang_ups import HangUps
from msgnode.sessions.liveness import LivenessChecks
from msgnode.sessions.locator import SessionLocator
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.probe import ProbeDoor
from msgnode.sessions.store import SessionStore
from msgnode.storage import control
from msgnode.storage.control import ControlReader
from msgnode.storage.fence import Fence
from msgnode.storage.writer import GroupWriter
from msgnode.subscriptions.component import SubscriptionComponent
from msgnode.subscriptions.store import SubscriptionStore
from msgnode.workers.cluster import Cluster
from msgnode.workers.control_handlers import ControlHandlers
from msgnode.workers.lease import Lease
from msgnode.workers.transport import PeerTransport
from msgnode.workers.worker_process import WorkerId, this_host
from policies.apps import PoliciesConfig

from . import devices, federation, options, visitors
from .alarms import Alarms
from .invitations import invitations
from .monitoring import Monitoring, cards
from .probe import path_probe, probe_pipeline
from .transport import peer_transport


class Parts:
    """Everything that one worker of the node is made of.

    Args:
        describe: what is noted of the worker with each renewal of its lease.
    """

    def __init__(self, describe: Callable[[], dict[str, Any]]) -> None:
        limits: dict[str, Any] = settings.NODE
        self.domain: str = settings.DOMAIN
        self.worker = f"{socket.gethostname()}:{os.getpid()}"[:64]
        self.epoch = str(uuid.uuid4())
        self.me = WorkerId(self.worker, self.epoch, this_host(), os.getpid())
        self.times_fenced = 0
        self.table = RoutingTable()
        is_alone = not settings.REDIS_URL
        seconds = limits["WORKER_TIMEOUT"] * (2 if is_alone else 1)
        self.lease = Lease(self.epoch, seconds, is_alone, describe)
        self.fence_check = Fence(self.epoch, limits["WORKER_TIMEOUT"]).check
        self.writer = GroupWriter(self.fence_check, self.lease.refused)
        self.alarms = Alarms(self.writer)
        self.record = options.record(self.domain, self.worker, self.alarms)
        self.recorder = CountingRecorder(self.record)
        self.owners = LastOwnerCache()
        ownership = Ownership(self.table, self.owners, self.domain, settings.SHARE_RUNTIME_URL)
        transport = peer_transport(self.me, self.alarms) if settings.REDIS_URL else None
        barrier = no_barrier if transport is None else transport.barrier
        session_settings = options.session_settings()
        self.session_store = SessionStore(
            self.writer, self.worker, self.epoch, options.closed_sessions(), self.fence_check
        )
        self.sessions = SessionManager(
            session_settings, self.table, self.session_store, self.alarms.raise_alarm
        )
        if self.record is not None:
            self.sessions.steps.listeners.append(self.record.note_session)
        self.sockets = ConnectionLimits(
            limits["MAX_CONNECTIONS"],
            limits["MAX_CONNECTIONS_PER_SOURCE"],
            self.sessions.is_source_banned,
        )
        addresses = AddressBudget(limits["MAX_ADDRESSES_PER_SOURCE"])
        self.allocation = AllocationComponent(
            self.table,
            AllocationStore(self.writer),
            self.domain,
            settings.ALLOCATION_SCHEMES,
            limits["MAX_ALLOCATION_BLOCK"],
            limits["MAX_ALLOCATIONS_PER_SESSION"],
            self.owners,
            addresses,
        )
        self.allocation.watch_pool = self.alarms.watch_pool
        self.subscriptions = SubscriptionComponent(
            self.table,
            SubscriptionStore(self.writer),
            self.domain,
            self.allocation.enter,
            self.allocation.drop,
            self.allocation.check_room,
            ownership,
            limits["MAX_SUBSCRIPTIONS_PER_SESSION"],
            addresses,
        )
        self.policy = PolicyService(
            self.table,
            self.writer,
            self.alarms.raise_alarm,
            partial(self.subscriptions.everything, self.sessions.sessions),
            self.subscriptions.end,
        )
        self.enforcer = self.policy.enforcer
        self.identities = IdentityService(
            self.domain,
            self.table,
            self.sessions,
            self.writer,
            self.sockets.connections,
            self._decide_again,
            self.alarms.raise_alarm,
            self.alarms.clear_alarm,
            EmbeddedProvider(),
        )
        self.async_verifier = self.identities.async_verifier
        self.locator = SessionLocator(self.sessions, self.table)
        self.liveness = LivenessChecks(self.sessions, limits["LIVENESS_TIMEOUT"])
        self.handshake = SessionHandshake(
            session_settings,
            self.sessions,
            self.table,
            self.session_store,
            self.identities.authorize_runtime,
            self.locator,
            self.liveness,
            self.owners,
        )
        told = (self.sessions, self.allocation, self.subscriptions, self.identities)
        self.visitors = visitors.visitors(*told, self.handshake)
        self.registries = Registries(
            self.domain,
            settings.REGISTRY,
            control.post,
            ownership,
            self.writer.submit,
            addresses,
            EmbeddedRegistry(self.fence_check, self.lease.refused),
        )
        self.registration_news = RegistrationNews(
            self.domain, self.table, self.enforcer, self.recorder
        )
        self.qos = QosService(
            self.domain,
            settings.QOS,
            self.fence_check,
            self.lease.refused,
            self.epoch,
            limits["GRACE_PERIOD"],
            self.table,
            self.enforcer,
            self.recorder,
            self.alarms.raise_alarm,
            self.alarms.clear_alarm,
            None if self.record is None else self.record.note_session,
        )
        self.sessions.on_closed += [
            self.allocation.session_closed,
            self.subscriptions.session_closed,
            self.registries.domain.session_closed,
            self.identities.session_closed,
        ]
        told_by = (self.writer, self.enforcer, self.recorder)
        self.invitations = invitations(
            self.identities, self.table, self.sessions, self.subscriptions, *told_by
        )
        self.devices = devices.devices_without_sockets(self.sessions, self.sockets)
        self.sessions.on_identified.append(self.identities.session_identified)
        self.sessions.on_handed_off += [
            self.identities.session_handed_off,
            self.registries.domain.session_handed_off,
        ]
        self.hangups = HangUps(self.domain, self.sessions, self.table, self.enforcer, self.recorder)
        # everything with an address on the bus, `mn:/session` apart
        self.components: list[Component] = [
            self.allocation,
            self.subscriptions,
            self.registries.domain,
            self.registries.global_,
            self.identities.connector,
            self.qos.connector,
        ]
        self.guard = ResponseGuard(self.table, settings.STRICT_RESPONSES, self.sessions.missed)
        self.authorizer = SessionAuthorizer(
            self.table,
            self.handshake,
            self.identities.authenticator,
            ownership,
            limits["MAX_LEARNED_PER_SESSION"],
        )
        self.replies = Replies(self.enforcer, limits["ANSWER_TIMEOUT"], barrier)
        self.pipeline = Pipeline(
            domain=self.domain,
            table=self.table,
            components=ComponentBook(self.components, self.table, self.subscriptions),
            authorizer=self.authorizer,
            session_door=self.handshake,
            enforcer=self.enforcer,
            recorder=self.recorder,
            answers=self.replies,
            guard=self.guard,
            lease=self.lease,
        )
        self.probe = ProbeDoor(self.domain, settings.SECRET_KEY, self.table)
        self.probe.pipeline = probe_pipeline(
            self.domain, self.table, self.handshake, barrier, self.sessions.missed
        )
        self.path = path_probe(self.probe, self.table, self.worker, self.writer, self.alarms)
        self.answers = options.answer_budget()
        self.connection_settings = options.connection_settings(
            self.answers, bool(self.identities.authenticator.modes.default)
        )
        self.cluster = None if transport is None else self._cluster(transport)
        carried_by = (self.pipeline, self.sessions, self.sockets, self.connection_settings)
        kept_by = (self.writer, self.lease, self.alarms)
        self.mqtt = devices.mqtt_connector(self.epoch, *carried_by, *kept_by)
        self.federation = federation.federation(self.epoch, self.table, *carried_by, *kept_by)
        if self.federation is not None:
            self.subscriptions.abroad = self.federation.observers
        self.domain_watch = DomainWatch(self.worker, self.visitors, self.federation)
        self.monitoring = Monitoring(
            self,
            self.me,
            self.pipeline,
            self.writer,
            self.alarms,
            self.cluster,
            partial(cards, self.domain, self.handshake, self.sessions, self.components, self.mqtt),
            self.policy,
        )
        self.sampler, self.watch, self.tracer = self.monitoring.sources
        outlets = devices.outlet_store(self.writer)
        self.webhooks = devices.webhooks(outlets, self.lease)
        self.wakeups = devices.push_wakeups(self.devices, outlets, self.alarms)
        self.device_api, self.outlet_recovery = devices.device_api(
            (outlets, self.webhooks, self.wakeups),
            self.devices,
            self.pipeline,
            self.sessions,
            self.handshake,
            self.sockets,
            self.connection_settings,
            self.async_verifier.prove,
            self.cluster,
        )
        self.control = ControlReader(self.writer, self._control_handlers())

    def _cluster(self, transport: PeerTransport) -> Cluster:
        """Join the rooms, which are complete, to the other workers."""
        cluster = Cluster(
            transport,
            options.session_settings(),
            self.table,
            self.sessions,
            self.allocation,
            self.subscriptions,
            self.session_store,
            self.alarms.raise_alarm,
            self.pipeline.bounce,
            self.identities,
            {"policies": self.enforcer.information.rates},
            self.guard,
            self.liveness,
            self.lease,
            Directory(settings.REDIS_URL, transport.node[:12]),
        )
        cluster.homes.serve(self.pipeline, self.authorizer, self.locator, self.qos.notifier)
        cluster.homes.serve(self.hangups)
        self.replies.barrier, self.replies.findable = cluster.names.barriers
        self.handshake.findable = cluster.names.findable
        self.locator.fetch = cluster.moves.fetch
        self.liveness.ask_worker = cluster.ask_worker
        cluster.rpc.answers = peer_queries.answers(self)
        PoliciesConfig.installed().messages_of_others = partial(peer_queries.passing, cluster.rpc)
        return cluster

    def _control_handlers(self) -> dict[str, control.Handler]:
        """What is done at the changes of processes that are no workers."""
        handlers = ControlHandlers(
            self.sessions,
            self.sockets,
            self.allocation,
            self.subscriptions,
            self.owners,
            self.writer,
        )
        return {
            **handlers.handlers(),
            "policies.published": self.policy.published,
            alarm_rules.CHANGED: self.monitoring.alarm_rules.changed,
            registration_news.KIND: self.registration_news.tell,
            **self.identities.control_handlers(),
            **dict.fromkeys((PEERS_CHANGED, PEERS_RESTART), _passed_over),
            **({} if self.federation is None else self.federation.handlers()),
            TOPICS_CHANGED: _passed_over if self.mqtt is None else self.mqtt.topics_changed,
            LEFT: _passed_over if self.invitations is None else self.invitations.delivery.left,
        }

    def _decide_again(self, session: Listener) -> None:
        self.policy.decide_again_for(session, self.subscriptions.of(session))


def _passed_over(payload: dict[str, Any]) -> None:
    """A change of what this worker does not have."""
