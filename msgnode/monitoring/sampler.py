"""Samples this worker every second, and stores the samples of minutes and hours.

The cost of a sample does not depend on the number of sessions. Minutes are kept for a day, hours
for a month (KEPT), one row per worker and span; each write deletes some older ones.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import nlargest
from pathlib import Path
from time import monotonic, process_time, time
from typing import NamedTuple

import msgspec
from django.conf import settings

from msgnode import models
from msgnode.bus.periodic import every
from msgnode.bus.recording import CountingRecorder
from msgnode.bus.writing import Call, Writer
from msgnode.core.record import Outcome
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.manager import SessionManager

from .samples import HOUR, MINUTE, Rings, Sample
from .talkers import TOP, Talker, Talkers
from .watched_sessions import WatchedSessions

KEPT = {MINUTE: timedelta(hours=25), HOUR: timedelta(days=31)}
AT_ONCE = 2_000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CGROUPS = Path("/sys/fs/cgroup")
_REFUSED = (Outcome.BLOCKED, Outcome.REFUSED)
_LOST = (Outcome.UNDELIVERABLE, Outcome.DROPPED)


class Sampled(NamedTuple):
    """The parts of a worker that are sampled."""

    sessions: SessionManager
    sockets: ConnectionLimits
    recorder: CountingRecorder


class Reader(msgspec.Struct, array_like=True):
    """A session that does not keep up: bytes that wait for it."""

    runtime: str
    session: str
    waiting: int


class WorkerFigures(msgspec.Struct, array_like=True):
    """The current figures of a worker, as exchanged between workers and added by the console.

    samples    its seconds, merged to the requested spans; only the last sample if none were
    """

    worker: str
    samples: list[Sample]
    senders: list[Talker]
    addresses: list[Talker]
    readers: list[Reader]


class Sampler:
    """One a worker."""

    def __init__(
        self,
        node: Sampled,
        worker: str,
        writer: Writer,
        talkers: Talkers,
        watch: WatchedSessions,
    ) -> None:
        self._node = node
        self._worker = worker
        self._writer = writer
        self._talkers = talkers
        self._watch = watch
        self.rings = Rings()
        self._before = self._totals()
        self._at = monotonic()

    @property
    def bounds(self) -> tuple[float, ...]:
        """The limits that latencies are counted by."""
        return self._node.recorder.latencies.bounds

    async def run(self) -> None:
        """Runs until cancelled."""
        await every(1.0, self.take, "sample")

    def take(self) -> None:
        """Take a sample, and store completed minutes and hours."""
        self._talkers.turn()
        self._watch.turn()
        for span, sample in self.rings.add(self._sample()).items():
            self._writer.submit(Call(partial(self._save, span, sample)))

    def figures(self, step: int) -> WorkerFigures:
        """The current figures of this worker; keeps its talkers counted for a few seconds more."""
        senders, addresses = self._talkers.ask()
        samples = self.rings.recent(step) if step else list(self.rings.seconds)[-1:]
        return WorkerFigures(self._worker, samples, senders, addresses, self._readers())

    def _readers(self) -> list[Reader]:
        """The sessions with most queued bytes. None are checked while nothing is queued."""
        if not self._node.sessions.queues.bytes:
            return []
        waiting = [
            (size, session)
            for session in list(self._node.sessions.sessions.values())
            if (size := session.outbox.waiting_bytes)
        ]
        most = nlargest(TOP, waiting, key=lambda each: each[0])
        return [Reader(each.runtime_url, each.id, size) for size, each in most]

    def _totals(self) -> Sample:
        """The counts since the start, as a sample."""
        recorder = self._node.recorder
        by_outcome: dict[Outcome, int] = {}
        for (_, outcome), count in recorder.messages.items():
            by_outcome[outcome] = by_outcome.get(outcome, 0) + count
        return Sample(
            at=0.0,
            messages=sum(by_outcome.values()),
            copies=recorder.copies,
            bytes_in=recorder.bytes,
            bytes_out=recorder.bytes_out,
            refused=sum(by_outcome.get(outcome, 0) for outcome in _REFUSED),
            undeliverable=sum(by_outcome.get(outcome, 0) for outcome in _LOST),
            latencies=recorder.latencies.counts,
            cpu=process_time(),
        )

    def _sample(self) -> Sample:
        now, totals, before = monotonic(), self._totals(), self._before
        sample = Sample(
            at=time(),
            seconds=now - self._at,
            messages=totals.messages - before.messages,
            copies=totals.copies - before.copies,
            bytes_in=totals.bytes_in - before.bytes_in,
            bytes_out=totals.bytes_out - before.bytes_out,
            refused=totals.refused - before.refused,
            undeliverable=totals.undeliverable - before.undeliverable,
            latencies=[
                new - old for new, old in zip(totals.latencies, before.latencies, strict=True)
            ],
            cpu=totals.cpu - before.cpu,
            sockets=len(self._node.sockets.connections),
            sessions=len(self._node.sessions.sessions),
            waiting=self._node.sessions.queues.bytes,
            memory=_memory(),
        )
        self._before, self._at = totals, now
        return sample

    def _save(self, span: int, sample: Sample) -> None:
        at = datetime.fromtimestamp(-(-sample.at // span) * span, UTC)
        sample.machine = [*_machine_memory(), *_machine_disk()]
        rows = models.NodeSample.objects
        rows.update_or_create(
            worker=self._worker, span=span, at=at,
            defaults={"figures": msgspec.to_builtins(sample)},
        )  # fmt: skip
        old = rows.filter(span=span, at__lt=at - KEPT[span]).values_list("pk", flat=True)
        rows.filter(pk__in=list(old[:AT_ONCE])).delete()


def _machine_memory() -> tuple[int, int]:
    """The memory of this machine, or of the control group: bytes in all, and left; 0 if unknown."""
    found = {}
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            name, _, value = line.partition(":")
            found[name] = int(value.split()[0]) * 1024
    total, free = found.get("MemTotal", 0), found.get("MemAvailable", 0)
    with suppress(OSError, ValueError):  # "max" is no number: the group has no limit
        group = _CGROUPS / Path("/proc/self/cgroup").read_text("ascii").strip().rpartition(":/")[2]
        most = int(group.joinpath("memory.max").read_text("ascii"))
        used = int(group.joinpath("memory.current").read_text("ascii"))
        rows = group.joinpath("memory.stat").read_text("ascii").splitlines()
        used -= sum(int(row.split()[1]) for row in rows if row.startswith("inactive_file "))
        total, free = min(total or most, most), min(free or most, max(most - used, 0))
    return total, free


def _machine_disk() -> tuple[int, int]:
    """The file system of the data directory: bytes in all, and left; 0 if unknown. May block."""
    try:
        usage = shutil.disk_usage(settings.DATA_DIR)
    except OSError:
        return 0, 0
    return usage.total, usage.free


def _memory() -> int:
    """The memory of the process in bytes; 0 if the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (each second)
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
