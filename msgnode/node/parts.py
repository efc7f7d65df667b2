"""Assembles a worker: chooses stores, components and connectors, and wires them.

A new component or connector is one class (bus.ports.Component) and one line in `Parts.components`.
Every part is complete before it is passed to another. Nothing runs yet: `worker` starts and stops.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings

from msgnode.allocation.component import AllocationComponent
from msgnode.allocation.store import AllocationStore
from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.bounces import Bounces
from msgnode.bus.foreign import NO_FOREIGN_DOMAINS
from msgnode.bus.holders import NO_OTHERS
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.ownership import Ownership
from msgnode.bus.pipeline import Pipeline
from msgnode.bus.ports import Component
from msgnode.bus.recording import CountingRecorder
from msgnode.bus.replies import ANSWER_TIMEOUT, Replies
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import no_barrier, no_name_barrier
from msgnode.connectors.embedded_registry import EmbeddedRegistry
from msgnode.connectors.registration_news import RegistrationNews
from msgnode.connectors.registries import Registries
from msgnode.identity.identify_timeout import IdentifyTimeout
from msgnode.identity.ports import NO_GUESTS
from msgnode.identity.provider.backend import EmbeddedProvider
from msgnode.identity.service import IdentityService
from msgnode.monitoring import peer_queries
from msgnode.monitoring.domain_watch import DomainWatch
from msgnode.policy.service import PolicyService
from msgnode.qos.service import QosService
from msgnode.sessions.authorization import SessionAuthorizer
from msgnode.sessions.budgets import AnswerBudget
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.handshake import SessionHandshake
from msgnode.sessions.hang_ups import HangUps
from msgnode.sessions.liveness import LivenessChecks
from msgnode.sessions.locator import SessionLocator
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.store import SessionStore
from msgnode.storage import control
from msgnode.storage.control import ControlReader
from msgnode.storage.fence import Fence
from msgnode.storage.writer import GroupWriter
from msgnode.subscriptions.abroad import NOTHING_ABROAD
from msgnode.subscriptions.component import SubscriptionComponent
from msgnode.subscriptions.store import SubscriptionStore
from msgnode.workers.lease import Lease
from msgnode.workers.remote import ask_worker
from msgnode.workers.worker_process import WorkerId, this_host, times_fenced
from policies.apps import PoliciesConfig

from . import devices, options, visitors
from .alarms import Alarms
from .control import control_handlers
from .monitoring import Monitoring, Sampled, infos
from .network import peer_network
from .probe import path_probe, probe_endpoint

if TYPE_CHECKING:
    from msgnode.federation.service import Federation
    from msgnode.workers.cluster import Cluster

    from .invitations import Invitations


class Parts:
    """All parts of one worker."""

    def __init__(self) -> None:
        limits: dict[str, Any] = settings.NODE
        self.domain: str = settings.DOMAIN
        self.worker = f"{socket.gethostname()}:{os.getpid()}"[:64]
        self.epoch = str(uuid.uuid4())
        self.me = WorkerId(self.worker, self.epoch, this_host(), os.getpid())
        self.times_fenced = times_fenced(sys.argv)
        self.table = RoutingTable()
        is_alone = not settings.REDIS_URL
        seconds = limits["WORKER_TIMEOUT"] * (2 if is_alone else 1)
        self.lease = Lease(self.epoch, seconds, is_alone)
        self.fence_check = Fence(self.epoch, limits["WORKER_TIMEOUT"]).check
        self.writer = GroupWriter(self.fence_check, self.lease.refused)
        self.alarms = Alarms(self.writer)
        self.record = options.record(self.domain, self.worker, self.alarms)
        self.recorder = CountingRecorder(self.record)
        self.owners = LastOwnerCache()
        ownership = Ownership(self.table, self.owners, self.domain, settings.SHARE_RUNTIME_URL)
        network = peer_network(self.me, self.table, self.alarms, self.lease)
        holders = NO_OTHERS if network is None else network.homes
        barriers = (no_barrier, no_barrier) if network is None else network.names.barriers
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
            limits["MAX_ALLOCATIONS_PER_SESSION"],
            limits["MAX_ADDRESSES_PER_REQUEST"],
            self.owners,
            addresses,
            settings.VISITORS["ADDRESSES"],
            self.alarms.watch_pool,
        )
        foreign = None
        if settings.FEDERATION != "off":
            from . import federation

            foreign = federation.foreign(self.table, self.sessions, self.writer, self.alarms)
        self.subscriptions = SubscriptionComponent(
            self.table,
            SubscriptionStore(self.writer),
            self.domain,
            self.allocation.enter,
            self.allocation.drop,
            self.allocation.check_room,
            ownership,
            limits["MAX_SUBSCRIPTIONS_PER_SESSION"],
            limits["MAX_ADDRESSES_PER_REQUEST"],
            addresses,
            NOTHING_ABROAD if foreign is None else foreign.observers,
        )
        self.policy = PolicyService(
            self.table,
            self.writer,
            self.alarms.raise_alarm,
            partial(self.subscriptions.listening, self.sessions.sessions),
            self.subscriptions.of,
            self.subscriptions.end,
            self.sessions.missed,
        )
        self.enforcer = self.policy.enforcer
        self.identify_timeout = IdentifyTimeout(
            self.sessions, settings.IDENTITY["IDENTIFY_TIMEOUT"]
        )
        said_by = (self.writer, self.enforcer, self.recorder)
        self.invitations: Invitations | None = None
        if settings.INVITATIONS["ON"]:
            from .invitations import invitations

            accepted = self.identify_timeout.said_who
            self.invitations = invitations(
                accepted, self.table, self.sessions, self.subscriptions, *said_by
            )
        self.identities = IdentityService(
            self.domain,
            self.table,
            self.sessions,
            self.writer,
            self.sockets.connections,
            self.policy.decide_again_for,
            self.alarms.raise_alarm,
            self.alarms.clear_alarm,
            self.identify_timeout,
            EmbeddedProvider(),
            NO_GUESTS if self.invitations is None else self.invitations.guests,
            None if self.invitations is None else self.invitations.service.answer,
            None if network is None else network.identities.find,
        )
        self.async_verifier = self.identities.async_verifier
        self.visitors = visitors.visitors(self.sessions, self.subscriptions, self.identities)
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
            holders,
        )
        self.sessions.on_closed.extend(
            each.session_closed
            for each in (
                self.allocation, self.subscriptions, self.registries.domain, self.identities
            )
        )  # fmt: skip
        self.devices = devices.devices_without_sockets(self.sessions, self.sockets)
        self.sessions.on_identified.append(self.identities.session_identified)
        self.sessions.on_handed_off.extend(
            each.session_handed_off for each in (self.identities, self.registries.domain)
        )
        self.hangups = HangUps(
            self.domain, self.sessions, self.table, self.enforcer, self.recorder, holders
        )
        # everything with an address on the bus except `mn:/session`
        self.components: list[Component] = [
            self.allocation,
            self.subscriptions,
            self.registries.domain,
            self.registries.global_,
            self.identities.connector,
            self.qos.connector,
        ]
        book = ComponentBook(self.components, self.table, self.subscriptions)
        self.guard = ResponseGuard(self.table, settings.STRICT_RESPONSES, self.sessions.missed)
        self.liveness = LivenessChecks(self.sessions, None if network is None else ask_worker)
        bounces = Bounces(self.domain, self.table, book, holders)
        self.cluster: Cluster | None = None
        if network is not None:
            from msgnode.workers.cluster import Cluster

            self.cluster = Cluster(
                network,
                session_settings,
                self.table,
                self.sessions,
                self.allocation,
                self.subscriptions,
                self.session_store,
                self.alarms.raise_alarm,
                bounces.bounce,
                self.identities,
                {"policies": self.enforcer.information.rates},
                self.guard,
                self.liveness,
                self.lease,
            )
        self.locator = SessionLocator(
            self.sessions,
            self.table,
            holders,
            None if self.cluster is None else self.cluster.moves.fetch,
        )
        self.handshake = SessionHandshake(
            session_settings,
            self.sessions,
            self.table,
            self.session_store,
            self.identities.authorize_runtime,
            self.locator,
            self.liveness,
            self.owners,
            self.visitors.check,
            no_name_barrier if network is None else network.names.findable,
        )
        self.authorizer = SessionAuthorizer(
            self.table,
            self.handshake,
            self.identities.authenticator,
            ownership,
            holders,
        )
        self.pipeline = Pipeline(
            domain=self.domain,
            table=self.table,
            components=book,
            authorizer=self.authorizer,
            session_handler=self.handshake,
            enforcer=self.enforcer,
            recorder=self.recorder,
            answers=Replies(self.enforcer, ANSWER_TIMEOUT, *barriers),
            guard=self.guard,
            lease=self.lease,
            holders=holders,
            foreign=NO_FOREIGN_DOMAINS if foreign is None else foreign.peers,
        )
        barrier = no_barrier if network is None else network.transport.barrier
        self.probe = probe_endpoint(
            self.domain, self.table, self.handshake, barrier, self.sessions.missed
        )
        self.path = path_probe(self.probe, self.table, self.worker, self.writer, self.alarms)
        self.answers = AnswerBudget()
        self.connection_settings = options.connection_settings(
            self.answers, bool(self.identities.authenticator.modes.default)
        )
        carried_by = (self.pipeline, self.sessions, self.sockets, self.connection_settings)
        kept_by = (self.writer, self.lease, self.alarms)
        self.mqtt = devices.mqtt_connector(self.epoch, *carried_by, *kept_by)
        self.federation: Federation | None = None
        if foreign is not None:
            self.federation = federation.federation(
                foreign, self.epoch, self.table, *carried_by, *kept_by, self.guard
            )
        self.domain_watch = DomainWatch(self.worker, self.visitors, self.federation)
        self.monitoring = Monitoring(
            Sampled(self.sessions, self.sockets, self.recorder),
            self.me,
            self.pipeline,
            self.writer,
            self.alarms,
            self.cluster,
            partial(infos, self.domain, self.handshake, self.sessions, self.components, self.mqtt),
            self.policy,
        )
        self.sampler, self.watch, self.tracer = self.monitoring.sources
        outlets = devices.outlet_store(self.devices, self.writer)
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
        handlers = control_handlers(
            self.sessions,
            self.sockets,
            self.allocation,
            self.subscriptions,
            self.owners,
            self.writer,
            self.policy,
            self.monitoring.alarm_rules,
            self.registration_news,
            self.identities,
            self.federation,
            self.mqtt,
            self.invitations,
            self.cluster,
        )
        self.control = ControlReader(self.writer, handlers)
        if network is not None:
            network.rpc.answer_questions(peer_queries.answers(self))
            passing = partial(peer_queries.passing, network.rpc)
            PoliciesConfig.installed().show_messages_of_others(passing)
