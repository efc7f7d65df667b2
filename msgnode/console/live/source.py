"""Where a worker's feed gets its figures: from itself, the other workers and the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from django.db import DatabaseError, InterfaceError, close_old_connections
from django.urls import reverse
from django.utils.http import urlencode

from msgnode.core import database_limit
from msgnode.monitoring import worker_queries
from msgnode.monitoring.domain_watch import DomainFigures
from msgnode.monitoring.measured_node import MeasuredNode
from msgnode.monitoring.sampler import WorkerFigures
from msgnode.monitoring.tracer import TracesTold
from msgnode.monitoring.watched_sessions import Failure, SessionFigures, SessionSample

from . import access, domains, figures, traces
from .feed import LOOK_EVERY, OVERVIEW, Feed

if TYPE_CHECKING:
    from msgnode.workers.cluster import Cluster
    from msgnode.workers.lone import LoneWorker

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 0.8
"""Seconds that other workers are waited for."""
DATABASE_PATIENCE = 3.0
"""Seconds that the database is waited for, while the figures of everybody wait."""
KEPT = 20.0
"""Seconds for which a chart from the database is shown to all who ask for it."""
LENGTH = "session"
"""The one length that the charts of a session have: all seconds that are kept."""


class ShownNode(MeasuredNode, Protocol):
    """A worker that tells figures, and by which the others are asked; the node implements it."""

    @property
    def cluster(self) -> Cluster | LoneWorker:
        """By which the others are asked."""
        ...


class Source:
    """One a worker."""

    def __init__(self, node: ShownNode) -> None:
        self._node = node
        self._allowed = _in_a_thread(access.watchers_allowed)
        self._feed = Feed(self.now, _in_a_thread(figures.standing), self._allowed)
        self._told_traces: dict[str, dict[str, int]] = {}
        self._charts: dict[str, tuple[float, list[dict[str, Any]]]] = {}
        self._making = asyncio.Lock()
        self._rows: list[domains.PeerRow] = []
        self._rows_at = float("-inf")
        self._logged_out = access.on_log_out(self._feed.end_log_in)

    def close(self) -> None:
        """The worker stops."""
        self._feed.close()

    def wiring(self) -> dict[str, Any]:
        """What the consumer is made with."""
        return {"feed": self._feed, "history": self.history, "allowed": self._allowed}

    async def now(self, topics: set[str]) -> dict[str, dict[str, Any]]:
        """The figures of this second, by topic."""
        watched = {topic for topic in topics if topic.startswith(traces.TOPIC)}
        sessions = sorted(topics - watched - {OVERVIEW, domains.TOPIC})
        self._told_traces = {topic: self._told_traces.get(topic, {}) for topic in watched}
        found: dict[str, dict[str, Any]] = {}
        async with asyncio.TaskGroup() as group:
            tracing = {topic: group.create_task(self._traces(topic)) for topic in watched}
            looking = group.create_task(self._told_of(sessions, False)) if sessions else None
            mapping = group.create_task(self._domains()) if domains.TOPIC in topics else None
            if OVERVIEW in topics:
                told, missing = await self._told(0)
                found[OVERVIEW] = figures.now_of(told, missing, self._node.sampler.bounds)
        for topic, task in tracing.items():
            found[topic] = task.result()
        if mapping is not None:
            found[domains.TOPIC] = mapping.result()
        if looking is not None:
            of_sessions, missing = looking.result()
            for id_ in sessions:
                found[id_] = now_of(of_sessions.get(id_), missing)
        return found

    async def history(self, topic: str, length: str) -> list[dict[str, Any]]:
        """The points of a chart.

        Raises:
            KeyError: there is no such length.
            DatabaseError: it cannot be read.
        """
        if topic.startswith(traces.TOPIC):
            if length != traces.LENGTH:
                raise KeyError(length)
            return traces.history_of(await self._ask_traces(topic, {}))
        if topic == domains.TOPIC:
            raise KeyError(length)
        if topic != OVERVIEW:
            if length != LENGTH:
                raise KeyError(length)
            of_session, _ = await self._told_of([topic], True)
            return history_of(of_session.get(topic))
        step = figures.STEP[length]
        bounds = self._node.sampler.bounds
        if length == "minutes":
            told, _ = await self._told(step)
            return figures.history_of((each.samples for each in told), step, bounds)
        async with self._making:
            made, points = self._charts.get(length, (float("-inf"), []))
            if monotonic() - made > KEPT:
                read = _in_a_thread(figures.kept_history)
                points = await asyncio.to_thread(read, length, bounds)
                self._charts[length] = monotonic(), points
        return points

    async def _domains(self) -> dict[str, Any]:
        """What passes to and from other domains; their rows are read every two seconds."""
        told: dict[str, DomainFigures | None] = {self._node.worker: self._node.domain_watch.ask()}
        told |= await worker_queries.domains(self._node.cluster.rpc, PATIENCE)
        if monotonic() - self._rows_at >= LOOK_EVERY:
            self._rows_at = monotonic()
            with suppress(DatabaseError):  # the feed says that it is away; what was read stays
                self._rows = await asyncio.to_thread(_in_a_thread(domains.rows))
        return domains.now_of(told, self._rows)

    async def _traces(self, topic: str) -> dict[str, Any]:
        """What has been traced since the pages of a topic were told last."""
        after = self._told_traces[topic]
        told = await self._ask_traces(topic, after)
        after.update({name: each.number for name, each in told.items() if each is not None})
        return traces.now_of(told)

    async def _ask_traces(self, topic: str, after: dict[str, int]) -> dict[str, TracesTold | None]:
        wanted = traces.wanted_by(topic)
        own = self._node.tracer.ask(wanted, after.get(self._node.worker, -1))
        told: dict[str, TracesTold | None] = {self._node.worker: own}
        return told | await worker_queries.traces(self._node.cluster.rpc, wanted, after, PATIENCE)

    async def _told(self, step: int) -> tuple[list[WorkerFigures], list[str]]:
        """What all workers tell, and the names of those who do not."""
        own = self._node.sampler.figures(step)
        others = await worker_queries.figures(self._node.cluster.rpc, step, PATIENCE)
        missing = [name for name, told in others.items() if told is None]
        return [own, *(told for told in others.values() if told is not None)], missing

    async def _told_of(
        self, ids: list[str], is_whole: bool
    ) -> tuple[dict[str, SessionFigures], list[str]]:
        """Those of the sessions that some worker has, and the workers that do not answer."""
        told = {each.session: each for each in self._node.watch.ask(ids, is_whole)}
        if len(told) == len(ids):
            return told, []
        rest = [id_ for id_ in ids if id_ not in told]
        others = await worker_queries.sessions(self._node.cluster.rpc, rest, is_whole, PATIENCE)
        for sessions in others.values():
            told.update((each.session, each) for each in sessions or ())
        return told, [name for name, sessions in others.items() if sessions is None]


def _in_a_thread(call: Callable[P, T]) -> Callable[P, T]:
    """What asks the database, for a thread of its own: no old connection is left behind."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        close_old_connections()
        try:
            with database_limit.at_most(DATABASE_PATIENCE):
                return call(*args, **kwargs)
        except InterfaceError as error:  # Django's only error of the database that is no such one
            raise DatabaseError(str(error)) from error
        finally:
            close_old_connections()

    return called


def now_of(told: SessionFigures | None, missing: list[str]) -> dict[str, Any]:
    """The figures of this second.

    Args:
        told: by the worker that has the session, None if none has said so.
        missing: names of workers that did not answer.
    """
    if told is None:
        return {"session": None, "missing": missing}
    return {
        "session": {
            "state": told.state,
            "worker": told.worker,
            "is_held_back": told.is_held_back,
            "is_behind": told.is_behind,
            "totals": dict(
                zip(
                    ("messages_in", "bytes_in", "messages_out", "bytes_out"),
                    told.totals,
                    strict=True,
                )
            ),
            "now": point(told.samples[-1]) if told.samples else None,
            "failures": [_failure(each, told.session) for each in reversed(told.failures)],
        },
        "missing": missing,
    }


def history_of(told: SessionFigures | None) -> list[dict[str, Any]]:
    """The points of the charts: one a second."""
    return [point(sample) for sample in told.samples] if told is not None else []


def point(sample: SessionSample) -> dict[str, Any]:
    """A sample as rates a second."""
    seconds = sample.seconds or 1.0
    return {
        "at": round(sample.at, 1),
        "messages": round(sample.messages_in / seconds, 1),
        "copies": round(sample.messages_out / seconds, 1),
        "bytes_in": round(sample.bytes_in / seconds),
        "bytes_out": round(sample.bytes_out / seconds),
        "failed": round(sample.failed / seconds, 1),
        "waiting": sample.waiting,
    }


def _failure(failure: Failure, session: str) -> dict[str, Any]:
    """A failure, with the way to what explains it: what the rule that refused has decided."""
    url = ""
    if failure.rule:
        decisions = reverse("admin:policies_decisionentry_changelist")
        url = f"{decisions}?{urlencode({'q': failure.rule, 'session': session})}"
    return {
        "at": failure.at,
        "type": failure.type,
        "to": failure.to,
        "outcome": failure.outcome,
        "code": failure.code,
        "rule": failure.rule,
        "count": failure.count,
        "url": url,
    }
