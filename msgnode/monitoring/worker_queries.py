"""Queries of the other workers, for a scrape or a page.

They return metrics and watched messages. The querying functions block: they are for threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from msgnode.core.faults import FAULTS
from msgnode.monitoring.collector import Family, families
from msgnode.monitoring.domain_watch import DomainFigures
from msgnode.monitoring.measured_node import MeasuredNode
from msgnode.monitoring.sampler import WorkerFigures
from msgnode.monitoring.samples import Sample
from msgnode.monitoring.tracer import TraceFilter, TracesTold
from msgnode.monitoring.watched_sessions import SessionFigures, SessionRates, WatchedSessions
from msgnode.workers.lone import NobodyToAsk
from msgnode.workers.rpc import MAX_BYTES, WorkerRpc
from policies.authoring import live_messages

T = TypeVar("T")
Rpc = WorkerRpc | NobodyToAsk

_METRICS, _PASSING, _FIGURES, _SESSIONS = "metrics", "passing", "figures", "sessions"
_SAMPLE, _TRACES, _DOMAINS, _RATES = "sample", "traces", "domains", "rates"


_here: tuple[WatchedSessions, Rpc] | None = None


class _Watch(msgspec.Struct):
    seconds: float
    enough: int


class _Look(msgspec.Struct):
    sessions: list[str]
    is_whole: bool


class _Rates(msgspec.Struct):
    sessions: list[str]
    by: str
    most: int


class _Traces(msgspec.Struct):
    wanted: TraceFilter
    after: dict[str, int]


def answers(node: MeasuredNode) -> dict[str, Callable[[bytes], Awaitable[bytes]]]:
    """What this worker answers, by the kind of question."""

    async def metrics(_: bytes) -> bytes:
        return await asyncio.to_thread(lambda: msgspec.msgpack.encode(families(node)))

    async def passing(text: bytes) -> bytes:
        watch = msgspec.msgpack.decode(text, type=_Watch)
        seconds = min(watch.seconds, live_messages.SECONDS)
        seen = await asyncio.to_thread(live_messages.messages_here, seconds, watch.enough)
        return msgspec.msgpack.encode(_that_fit(map(msgspec.json.encode, seen)))

    async def figures(text: bytes) -> bytes:
        step = msgspec.msgpack.decode(text, type=int)
        return msgspec.msgpack.encode(node.sampler.figures(step))

    async def sessions(text: bytes) -> bytes:
        look = msgspec.msgpack.decode(text, type=_Look)
        return msgspec.msgpack.encode(node.watch.ask(look.sessions, look.is_whole))

    async def sample(_: bytes) -> bytes:
        return msgspec.msgpack.encode(list(node.sampler.rings.seconds)[-1:])

    async def traces(text: bytes) -> bytes:
        asked = msgspec.msgpack.decode(text, type=_Traces)
        after = asked.after.get(node.worker, -1)
        return msgspec.msgpack.encode(node.tracer.ask(asked.wanted, after))

    async def domains(_: bytes) -> bytes:
        return msgspec.msgpack.encode(node.domain_watch.ask())

    async def rates(text: bytes) -> bytes:
        look = msgspec.msgpack.decode(text, type=_Rates)
        asked = look.sessions, look.by, look.most
        return msgspec.msgpack.encode(await asyncio.to_thread(node.watch.rates, *asked))

    return {
        _METRICS: metrics,
        _PASSING: passing,
        _FIGURES: figures,
        _SESSIONS: sessions,
        _SAMPLE: sample,
        _TRACES: traces,
        _DOMAINS: domains,
        _RATES: rates,
    }


def metrics(rpc: Rpc, seconds: float) -> dict[str, list[Family] | None]:
    """The numbers of the other workers by their names, None of one that did not answer in time."""
    return _read(rpc.ask_from_thread(_METRICS, seconds=seconds), list[Family])


async def figures(rpc: Rpc, step: int, seconds: float) -> dict[str, WorkerFigures | None]:
    """What the other workers do now by their names, None of one that did not answer in time.

    Args:
        rpc: asks them.
        step: seconds to which their samples are joined; 0 for the last sample alone.
        seconds: to wait at most.
    """
    return _read(await rpc.ask(_FIGURES, msgspec.msgpack.encode(step), seconds), WorkerFigures)


async def samples(rpc: Rpc, seconds: float) -> dict[str, list[Sample] | None]:
    """The last sample of the other workers by their names, None of one that did not answer."""
    return _read(await rpc.ask(_SAMPLE, seconds=seconds), list[Sample])


async def sessions(
    rpc: Rpc, ids: list[str], is_whole: bool, seconds: float
) -> dict[str, list[SessionFigures] | None]:
    """The figures of sessions at the other workers, by the workers' names.

    Args:
        rpc: queries the workers.
        ids: the sessions.
        is_whole: all seconds that are kept, not only the last.
        seconds: most seconds to wait; None for a worker that has not answered by then.
    """
    text = msgspec.msgpack.encode(_Look(ids, is_whole))
    return _read(await rpc.ask(_SESSIONS, text, seconds), list[SessionFigures])


async def traces(
    rpc: Rpc, wanted: TraceFilter, after: dict[str, int], seconds: float
) -> dict[str, TracesTold | None]:
    """The traces of the other workers, by their names; they continue tracing what is wanted.

    Args:
        rpc: queries the workers.
        wanted: which messages.
        after: the number of the last trace received from each, by its name.
        seconds: most seconds to wait; None for a worker that has not answered by then.
    """
    text = msgspec.msgpack.encode(_Traces(wanted, after))
    return _read(await rpc.ask(_TRACES, text, seconds), TracesTold)


async def domains(rpc: Rpc, seconds: float) -> dict[str, DomainFigures | None]:
    """What passes to and from other domains at the other workers, None if one did not answer."""
    return _read(await rpc.ask(_DOMAINS, seconds=seconds), DomainFigures)


def show_in_pages(watch: WatchedSessions, rpc: Rpc) -> None:
    """The pages of this process show what this worker tells, and what the others do.

    The web process and commands have no worker.
    """
    global _here
    _here = watch, rpc


def rates(ids: list[str], by: str, most: int, seconds: float) -> list[SessionRates]:
    """What sessions of all workers do now, as far as the workers answer in time.

    Args:
        ids: the sessions, if they are known.
        by: else those with the highest figure of this name; "" where ids are given.
        most: how many of those, of each worker.
        seconds: to wait at most.
    """
    if _here is None:
        return []
    watch, rpc = _here
    own = watch.rates(ids, by, most)
    if ids and len(own) == len(ids):
        return own
    text = msgspec.msgpack.encode(_Rates(ids, by, most))
    told = _read(rpc.ask_from_thread(_RATES, text, seconds), list[SessionRates])
    return own + [each for answer in told.values() for each in answer or ()]


def passing(rpc: Rpc, seconds: float, enough: int) -> list[msgspec.Raw]:
    """The messages at the other workers within so many seconds, as JSON."""
    text = msgspec.msgpack.encode(_Watch(seconds, enough))
    told = _read(rpc.ask_from_thread(_PASSING, text, seconds + 1.0), list[bytes])
    return [msgspec.Raw(message) for answer in told.values() for message in answer or ()]


def _read(told: Mapping[str, bytes | None], type_: type[T]) -> dict[str, T | None]:
    """The workers' answers by their names, None of one that has none that can be read."""
    found: dict[str, T | None] = {}
    for worker, answer in told.items():
        try:
            found[worker] = msgspec.msgpack.decode(answer, type=type_) if answer else None
        except msgspec.DecodeError as error:
            FAULTS.note("worker link", error)
            found[worker] = None
    return found


def _that_fit(messages: map[bytes]) -> list[bytes]:
    """The first of them that one answer has room for."""
    room, kept = MAX_BYTES - 1024, []
    for message in messages:
        room -= len(message) + 8
        if room < 0:
            break
        kept.append(message)
    return kept
