"""The interface of a worker to the collector of its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import Metric

if TYPE_CHECKING:
    from msgnode.bus.recording import CountingRecorder
    from msgnode.bus.response_guard import ResponseGuard
    from msgnode.bus.table import RoutingTable
    from msgnode.identity.service import IdentityService
    from msgnode.monitoring.domain_watch import DomainWatch
    from msgnode.monitoring.sampler import Sampler
    from msgnode.monitoring.tracer import Tracer
    from msgnode.monitoring.watched_sessions import WatchedSessions
    from msgnode.sessions.budgets import AnswerBudget
    from msgnode.sessions.connection_limits import ConnectionLimits
    from msgnode.sessions.manager import SessionManager
    from msgnode.storage.writer import GroupWriter
    from msgnode.workers.lease import Lease


class Evaluating(Protocol):
    """The policy enforcer: how often it has evaluated a decision."""

    @property
    def evaluated(self) -> int:
        """Decisions that were not answered from a cache."""
        ...


class Measured(Protocol):
    """A part of a worker that has metrics of its own."""

    @property
    def metrics(self) -> Callable[[], Iterator[Metric]]:
        """Returns them; called from any thread."""
        ...


class MeasuredNode(Protocol):
    """The parts of a worker that are measured; the node implements it."""

    @property
    def sessions(self) -> SessionManager:
        """Their states, queues and steps."""
        ...

    @property
    def sockets(self) -> ConnectionLimits:
        """Connections, with and without a session."""
        ...

    @property
    def answers(self) -> AnswerBudget:
        """Pending answers, and those refused for lack of room."""
        ...

    @property
    def table(self) -> RoutingTable:
        """How large its parts are."""
        ...

    @property
    def writer(self) -> GroupWriter:
        """Commits, their durations, and the backlog."""
        ...

    @property
    def recorder(self) -> CountingRecorder:
        """Messages by type and outcome, and how long they took."""
        ...

    @property
    def identities(self) -> IdentityService:
        """Logged-in subjects, and verifications."""
        ...

    @property
    def enforcer(self) -> Evaluating:
        """Decisions of the policies."""
        ...

    @property
    def guard(self) -> ResponseGuard:
        """The guard that drops responses nobody has asked for."""
        ...

    @property
    def domain_watch(self) -> DomainWatch:
        """What passes to and from other domains."""
        ...

    @property
    def subsystems(self) -> Sequence[Measured]:
        """The other parts of it, each with its metrics."""
        ...

    @property
    def lease(self) -> Lease:
        """How old it is, and how often it could not be renewed."""
        ...

    @property
    def times_fenced(self) -> int:
        """How often this process has lost a lease and begun again."""
        ...

    @property
    def sampler(self) -> Sampler:
        """What the last seconds were like."""
        ...

    @property
    def watch(self) -> WatchedSessions:
        """What single sessions do."""
        ...

    @property
    def worker(self) -> str:
        """The name of this worker."""
        ...

    @property
    def tracer(self) -> Tracer:
        """Messages that were traced, and those that were too many."""
        ...
