"""A peer's stub and the limits of its link, and how a stub is loaded into a sandbox.

A stub that is to replace another is first tried, without a socket and without messages, so that one
that cannot be loaded replaces nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from . import pipe
from .peer_kinds import KINDS, UNKNOWN, PeerKind
from .peer_queue import PeerQueue
from .pipe import Loaded, LoadFailed, Said
from .sandbox import Sandbox, SandboxLimits, SandboxProcess
from .stub_sockets import SocketLimits
from .stub_status import LIVE_SECONDS

LOAD_SECONDS = 5.0
STARTS_AT_ONCE = 4
"""Most sandboxes of a worker that start at the same time; fifty together would all be slow."""
QUEUE_MESSAGES, QUEUE_BYTES = 10_000, 16 * 1024 * 1024
"""What may wait for one peer: some seconds of its rate. For 32 peers of a worker it is 512 MiB."""
IDLE_SECONDS = 600.0
"""Without a message or a subscription: a sandbox takes memory, and its next start is quick."""


@dataclass(frozen=True, slots=True)
class PeerStub:
    """A peer that is served, and its stub.

    Attributes:
        domain: the peer's domain.
        stub_url: the runtime URL of its session here.
        runtime_url: this node's runtime URL there.
        digest, source, configuration: of its stub.
        hosts: the hosts that the stub may connect to.
        kind: the kind of node that it leads to.
    """

    domain: str
    stub_url: str
    runtime_url: str
    digest: str
    source: str
    configuration: dict[str, Any]
    hosts: frozenset[str]
    kind: PeerKind = KINDS[UNKNOWN]


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The limits of one peer; `starts` limits how many sandboxes of this worker start at a time.

    `idle_seconds`: after which a stub that is not needed stops. `live_seconds`: in which it has to
    be live (stub_status.py).
    """

    sandbox: SandboxLimits
    sockets: SocketLimits
    queue_messages: int
    queue_bytes: int
    stored_seconds: float
    idle_seconds: float = IDLE_SECONDS
    live_seconds: float = LIVE_SECONDS
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS_AT_ONCE))

    def queue(self) -> PeerQueue:
        """Make the queue of a peer."""
        return PeerQueue(self.queue_messages, self.queue_bytes, stored_seconds=self.stored_seconds)


async def load(sandbox: Sandbox, stub: PeerStub, loaded: asyncio.Event) -> asyncio.Future[str]:
    """Start a sandbox with a stub; if it is not loaded in time, the sandbox is killed.

    Args:
        sandbox: the sandbox, not started yet.
        stub: the stub to load.
        loaded: set by whoever receives the sandbox's operations, when it is loaded.

    Returns:
        A future of the sandbox's end, with the reason.

    Raises:
        OSError: it does not start.
    """
    await sandbox.start()
    configuration = {**stub.configuration, "runtimeURL": stub.runtime_url}
    sandbox.send(pipe.load(stub.source, stub.stub_url, configuration))
    ended = asyncio.ensure_future(sandbox.ended())
    loading = asyncio.ensure_future(loaded.wait())
    first = asyncio.FIRST_COMPLETED
    await asyncio.wait({ended, loading}, timeout=LOAD_SECONDS, return_when=first)
    loading.cancel()
    if not loaded.is_set():
        sandbox.kill(f"it was not loaded within {LOAD_SECONDS:g} s")
    return ended


async def fault_of(stub: PeerStub, limits: LinkLimits) -> str:
    """Why a stub cannot be loaded, "" if it can. A sandbox that does not start is not its fault."""
    loaded = asyncio.Event()

    def said(what: Said) -> None:
        if isinstance(what, Loaded):
            loaded.set()
        elif isinstance(what, LoadFailed):
            sandbox.kill(f"it cannot be loaded: {what.error}")

    sandbox = SandboxProcess(limits.sandbox, said)
    ended: asyncio.Future[str] | None = None
    try:
        with suppress(OSError):
            async with limits.starts:
                ended = await load(sandbox, stub, loaded)
    finally:
        sandbox.kill("it was only tried")
    if ended is None:
        return ""
    why = await ended
    return "" if loaded.is_set() else pipe.shown(why)
