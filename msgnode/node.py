"""The composition root: the one file that picks stores, components and connectors and wires them.

A new component or connector is one class (bus.ports.Component) and one line in `_components`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from django.conf import settings

from msgnode import models
from msgnode.allocation.component import AllocationComponent
from msgnode.allocation.store import AllocationStore
from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.open_requests import RequestLimits
from msgnode.bus.ownership import Ownership
from msgnode.bus.pipeline import Pipeline
from msgnode.bus.ports import (
    Component,
    ComponentInfo,
    Listener,
    MessageObserver,
    NoPolicies,
    Proof,
)
from msgnode.bus.recording import CountingRecorder
from msgnode.bus.replies import Replies
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Barrier, Call, Together, no_barrier
from msgnode.connectors import registration_news
from msgnode.connectors.embedded_registry import EmbeddedRegistry
from msgnode.connectors.registration_news import RegistrationNews
from msgnode.connectors.registries import Registries
from msgnode.core.faults import FAULTS
from msgnode.devices import forwarding
from msgnode.devices.api import DeviceApi, DeviceSettings
from msgnode.devices.devices import Devices
from msgnode.devices.mqtt import rows as mqtt_rows
from msgnode.devices.mqtt.connector import TOPICS_CHANGED, MqttConnector, MqttSettings
from msgnode.devices.mqtt.sessions import BrokerSessions
from msgnode.devices.outlets import WEBHOOK_SECONDS, Outlets
from msgnode.devices.push import PushKey, PushWakeups
from msgnode.devices.resumption import DeviceSessions
from msgnode.devices.safe_http import SafeHttp
from msgnode.devices.webhook import Webhooks
from msgnode.identity import service_accounts
from msgnode.identity.provider.backend import EmbeddedProvider
from msgnode.identity.provider.clients import ensure_own_clients
from msgnode.identity.service import IdentityService
from msgnode.monitoring import alarm_rules, fault_alarms, path_probe, peer_queries
from msgnode.monitoring.alarm_rules import AlarmRules
from msgnode.monitoring.component_status import StatusReport
from msgnode.monitoring.fault_alarms import FaultAlarms
from msgnode.monitoring.path_probe import PathProbe
from msgnode.monitoring.sampler import Sampler
from msgnode.monitoring.samples import Sample
from msgnode.monitoring.session_watch import SessionWatch
from msgnode.monitoring.tail import Tail
from msgnode.monitoring.talkers import Talkers
from msgnode.monitoring.taps import Taps
from msgnode.policy.service import PolicyService
from msgnode.qos.service import QosService
from msgnode.redis.directory import Directory
from msgnode.sessions.authorization import SessionAuthorizer
from msgnode.sessions.bans import BanList
from msgnode.sessions.budgets import AnswerBudget
from msgnode.sessions.closed import ClosedSessions
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.expiry import run_expiry
from msgnode.sessions.flow_control import FlowLimits
from msgnode.sessions.handshake import SessionHandshake
from msgnode.sessions.liveness import LivenessChecks
from msgnode.sessions.locator import SessionLocator
from msgnode.sessions.manager import SessionManager, SessionSettings
from msgnode.sessions.probe import NoRecord, ProbeAuthorizer, ProbeDoor
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.store import SessionStore
from msgnode.storage import alarms, control
from msgnode.storage.control import ControlReader
from msgnode.storage.fence import Fence
from msgnode.storage.writer import GroupWriter
from msgnode.subscriptions.component import SubscriptionComponent
from msgnode.subscriptions.store import SubscriptionStore
from msgnode.traffic.recorder import ParquetRecorder, RecordOptions
from msgnode.traffic.retention import raw_url
from msgnode.workers.claims import WorkerClaim
from msgnode.workers.cluster import Cluster, ClusterLimits
from msgnode.workers.control_handlers import ControlHandlers
from msgnode.workers.fencing import note_fencing
from msgnode.workers.lease import Lease
from msgnode.workers.lone import register_alone
from msgnode.workers.membership_store import READY, STARTING, retire
from msgnode.workers.session_calls import SessionCalls
from msgnode.workers.transport import LAYER_AWAY, LAYER_FULL, PeerTransport, channel_layer
from msgnode.workers.worker_process import WorkerId, this_host
from policies.apps import PoliciesConfig
from spark.freshness import watch_reports

log = logging.getLogger(__name__)


class Node:
    """One worker of the node: everything it is made of, its start and its stop."""

    def __init__(self) -> None:
        limits: dict[str, Any] = settings.NODE
        self.domain: str = settings.DOMAIN
        self.worker = f"{socket.gethostname()}:{os.getpid()}"[:64]
        self.epoch = str(uuid.uuid4())
        self.is_ready = False
        self.table = RoutingTable()
        self.times_fenced = 0
        self.on_drain: list[Callable[[], None]] = []
        self.me = WorkerId(self.worker, self.epoch, this_host(), os.getpid())
        is_alone = not settings.REDIS_URL
        seconds = limits["WORKER_TIMEOUT"] * (2 if is_alone else 1)
        self.lease = Lease(self.epoch, seconds, is_alone, self._figures)
        self.fence_check = Fence(self.epoch, limits["WORKER_TIMEOUT"]).check
        self.writer = GroupWriter(self.fence_check, self.lease.refused)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._renewing: asyncio.Task[None] | None = None
        self.record = self._record() if settings.RECORD["ON"] else None
        self.recorder = CountingRecorder(self.record)
        self.owners = LastOwnerCache()
        ownership = Ownership(self.table, self.owners, self.domain, settings.SHARE_RUNTIME_URL)
        transport = self._transport() if settings.REDIS_URL else None
        barrier: Barrier = no_barrier if transport is None else transport.barrier
        session_settings = SessionSettings(
            resume=settings.RESUME,
            shares=settings.SHARE_RUNTIME_URL,
            stores=settings.STORE_FOR_DETACHED,
            grace=limits["GRACE_PERIOD"],
            outbox_bytes=limits["OUTBOX_BYTES"],
            queue_bytes_per_source=limits["MAX_QUEUE_BYTES_PER_SOURCE"],
            queue_bytes=limits["MAX_QUEUE_BYTES"],
            max_sessions=limits["MAX_SESSIONS"],
            max_per_runtime=limits["MAX_SESSIONS_PER_RUNTIME"],
            node_address=f"domain://msg-node.{self.domain}",
            request_limits=self._request_limits(),
        )
        closed = ClosedSessions(
            limits["MAX_CLOSED_SESSIONS_PER_SOURCE"], limits["MAX_CLOSED_SESSIONS"]
        )
        self.session_store = SessionStore(
            self.writer, self.worker, self.epoch, closed, self.fence_check
        )
        self.sessions = SessionManager(
            session_settings, self.table, self.session_store, self.raise_alarm
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
        self.allocation.watch_pool = self._watch_pool
        self._exhausted_pools: set[str] = set()
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
            self.raise_alarm,
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
            self.raise_alarm,
            self.clear_alarm,
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
            self.raise_alarm,
            self.clear_alarm,
        )
        self.sessions.on_closed += [
            self.allocation.session_closed,
            self.subscriptions.session_closed,
            self.registries.domain.session_closed,
            self.identities.session_closed,
        ]
        self.devices = self._devices() if settings.DEVICE_HTTP else None
        self.sessions.on_identified.append(self.identities.session_identified)
        self.sessions.on_handed_off += [
            self.identities.session_handed_off,
            self.registries.domain.session_handed_off,
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
            components=ComponentBook(self._components()),
            authorizer=self.authorizer,
            session_door=self.handshake,
            enforcer=self.enforcer,
            recorder=self.recorder,
            answers=self.replies,
            guard=self.guard,
            check_lease=self.lease.check,
        )
        self.taps = Taps(self._set_tap)
        self.probe = ProbeDoor(self.domain, settings.SECRET_KEY, self.table)
        self.probe.pipeline = Pipeline(
            domain=self.domain,
            table=self.table,
            components=ComponentBook(()),
            authorizer=ProbeAuthorizer(),
            session_door=self.handshake,
            enforcer=NoPolicies(),
            recorder=NoRecord(),
            answers=Replies(NoPolicies(), limits["ANSWER_TIMEOUT"], barrier),
            guard=ResponseGuard(self.table, is_strict=False, missed=self.sessions.missed),
        )
        self.path = PathProbe(
            self.probe,
            self.table,
            self.writer,
            self.worker,
            self.raise_alarm,
            self.clear_alarm,
            every=limits["PROBE_INTERVAL"],
            timeout=limits["PROBE_TIMEOUT"],
            worker_timeout=limits["WORKER_TIMEOUT"],
            shares_port=settings.WORKERS > 1,
        )
        self.answers = AnswerBudget(
            limits["MAX_PENDING_ANSWERS_PER_SOURCE"], limits["MAX_PENDING_ANSWERS_TOTAL"]
        )
        self.cluster = None if transport is None else self._cluster(transport)
        self.connection_settings = ConnectionSettings(
            FlowLimits(
                messages_per_second=limits["MAX_MESSAGES_PER_SECOND"],
                bytes_per_second=limits["MAX_BYTES_PER_SECOND"],
                max_pending=limits["MAX_PENDING_ANSWERS"],
                answers=self.answers,
            ),
            handshake_timeout=limits["HANDSHAKE_TIMEOUT"],
            names_runtime=bool(self.identities.authenticator.modes.default),
        )
        self.mqtt = self._mqtt() if settings.DEVICE_MQTT else None
        control_handlers = ControlHandlers(
            self.sessions,
            self.sockets,
            self.allocation,
            self.subscriptions,
            self.owners,
            self.writer,
        )
        self.control = ControlReader(
            self.writer,
            {
                **control_handlers.handlers(),
                "policies.published": self.policy.published,
                alarm_rules.CHANGED: lambda payload: self.alarm_rules.changed(payload),
                registration_news.KIND: self.registration_news.tell,
                **self.identities.control_handlers(),
                TOPICS_CHANGED: self._topics_changed,
            },
        )
        self.status = StatusReport(self.writer, self.worker, self.cards)
        self.talkers = Talkers(partial(self.taps.put, "talkers"))
        self.watch = SessionWatch(
            self.sessions.sessions, self.worker, partial(self.taps.put, "sessions")
        )
        self.sampler = Sampler(self, self.worker, self.writer, self.talkers, self.watch)
        self.alarm_rules = AlarmRules(
            self._samples, self._leads, self.writer, self.sampler.bounds, settings.DATA_DIR
        )
        self.webhooks = self._webhooks() if settings.DEVICE_WEBHOOKS else None
        self.wakeups: PushWakeups | None = None
        if self.devices is not None and settings.DEVICE_PUSH:
            self.wakeups = self._wakeups(self.devices)
        self.device_api = None if self.devices is None else self._device_api(self.devices)
        self.fault_alarms = FaultAlarms(FAULTS, self.worker, self.raise_alarm, self.clear_alarm)
        self.tail = Tail(settings.DATA_DIR, self.worker, partial(self.taps.put, "tail"))

    def _transport(self) -> PeerTransport:
        limits: dict[str, Any] = settings.NODE
        return PeerTransport(
            channel_layer(),
            self.me,
            f"{self.domain} {settings.SECRET_KEY}",
            limits["WORKER_TIMEOUT"],
            limits["LINK_BYTES"],
            self.raise_alarm,
            self.clear_alarm,
        )

    def _cluster(self, transport: PeerTransport) -> Cluster:
        """Join the rooms, which are complete, to the other workers."""
        limits: dict[str, Any] = settings.NODE
        cluster = Cluster(
            transport,
            ClusterLimits(
                timeout=limits["WORKER_TIMEOUT"],
                outbox_bytes=limits["OUTBOX_BYTES"],
                stores=settings.STORE_FOR_DETACHED,
                requests=self._request_limits(),
            ),
            self.table,
            self.sessions,
            self.allocation,
            self.subscriptions,
            self.session_store,
            self.raise_alarm,
            self.pipeline.bounce,
            self.identities,
            {"policies": self.enforcer.information.rates},
            self.guard,
            self.liveness,
            self.lease,
            Directory(settings.REDIS_URL, transport.node[:12]),
        )
        self.pipeline.holders = self.authorizer.holders = self.locator.holders = cluster.homes
        self.replies.findable = self.handshake.findable = cluster.entries.barrier
        self.locator.fetch = cluster.moves.fetch
        self.liveness.ask_worker = cluster.ask_worker
        cluster.rpc.answers = peer_queries.answers(self)
        PoliciesConfig.installed().messages_of_others = partial(peer_queries.passing, cluster.rpc)
        return cluster

    def _devices(self) -> Devices:
        """What devices without a WebSocket have their sessions by."""
        limits: dict[str, Any] = settings.NODE
        devices = Devices(
            self.sockets,
            self.sessions.queues,
            buffer_bytes=limits["OUTBOX_BYTES"] // 4,
            idle=limits["PING_TIMEOUT"],
        )
        self.sessions.on_closed.append(devices.session_closed)
        self.sessions.on_handed_off.append(devices.session_left)
        return devices

    def _mqtt(self) -> MqttConnector:
        """What joins the operator's MQTT broker to the bus."""
        limits: dict[str, Any] = settings.NODE
        ours = self.connection_settings
        rate = settings.MQTT["MESSAGES_PER_SECOND"]
        of_sensors = replace(ours, flow=replace(ours.flow, messages_per_second=rate))
        parts = (self.pipeline, self.sessions, self.sockets)
        return MqttConnector(
            MqttSettings(
                self.domain,
                mqtt_rows.address(settings.MQTT, int(limits["MAX_FRAME_BYTES"])),
                settings.MQTT["PREFIX"],
                limits["PING_TIMEOUT"],
            ),
            BrokerSessions(*parts, ours),
            BrokerSessions(*parts, of_sensors),
            WorkerClaim("mqtt", self.epoch, self.writer),
            partial(mqtt_rows.read, self.writer),
            self.raise_alarm,
            self.clear_alarm,
        )

    async def _prove_device(self, text: str, source: str) -> Proof:
        """Who is behind what a device or a network server opens its session with."""
        if service_accounts.is_key(text):
            return await service_accounts.prove(text, source)
        return await self.async_verifier.prove(text)

    def _topics_changed(self, payload: dict[str, Any]) -> None:
        if self.mqtt is not None:
            self.mqtt.topics_changed(payload)

    def _webhooks(self) -> Webhooks:
        """What posts to network servers."""
        return Webhooks(self._safe_http())

    def _wakeups(self, devices: Devices) -> PushWakeups:
        """What wakes devices that sleep."""
        return PushWakeups(
            PushKey(settings.SECRET_KEY, settings.PUSH_CONTACT),
            settings.PUSH_HOSTS,
            self._safe_http(),
            devices,
            settings.NODE["GRACE_PERIOD"],
            self.raise_alarm,
        )

    def _safe_http(self) -> SafeHttp:
        networks = [ipaddress.ip_network(each) for each in settings.WEBHOOK_NETWORKS]
        return SafeHttp(networks, WEBHOOK_SECONDS, 1024 * 1024)

    def _device_api(self, devices: Devices) -> DeviceApi:
        """What devices ask for over HTTP."""
        limits: dict[str, Any] = settings.NODE
        sessions = DeviceSessions(
            self.pipeline,
            self.sessions,
            self.handshake,
            self.sockets,
            self.connection_settings,
            self._prove_device,
            devices,
        )
        api = DeviceApi(
            sessions,
            DeviceSettings(
                settings.WS_ORIGINS, int(limits["MAX_FRAME_BYTES"]), limits["GRACE_PERIOD"]
            ),
            None
            if self.cluster is None
            else SessionCalls(self.cluster.rpc, self.cluster.replicator),
            Outlets(
                sessions,
                int(limits["MAX_FRAME_BYTES"]),
                self.webhooks,
                service_accounts.may_have_webhooks,
                self.wakeups,
            ),
        )
        if self.cluster is not None:
            self.cluster.rpc.calls[forwarding.KIND] = api.answer
        return api

    def _request_limits(self) -> RequestLimits:
        limits: dict[str, Any] = settings.NODE
        return RequestLimits(limits["RESPONSE_SECONDS"], limits["MAX_OPEN_REQUESTS"])

    def _decide_again(self, session: Listener) -> None:
        self.policy.decide_again_for(session, self.subscriptions.of(session))

    def _record(self) -> ParquetRecorder:
        options = settings.RECORD
        return ParquetRecorder(
            RecordOptions(
                url=raw_url(options["URL"]),
                flush_seconds=options["FLUSH_SECONDS"],
                buffer_rows=options["BUFFER_ROWS"],
                max_bytes=options["MAX_BYTES"],
                min_free=options["MIN_FREE_BYTES"],
                pseudonym_key=options["PSEUDONYM_KEY"].encode(),
            ),
            node=self.domain,
            worker=self.worker,
            raise_alarm=lambda *alarm: self._on_loop(self.raise_alarm, *alarm),
            clear_alarm=lambda *alarm: self._on_loop(self.clear_alarm, *alarm),
        )

    def _components(self) -> list[Component]:
        """Everything with an address on the bus, `mn:/session` apart."""
        registries = self.registries
        return [
            self.allocation,
            self.subscriptions,
            registries.domain,
            registries.global_,
            self.identities.connector,
            self.qos.connector,
        ]

    def cards(self) -> list[ComponentInfo]:
        """Every component, connector and protostub the node knows, for the operator."""
        stubs = [
            ComponentInfo("protostub ws", "protostub", f"ws://{self.domain}/ws"),
            ComponentInfo(
                "protostub stub-connect", "protostub", f"ws://{self.domain}/stub/connect"
            ),
        ]
        connected = Counter({"ws": 0, "stub-connect": 0})
        for session in self.sessions.sessions.values():
            if session.is_connected:
                connected[session.handshake] += 1
        for card, handshake in zip(stubs, ("ws", "stub-connect"), strict=True):
            card.since = self.handshake.card.since
            card.answered = connected[handshake]
            card.state = f"{connected[handshake]} connected"
        self.qos.update_card()
        connectors = [self.mqtt.update_card()] if self.mqtt is not None else []
        parts = [each.card for each in self._components()]
        return [self.handshake.card, *parts, *connectors, *stubs]

    # --- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the routing table from the database and begin.

        Raises:
            DatabaseError: the database cannot be read.
            AnotherRuns: another worker serves this database, and has no Redis either.
        """
        rows = await asyncio.to_thread(self._register)
        self._renewing = asyncio.create_task(self.lease.run())
        with_gap, bans = await asyncio.to_thread(self._load, rows)
        self._loop = asyncio.get_running_loop()
        if self.record is not None:
            self.record.start()
        self.sessions.apply_bans(bans)
        if with_gap:
            text = f"The last stop was not clean: {with_gap} sessions may have missed messages."
            self.raise_alarm("unclean-stop", self.domain, text)
        jobs = (
            run_expiry(self.sessions),
            self.control.run(),
            self.status.run(),
            self.fault_alarms.run(),
            self.sampler.run(),
            self.alarm_rules.run(),
            self.policy.watch(),
            self.policy.write(),
            self.identities.watch(),
            *self.registries.jobs(),
            *self.qos.jobs(),
            watch_reports(),
        )
        self._tasks = [asyncio.create_task(job) for job in jobs]
        await self.tail.start()
        if self.cluster is not None:
            await self.cluster.join()
        self.is_ready = True
        if self.wakeups is not None:
            self._tasks.append(asyncio.create_task(self.wakeups.run()))
        if self.mqtt is not None:
            self._tasks.append(asyncio.create_task(self._serve_mqtt(self.mqtt)))
        log.info("The worker is ready.", extra={"worker": self.worker, **self.table.sizes})

    async def _serve_mqtt(self, mqtt: MqttConnector) -> None:
        await mqtt.run()
        await asyncio.Event().wait()  # it was stopped, and the job has not failed

    @property
    def runs_all_jobs(self) -> bool:
        """Whether no job that goes on in the background has ended."""
        return not any(task.done() for task in self._tasks)

    async def drain(self) -> None:
        """Tell every session to come back, not all at once."""
        self.is_ready = False
        if self.devices is not None:
            self.devices.is_closed = True
        await self.path.stop()
        if self.mqtt is not None:
            with FAULTS.kept_to("step of the stop"):
                await self.mqtt.stop()
        if self.cluster is not None:
            self.cluster.close()
        seconds = settings.NODE["DRAIN_STAGGER"]
        self._end_pages()
        await self.sockets.end_all(CloseCode.GOING_AWAY, "the node restarts: come back", seconds)

    async def stop(self) -> None:
        """Tell every session to come back, give those left to other workers, commit, end."""
        for step in (
            self.drain,
            self._end_webhooks,
            self.tail.stop,
            self._end_jobs,
            self._give_sessions_away,
            self._store_sessions,
            self.registries.stop,
            self.qos.stop,
            self.identities.stop,
            self._close_record,
            self.writer.stop,
            self._leave_workers,
        ):
            with FAULTS.kept_to("step of the stop"):
                await step()

    async def fence(self, why: str) -> None:
        """Serve nothing more, because the lease is lost, and tell every socket to come back.

        The rows are left to whoever has them now. Waits for the database as long as that takes.
        """
        self.is_ready = False
        if self.devices is not None:
            self.devices.is_closed = True
        if self.mqtt is not None:
            self.mqtt.abort()
        self._end_pages()
        await self.sockets.end_all(CloseCode.GOING_AWAY, "this worker begins again: come back", 0.0)
        missed = await self.cluster.fence() if self.cluster is not None else set()
        for task in self._tasks:
            task.cancel()
        steps = (self.path.stop, self.tail.stop, self._close_record)
        await asyncio.gather(
            *(asyncio.wait_for(step(), 1.0) for step in steps), return_exceptions=True
        )
        await asyncio.to_thread(note_fencing, self.me, why, missed)

    def _figures(self) -> dict[str, Any]:
        """What is noted of the worker with each renewal of its lease."""
        if self.cluster is None:
            state = READY if self.is_ready else STARTING
            return {"state": state, "sessions": len(self.sessions.sessions)}
        return {
            "state": self.cluster.state,
            "sessions": len(self.sessions.sessions),
            "links": self.cluster.transport.figures(),
        }

    async def _end_jobs(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _give_sessions_away(self) -> None:
        if self.cluster is not None:
            await self.cluster.leave(settings.NODE["DRAIN_SECONDS"])

    async def _store_sessions(self) -> None:
        self.sessions.stop()

    async def _end_webhooks(self) -> None:
        if self.webhooks is not None:
            await self.webhooks.stop()
        if self.wakeups is not None:
            await self.wakeups.close()

    async def _close_record(self) -> None:
        if self.record is not None:
            await asyncio.to_thread(self.record.close)

    async def _leave_workers(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()  # or it would find its epoch retired, and take that for a loss
        if self.cluster is not None:
            await self.cluster.stop()
        else:
            await asyncio.to_thread(retire, self.epoch)
        self.lease.close()

    def _register(self) -> Iterable[models.Session]:
        """Enter this worker; the sessions that are its own from now on."""
        if self.cluster is not None:
            return self.cluster.register()
        register_alone(self.me, self.lease)
        return SessionStore.load()

    def _load(self, rows: Iterable[models.Session]) -> tuple[int, BanList]:
        alarms.clear_of_ended(
            (path_probe.KIND, fault_alarms.KIND, LAYER_AWAY, LAYER_FULL), socket.gethostname()
        )
        ensure_own_clients()
        self.identities.load()
        with_gap = self.sessions.restore(rows)
        self.identities.restore()
        AllocationStore.load_owners(self.owners)
        self.allocation.pool_schemes = AllocationStore.pool_schemes()
        self.allocation.restore(AllocationStore.load(), self.sessions.sessions)
        self.subscriptions.restore(SubscriptionStore.load(), self.sessions.sessions)
        self.policy.load()
        return with_gap, SessionStore.load_bans()

    # --- what reaches the worker from outside -----------------------------------------------------

    def raise_alarm(self, kind: str, subject: str, text: str) -> None:
        """Raise an alarm from the event loop."""
        log.warning("Alarm: %s", text, extra={"kind": kind})
        self.writer.submit(Together(alarms.raise_alarms, alarms.Raised(kind, subject, text)))

    def _end_pages(self) -> None:
        """Who is served by this worker and is no session: `on_drain` lets them go."""
        for let_go in self.on_drain:
            with FAULTS.kept_to("console"):
                let_go()

    def _leads(self) -> bool:
        """Whether this worker does what one of all does."""
        peers = () if self.cluster is None else self.cluster.transport.peers.values()
        return all(self.epoch <= peer.epoch for peer in peers if peer.is_up)

    async def _samples(self) -> tuple[list[Sample], bool]:
        """The last sample of each worker that answers, and whether all do."""
        told = list(self.sampler.rings.seconds)[-1:]
        if self.cluster is None:
            return told, True
        others = await peer_queries.samples(self.cluster.rpc, seconds=1.0)
        for samples in others.values():
            told += samples or ()
        return told, None not in others.values()

    def _set_tap(self, tap: MessageObserver | None) -> None:
        self.pipeline.watch(tap)

    def clear_alarm(self, kind: str, subject: str) -> None:
        """The cause is gone; from the event loop."""
        self.writer.submit(Call(lambda: alarms.clear_alarm(kind, subject)))

    def _on_loop(self, call: Callable[..., None], *arguments: str) -> None:
        """Have the event loop do it, from another thread. It may have ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _watch_pool(self, scheme: str, fault: str) -> None:
        """An alarm stands while a pool is exhausted."""
        if fault:
            self._exhausted_pools.add(scheme)
            self.raise_alarm(alarms.POOL_EXHAUSTED, scheme, fault)
        elif scheme in self._exhausted_pools:
            self._exhausted_pools.discard(scheme)
            self.writer.submit(Call(lambda: alarms.clear_alarm(alarms.POOL_EXHAUSTED, scheme)))


_node: Node | None = None


def get_node() -> Node:
    """The worker of this process, made at the first call."""
    global _node
    if _node is None:
        _node = Node()
    return _node
