"""One room of a worker as its life cycle sees it: what is called of it, and when.

`worker` walks one list of them. What a room does not name does nothing; a room that is switched
off is not in the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import Metric

from msgnode.bus.ports import ComponentInfo
from msgnode.storage.control import Handler

Jobs = Callable[[], Iterable[Coroutine[Any, Any, None]]]
Step = Callable[[], Awaitable[None]]


def nothing() -> None:
    """Do nothing."""


async def no_step() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsystem:
    """What a worker calls of a room, in the order of its life.

    Attributes:
        load: reads what the room keeps in the database. Blocks, in a thread.
        start: on the event loop, when everything is loaded.
        jobs: what runs as long as the worker.
        serve: what also does, once the worker is ready.
        handlers: of control messages, by kind.
        infos: the lines of its connectors in the console.
        state: of its connector for the health page, by name; "" to say nothing.
        metrics: its metrics. From any thread, while the event loop runs.
        refuse: accepts no newcomers any more.
        drain: ends its connections, before all sockets are closed.
        stop: ends what works for sessions, before these are handed over.
        close: ends what was needed until the last session had gone.
        abort: ends at once because the lease is lost, before all sockets are closed.
        fence: ends the rest then, within a second.
    """

    load: Callable[[], None] = nothing
    start: Step = no_step
    jobs: Jobs = tuple
    serve: Jobs = tuple
    handlers: Mapping[str, Handler] = field(default_factory=dict)
    infos: Callable[[], Iterable[ComponentInfo]] = tuple
    state: Callable[[], tuple[str, str]] = lambda: ("", "")
    metrics: Callable[[], Iterator[Metric]] = lambda: iter(())
    refuse: Callable[[], None] = nothing
    drain: Step = no_step
    stop: Step = no_step
    close: Step = no_step
    abort: Callable[[], None] = nothing
    fence: Step = no_step


async def until_stopped(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a job that may be stopped on its own, which must not count as a failure."""
    await run()
    await asyncio.Event().wait()
