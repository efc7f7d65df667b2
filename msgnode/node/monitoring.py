"""Builds the parts that monitor a worker and report to operators."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings

from msgnode.bus.pipeline import Pipeline
from msgnode.bus.ports import Component, ComponentInfo
from msgnode.bus.recording import CountingRecorder
from msgnode.core.faults import FAULTS
from msgnode.core.record import Outcome
from msgnode.monitoring import alarm_rules, worker_queries
from msgnode.monitoring.alarm_rules import AlarmRules
from msgnode.monitoring.background_programs import BackgroundPrograms
from msgnode.monitoring.connector_figures import StatusReport
from msgnode.monitoring.fault_alarms import FaultAlarms
from msgnode.monitoring.otlp import OtlpExport
from msgnode.monitoring.sampler import Sampled, Sampler
from msgnode.monitoring.samples import Sample
from msgnode.monitoring.tail import Tail
from msgnode.monitoring.talkers import Talkers
from msgnode.monitoring.taps import Taps
from msgnode.monitoring.tracer import Tracer
from msgnode.monitoring.watched_sessions import WatchedSessions
from msgnode.policy.service import PolicyService
from msgnode.sessions.handshake import SessionHandshake
from msgnode.sessions.manager import SessionManager
from msgnode.storage.claims import WorkerClaim
from msgnode.workers.lone import LoneWorker

from .base import Base
from .subsystem import Subsystem

if TYPE_CHECKING:
    from msgnode.workers.cluster import Cluster

_AT_ONCE = 2_000
"""Sessions that are counted in one turn of the loop, because very many would delay messages."""


class Monitoring:
    """One instance per worker.

    Args:
        sampled: the parts that current figures are sampled from.
        pipeline: the pipeline whose messages are watched and traced.
        cluster: the other workers.
        policy: explains its decisions on them.
        infos: the current state of every component, connector and protostub.
    """

    def __init__(
        self,
        base: Base,
        sampled: Sampled,
        pipeline: Pipeline,
        cluster: Cluster | LoneWorker,
        policy: PolicyService,
        infos: Callable[[], Awaitable[list[ComponentInfo]]],
    ) -> None:
        self._rpc = cluster.rpc
        me, writer, alarms = base.me, base.writer, base.alarms
        tracing, export = settings.TRACING, None
        if tracing["ENDPOINT"]:
            export = OtlpExport(tracing["ENDPOINT"], settings.DOMAIN, me.name)
        self._export = export
        self.tracer = Tracer(
            pipeline,
            me.name,
            policy.shown,
            policy.explain,
            tracing["RATIO"],
            export.export if export is not None else None,
            export.sent if export is not None else None,
        )
        cluster.watch(self.tracer)
        taps = Taps(pipeline.watch)
        talkers = Talkers(partial(taps.put, "talkers"))
        sessions = sampled.sessions.sessions
        self.watch = WatchedSessions(sessions, me.name, partial(taps.put, "sessions"))
        self.sampler = Sampler(sampled, me.name, writer, talkers, self.watch)
        self.alarm_rules = AlarmRules(
            self._samples,
            WorkerClaim("alarm rules", me.epoch, writer),
            writer,
            self.sampler.bounds,
            settings.DATA_DIR,
        )
        self.tail = Tail(settings.DATA_DIR, me.name, partial(taps.put, "tail"))
        set_ups = SetUpsInfo(sampled.recorder)

        async def components() -> list[ComponentInfo]:
            return [*await infos(), set_ups.update()]

        self._status = StatusReport(writer, me.name, components)
        self._faults = FaultAlarms(FAULTS, me.name, alarms.raise_alarm, alarms.clear_alarm)
        self.programs = BackgroundPrograms(
            settings.DATA_DIR, alarms.raise_alarm, alarms.clear_alarm
        )

    def subsystem(self) -> Subsystem:
        """What the worker calls of it."""
        return Subsystem(
            start=self._start,
            jobs=self._jobs,
            handlers={alarm_rules.CHANGED: self.alarm_rules.changed},
            stop=self._stop,
            fence=self._stop,
        )

    def _jobs(self) -> list[Coroutine[Any, Any, None]]:
        jobs = (self._status, self._faults, self.programs, self.sampler, self.alarm_rules)
        return [each.run() for each in jobs]

    async def _start(self) -> None:
        await self.tail.start()
        self.tracer.start()

    async def _stop(self) -> None:
        await self.tail.stop()
        if self._export is not None:
            await asyncio.to_thread(self._export.close)

    async def _samples(self) -> tuple[list[Sample], bool]:
        """The last sample of each worker that answers, and whether all do."""
        told = list(self.sampler.rings.seconds)[-1:]
        others = await worker_queries.samples(self._rpc, seconds=1.0)
        for samples in others.values():
            told += samples or ()
        return told, None not in others.values()


class SetUpsInfo:
    """The P2P connection set-ups: how many invitations reached a runtime, and how many did not."""

    def __init__(self, recorder: CountingRecorder) -> None:
        self._recorder = recorder
        address = f"domain://msg-node.{settings.DOMAIN}/p2p"
        self._info = ComponentInfo("P2P set-ups", "component", address)

    def update(self) -> ComponentInfo:
        """Its current state, for the console."""
        counts = self._recorder.invitations
        answered = counts.get(Outcome.DELIVERED, 0)
        failed = sum(counts.values()) - answered
        return replace(self._info, answered=answered, failed=failed)


async def infos(
    domain: str,
    handshake: SessionHandshake,
    sessions: SessionManager,
    components: Iterable[Component],
    subsystems: Iterable[Subsystem],
) -> list[ComponentInfo]:
    """The state of every component, connector and protostub, for the operator."""
    connected = Counter({"ws": 0, "stub-connect": 0})
    every = list(sessions.sessions.values())
    for start in range(0, len(every), _AT_ONCE):
        some = every[start : start + _AT_ONCE]
        connected.update(each.handshake for each in some if each.is_connected)
        await asyncio.sleep(0)
    stubs = [
        ComponentInfo(
            f"protostub {kind}",
            "protostub",
            f"ws://{domain}/{path}",
            f"{connected[kind]} connected",
            handshake.info.since,
            connected[kind],
        )
        for kind, path in (("ws", "ws"), ("stub-connect", "stub/connect"))
    ]
    connectors = [info for each in subsystems for info in each.infos()]
    return [handshake.info, *(each.update_info() for each in components), *connectors, *stubs]
