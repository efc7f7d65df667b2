"""Assembles a worker: chooses stores, components and connectors, and wires them.

A new component or connector is one class (bus.ports.Component) and one line in `_components`; a new
room is a `Subsystem` in the list that `parts` ends with. Every part is complete before it is passed
to another. Nothing runs yet: `worker` starts and stops.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings

from msgnode.allocation.component import AllocationComponent, AllocationLimits
from msgnode.allocation.store import AllocationStore
from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.notices import Notices
from msgnode.bus.ownership import Ownership
from msgnode.bus.periodic import every
from msgnode.bus.pipeline import Pipeline, Routing
from msgnode.bus.ports import Component, NoPolicies
from msgnode.bus.recording import CountingRecorder
from msgnode.bus.refusals import Bounces
from msgnode.bus.replies import ANSWER_TIMEOUT, Replies
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.connectors import registration_news
from msgnode.connectors.embedded_registry import EmbeddedRegistry
from msgnode.connectors.registration_news import RegistrationNews
from msgnode.connectors.registries import Registries
from msgnode.core.addresses import home_domain
from msgnode.devices.mqtt.topics import TOPICS_CHANGED
from msgnode.federation.store import CHANGED as PEERS_CHANGED
from msgnode.federation.store import DIAL as PEERS_DIAL
from msgnode.federation.store import RESTART as PEERS_RESTART
from msgnode.identity.identify_timeout import IdentifyTimeout
from msgnode.identity.provider.backend import EmbeddedProvider
from msgnode.identity.service import IdentityService, IdentitySources
from msgnode.invitations.wire import INVITATION_LEFT
from msgnode.monitoring import collector, connector_figures, peer_figures, worker_queries
from msgnode.monitoring.domain_watch import DomainWatch
from msgnode.monitoring.path_probe import PathProbe, ProbeSettings
from msgnode.monitoring.sampler import Sampled, Sampler
from msgnode.monitoring.tracer import Tracer
from msgnode.monitoring.watched_sessions import WatchedSessions
from msgnode.policy.service import PolicyService
from msgnode.qos.notifier import Notifier
from msgnode.qos.service import Instead, QosService, ReservationFence
from msgnode.qos.store import ReservationStore
from msgnode.scripts.ports import Ports
from msgnode.scripts.service import Scripts
from msgnode.sessions.admission import Known
from msgnode.sessions.authorization import SessionAuthorizer
from msgnode.sessions.budgets import AnswerBudget
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.consumer import ForeignNodes
from msgnode.sessions.handshake import (
    ConnectionParts,
    RuntimeChecks,
    SessionHandshake,
    SessionLocator,
)
from msgnode.sessions.hang_ups import HangUps
from msgnode.sessions.liveness import LivenessChecks
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.probe import NoRecord, ProbeAuthorizer, ProbeEndpoint
from msgnode.sessions.rivals import Rivals
from msgnode.sessions.session import LiveSession
from msgnode.sessions.store import SessionStore
from msgnode.sessions.visitors import VisitorLimits, Visitors
from msgnode.storage import control
from msgnode.storage.control import ControlReader, Handler
from msgnode.storage.writer import GroupWriter
from msgnode.subscriptions.component import SubscriptionComponent, SubscriptionLimits
from msgnode.subscriptions.store import SubscriptionStore
from msgnode.workers.control_handlers import ControlHandlers
from msgnode.workers.lease import Lease
from msgnode.workers.lone import LoneWorker
from msgnode.workers.rebalancing import EVEN, Rebalancing
from msgnode.workers.worker_process import WorkerId, times_fenced
from policies.apps import PoliciesConfig
from spark.freshness import watch_reports

from . import options
from .alarms import Alarms
from .base import Application, Base, Holdings, OtherDomains, Sessions, base, send_task
from .devices import devices, mqtt_connector
from .invitations import invitations
from .monitoring import Monitoring, infos
from .subsystem import Subsystem

if TYPE_CHECKING:
    from msgnode.federation.peer import Link
    from msgnode.workers.cluster import Cluster
    from policies.enforcement.pep import PolicyEnforcer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one worker that are asked for from outside, and the list of its rooms."""

    domain: str
    worker: str
    epoch: str
    times_fenced: int
    me: WorkerId
    table: RoutingTable
    lease: Lease
    writer: GroupWriter
    alarms: Alarms
    recorder: CountingRecorder
    sessions: SessionManager
    session_store: SessionStore
    sockets: ConnectionLimits
    allocation: AllocationComponent
    subscriptions: SubscriptionComponent
    owners: LastOwnerCache
    enforcer: PolicyEnforcer
    identities: IdentityService
    guard: ResponseGuard
    cluster: Cluster | LoneWorker
    pipeline: Pipeline
    answers: AnswerBudget
    connections: ConnectionParts
    probe: ProbeEndpoint
    path: PathProbe
    nodes: ForeignNodes
    node_links: Application | None
    device_api: Application
    monitoring: Monitoring
    sampler: Sampler
    watch: WatchedSessions
    tracer: Tracer
    domain_watch: DomainWatch
    control: ControlReader
    subsystems: tuple[Subsystem, ...]


class People(NamedTuple):
    """Who runtimes are, and the limits of visitors."""

    identities: IdentityService
    visitors: Visitors
    subsystems: tuple[Subsystem, ...]


class Served(NamedTuple):
    """What connections come from."""

    connections: ConnectionParts
    answers: AnswerBudget
    probe: ProbeEndpoint
    path: PathProbe
    links: Callable[[], Iterable[Link]]
    nodes: ForeignNodes
    node_links: Application | None
    device_api: Application
    subsystems: tuple[Subsystem, ...]


class Bus(NamedTuple):
    """What carries messages, and what acts on the sessions that other workers know."""

    guard: ResponseGuard
    cluster: Cluster | LoneWorker
    handshake: SessionHandshake
    pipeline: Pipeline


def parts() -> Parts:
    """Build a worker from the settings."""
    at = base()
    sessions = _sessions(at)
    domains, scripts = OtherDomains(), Scripts(options.sandbox_limits(), at.alarms)
    if settings.FEDERATION != "off":
        from . import federation

        domains = federation.other_domains(at, sessions.manager, scripts)
    held = _holdings(at, sessions, domains)
    policy = _policy(at, sessions.manager, held)
    ports = Ports(scripts)
    people = _people(at, sessions, held, policy, ports)
    registries, qos = _registries(at, held, ports), _qos(at, policy, ports.broker)
    components: list[Component] = [  # all that have an address on the bus except `mn:/session`
        held.allocation,
        held.subscriptions,
        registries.domain,
        registries.global_,
        people.identities.connector,
        qos.connector,
    ]
    _listen(sessions.manager, held, registries, people)
    bus = _bus(at, sessions, held, policy, people, domains, components)
    served = _served(at, sessions, people, domains, bus)
    rooms = (
        *served.subsystems,
        *people.subsystems,
        *_session_rooms(at, sessions.manager, policy, bus.cluster),
        *_worker_rooms(at, sessions.sockets),
        *_registry_rooms(at, policy, registries, qos, scripts),
        *at.record.subsystems,
    )
    shown = partial(infos, at.domain, bus.handshake, sessions.manager, components, rooms)
    sampled = Sampled(sessions.manager, sessions.sockets, at.record.recorder)
    monitoring = Monitoring(at, sampled, bus.pipeline, bus.cluster, policy, shown)
    made = _parts(at, sessions, held, policy, people, bus, served, monitoring, rooms)
    bus.cluster.rpc.answer_questions(worker_queries.answers(made))
    worker_queries.show_in_pages(made.watch, bus.cluster.rpc)
    passing = partial(worker_queries.passing, bus.cluster.rpc)
    PoliciesConfig.installed().show_messages_of_others(passing)
    return made


def _parts(
    at: Base,
    sessions: Sessions,
    held: Holdings,
    policy: PolicyService,
    people: People,
    bus: Bus,
    served: Served,
    monitoring: Monitoring,
    rooms: tuple[Subsystem, ...],
) -> Parts:
    """Collect what is asked for from outside."""
    rooms = (*rooms, monitoring.subsystem())
    return Parts(
        domain=at.domain,
        worker=at.me.name,
        epoch=at.me.epoch,
        times_fenced=times_fenced(sys.argv),
        me=at.me,
        table=at.table,
        lease=at.lease,
        writer=at.writer,
        alarms=at.alarms,
        recorder=at.record.recorder,
        sessions=sessions.manager,
        session_store=sessions.store,
        sockets=sessions.sockets,
        allocation=held.allocation,
        subscriptions=held.subscriptions,
        owners=held.owners,
        enforcer=policy.enforcer,
        identities=people.identities,
        guard=bus.guard,
        cluster=bus.cluster,
        pipeline=bus.pipeline,
        connections=served.connections,
        answers=served.answers,
        probe=served.probe,
        path=served.path,
        nodes=served.nodes,
        node_links=served.node_links,
        device_api=served.device_api,
        monitoring=monitoring,
        sampler=monitoring.sampler,
        watch=monitoring.watch,
        tracer=monitoring.tracer,
        domain_watch=DomainWatch(at.me.name, people.visitors, served.links),
        control=_control(at, sessions, held, bus.cluster, rooms),
        subsystems=rooms,
    )


# --- the rooms, in the order in which one needs another -------------------------------------------


def _sessions(at: Base) -> Sessions:
    limits: dict[str, Any] = settings.NODE
    of_sessions = options.session_settings()
    closed = options.closed_sessions()
    store = SessionStore(at.writer, at.me.name, at.me.epoch, closed, at.check)
    manager = SessionManager(of_sessions, at.table, store, at.alarms.raise_alarm)
    manager.steps.listeners.append(at.record.note_session)
    sockets = ConnectionLimits(
        limits["MAX_CONNECTIONS"],
        limits["MAX_CONNECTIONS_PER_SOURCE"],
        manager.is_source_banned,
    )
    return Sessions(of_sessions, manager, store, sockets)


def _holdings(at: Base, sessions: Sessions, domains: OtherDomains) -> Holdings:
    limits: dict[str, Any] = settings.NODE
    owners = LastOwnerCache()
    ownership = Ownership(at.table, owners, at.domain, settings.SHARE_RUNTIME_URL)
    addresses = AddressBudget(limits["MAX_ADDRESSES_PER_SOURCE"])
    allocation = AllocationComponent(
        at.table,
        AllocationStore(at.writer),
        at.domain,
        AllocationLimits(
            limits["MAX_ADDRESSES_PER_REQUEST"],
            limits["MAX_ALLOCATIONS_PER_SESSION"],
            settings.VISITORS["ADDRESSES"],
        ),
        owners,
        addresses,
        at.alarms.watch_pool,
    )
    subscriptions = SubscriptionComponent(
        at.table,
        SubscriptionStore(at.writer),
        at.domain,
        allocation,
        ownership,
        SubscriptionLimits(
            limits["MAX_SUBSCRIPTIONS_PER_SESSION"], limits["MAX_ADDRESSES_PER_REQUEST"]
        ),
        addresses,
        domains.observers,
    )
    return Holdings(allocation, subscriptions, owners, ownership, addresses)


def _policy(at: Base, manager: SessionManager, held: Holdings) -> PolicyService:
    return PolicyService(
        at.table,
        at.writer,
        at.alarms.raise_alarm,
        partial(held.subscriptions.listening, manager.sessions),
        held.subscriptions.of,
        held.subscriptions.end,
        manager.missed,
        send_task,
    )


def _people(
    at: Base, sessions: Sessions, held: Holdings, policy: PolicyService, ports: Ports
) -> People:
    manager = sessions.manager
    timeout = IdentifyTimeout(manager, settings.IDENTITY["IDENTIFY_TIMEOUT"])
    of_invitations = invitations(at, manager, held.subscriptions, policy.enforcer, timeout)
    identities = IdentityService(
        at.table,
        manager,
        at.writer,
        sessions.sockets.connections,
        policy.decide_again_for,
        at.alarms,
        timeout,
        IdentitySources(
            ports.provider(EmbeddedProvider(), at.domain),
            of_invitations.guests,
            of_invitations.answer,
            at.others.find_identity,
        ),
    )
    visitors = _visitors(manager, held.subscriptions, identities)
    rooms = (
        *of_invitations.subsystems,
        Subsystem(
            jobs=lambda: [every(1.0, timeout.look, "session")],
            handlers=identities.control_handlers(),
            close=identities.stop,
        ),
        Subsystem(
            jobs=lambda: [every(1.0, visitors.look, "visitors")],
            metrics=partial(peer_figures.visitors, visitors),
        ),
    )
    return People(identities, visitors, rooms)


def _visitors(
    manager: SessionManager, subscriptions: SubscriptionComponent, identities: IdentityService
) -> Visitors:
    """Build the limits of runtimes of other domains, which observe every session."""
    limits = settings.VISITORS

    def end(session: LiveSession, code: int, text: str) -> None:
        why = f"the visit is over: {text}"
        manager.end(session, code, why, told=why)

    visitors = Visitors(
        VisitorLimits(
            limits["TOTAL"],
            limits["PER_DOMAIN"],
            limits["PER_SOURCE"],
            limits["IDLE_SECONDS"],
            limits["SECONDS"],
        ),
        home_domain(settings.DOMAIN),
        identities.authenticator.modes.refuses,
        subscriptions.of,
        end,
    )
    manager.on_identified.append(visitors.entered)
    manager.on_closed.append(visitors.closed)
    manager.on_handed_off.append(visitors.left)
    return visitors


def _registries(at: Base, held: Holdings, instead: Ports) -> Registries:
    return Registries(
        at.domain,
        settings.REGISTRY,
        control.post,
        held.ownership,
        at.writer.submit,
        held.addresses,
        EmbeddedRegistry(at.check, at.lease.refused),
        instead,
    )


def _qos(
    at: Base, policy: PolicyService, broker: Callable[[ReservationStore], Instead]
) -> QosService:
    notices = Notices(f"domain://qos.{at.domain}", "qos", policy.enforcer, at.record.recorder)
    return QosService(
        at.domain,
        settings.QOS,
        ReservationFence(at.me.epoch, at.check, at.lease.refused),
        settings.NODE["GRACE_PERIOD"],
        Notifier(notices, at.table, at.others.holders),
        at.alarms,
        at.record.note_session,
        broker,
    )


def _listen(
    manager: SessionManager, held: Holdings, registries: Registries, people: People
) -> None:
    """Have the rooms hear what becomes of sessions."""
    identities = people.identities
    for part in (held.allocation, held.subscriptions, registries.domain, identities):
        manager.on_closed.append(part.session_closed)
    manager.on_identified.append(identities.session_identified)
    manager.on_handed_off.append(identities.session_handed_off)
    manager.on_handed_off.append(registries.domain.session_handed_off)


# --- what carries messages ------------------------------------------------------------------------


def _bus(
    at: Base,
    sessions: Sessions,
    held: Holdings,
    policy: PolicyService,
    people: People,
    domains: OtherDomains,
    components: Sequence[Component],
) -> Bus:
    manager, others = sessions.manager, at.others
    book = ComponentBook(components, at.table, held.subscriptions)
    guard = ResponseGuard(at.table, settings.STRICT_RESPONSES, manager.missed)
    liveness = LivenessChecks(manager, others.ask_worker)
    bounces = Bounces(at.domain, at.table, book, others.holders, domains.peers)
    cluster = _cluster(at, sessions, held, policy, people, guard, liveness, bounces)
    locator = SessionLocator(manager, at.table, others.holders, cluster.fetch)
    handshake = SessionHandshake(
        sessions.settings,
        manager,
        sessions.store,
        Known(sessions.settings, at.table, held.owners, manager.sessions),
        locator,
        liveness,
        Rivals(at.table, locator.ask_others, sessions.settings.shares, others.findable),
        RuntimeChecks(people.identities.authorize_runtime, people.visitors.check),
    )
    authorizer = SessionAuthorizer(
        at.table,
        handshake,
        people.identities.authenticator,
        held.ownership,
        others.holders,
    )
    pipeline = Pipeline(
        Routing(at.domain, at.table, book, others.holders, domains.peers),
        authorizer,
        handshake,
        policy.enforcer,
        at.record.recorder,
        Replies(policy.enforcer, ANSWER_TIMEOUT, *others.of_answers),
        guard,
        at.lease,
    )
    return Bus(guard, cluster, handshake, pipeline)


def _cluster(
    at: Base,
    sessions: Sessions,
    held: Holdings,
    policy: PolicyService,
    people: People,
    guard: ResponseGuard,
    liveness: LivenessChecks,
    bounces: Bounces,
) -> Cluster | LoneWorker:
    """Build the life of a worker among others, or without any."""
    if at.others.network is None:
        return LoneWorker(at.me, at.lease)
    from msgnode.workers.cluster import Cluster
    from msgnode.workers.moving_sessions import OwnSessions

    own = OwnSessions(
        sessions.settings,
        at.table,
        sessions.manager,
        sessions.store,
        held.allocation,
        held.subscriptions,
        people.identities,
        guard,
    )
    counters = {"policies": policy.enforcer.information.rates}
    raise_alarm = at.alarms.raise_alarm
    return Cluster(
        at.others.network, own, counters, bounces.bounce, raise_alarm, liveness, at.lease
    )


def _probe_endpoint(
    at: Base, handshake: SessionHandshake, manager: SessionManager
) -> ProbeEndpoint:
    """Build the endpoint with which a worker tests its own message path.

    Its messages use the routing table only: no policies, no record.
    """
    pipeline = Pipeline(
        Routing(at.domain, at.table, ComponentBook(())),
        ProbeAuthorizer(),
        handshake,
        NoPolicies(),
        NoRecord(),
        Replies(NoPolicies(), ANSWER_TIMEOUT, at.others.barrier),
        ResponseGuard(at.table, is_strict=False, missed=manager.missed),
    )
    return ProbeEndpoint(at.domain, settings.SECRET_KEY, at.table, pipeline.carry)


def _path_probe(at: Base, probe: ProbeEndpoint) -> PathProbe:
    """Build the client, which sends probes regularly and raises an alarm if one is not answered."""
    limits: dict[str, Any] = settings.NODE
    return PathProbe(
        probe,
        at.table,
        at.writer,
        at.me.name,
        at.alarms,
        ProbeSettings(
            every=limits["PROBE_INTERVAL"],
            timeout=limits["PROBE_TIMEOUT"],
            worker_timeout=limits["WORKER_TIMEOUT"],
            shares_port=settings.WORKERS > 1,
        ),
    )


def _served(
    at: Base, sessions: Sessions, people: People, domains: OtherDomains, bus: Bus
) -> Served:
    """Build what connections come from: sockets, the node itself, peers, brokers, devices."""
    answers = AnswerBudget()
    names_runtime = bool(people.identities.authenticator.modes.default)
    of_connections = options.connection_settings(answers, names_runtime)
    connections = ConnectionParts(
        bus.pipeline.carry, sessions.manager, bus.handshake, sessions.sockets, of_connections
    )
    probe = _probe_endpoint(at, bus.handshake, sessions.manager)
    path = _path_probe(at, probe)
    peers = domains.serve(connections, bus.guard)
    prove = people.identities.async_verifier.prove
    of_devices = devices(at, sessions, connections, prove, bus.cluster)
    rooms = (
        Subsystem(drain=path.stop, fence=path.stop),
        *mqtt_connector(at, connections),
        *peers.subsystems,
        *of_devices.subsystems,
    )
    return Served(
        connections,
        answers,
        probe,
        path,
        peers.links,
        peers.proofs,
        peers.endpoint,
        of_devices.application,
        rooms,
    )


# --- what is called of them in a worker's life ----------------------------------------------------


def _session_rooms(
    at: Base, manager: SessionManager, policy: PolicyService, cluster: Cluster | LoneWorker
) -> Iterator[Subsystem]:
    hang_ups = HangUps(
        at.domain, manager, at.table, policy.enforcer, at.record.recorder, at.others.holders
    )
    yield Subsystem(
        jobs=lambda: [
            every(1.0, manager.expire_in_turns, "expiry"),
            every(1.0, hang_ups.look, "hang-ups"),
            watch_reports(),
        ]
    )
    yield Subsystem(
        load=policy.load,
        jobs=lambda: [policy.watch(), policy.write()],
        close=policy.close,
        handlers={"policies.published": policy.published},
    )
    if not isinstance(cluster, LoneWorker):
        yield Subsystem(metrics=partial(collector.other_workers, cluster))


def _worker_rooms(at: Base, sockets: ConnectionLimits) -> Iterator[Subsystem]:
    """What an operator orders of workers as such, and what several do among themselves."""

    def restart(payload: dict[str, Any]) -> None:
        if payload["epoch"] == at.me.epoch:
            os.kill(at.me.pid, signal.SIGTERM)

    yield Subsystem(handlers={"worker.restart": restart, EVEN: _passed_over})
    if settings.REDIS_URL:
        every = 2 * settings.NODE["WORKER_TIMEOUT"] / 3  # figures are stored with each renewal
        rebalancing = Rebalancing(at.me.epoch, sockets, every)
        yield Subsystem(serve=lambda: [rebalancing.run()], handlers={EVEN: rebalancing.ask})


def _registry_rooms(
    at: Base, policy: PolicyService, registries: Registries, qos: QosService, scripts: Scripts
) -> Iterator[Subsystem]:
    news = RegistrationNews(at.domain, at.table, policy.enforcer, at.record.recorder)
    yield Subsystem(
        jobs=registries.jobs,
        handlers={registration_news.KIND: news.tell},
        close=registries.stop,
    )
    yield Subsystem(
        jobs=qos.jobs,
        state=lambda: ("" if qos.state == "off" else "qos", qos.state),
        metrics=partial(connector_figures.qos, qos),
        close=qos.stop,
    )
    yield Subsystem(
        load=scripts.load,
        start=scripts.start,
        jobs=scripts.jobs,
        handlers=scripts.handlers(),
        state=lambda: scripts.state,
        metrics=scripts.metrics,
        close=scripts.stop,
    )


def _control(
    at: Base,
    sessions: Sessions,
    held: Holdings,
    cluster: Cluster | LoneWorker,
    rooms: Sequence[Subsystem],
) -> ControlReader:
    """Build the reader of changes made by processes that are not workers."""
    orders = ControlHandlers(
        sessions.manager,
        sessions.sockets,
        held.allocation,
        held.subscriptions,
        held.owners,
        at.writer,
        cluster.orders,
    )
    handlers: dict[str, Handler] = {
        **dict.fromkeys(
            (PEERS_CHANGED, PEERS_DIAL, PEERS_RESTART, TOPICS_CHANGED, INVITATION_LEFT),
            _passed_over,
        ),
        **orders.handlers(),
    }
    for room in rooms:
        handlers |= room.handlers
    return ControlReader(at.writer, handlers)


def _passed_over(payload: dict[str, Any]) -> None:
    """Ignore a change of a room that this worker does not have."""
