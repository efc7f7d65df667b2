"""A peer's stub, and the limits of its link. Frozen values."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from .peer_queue import PeerQueue
from .sandbox import SandboxLimits
from .stub_progress import LIVE_SECONDS
from .stub_sockets import SocketLimits

STARTS_AT_ONCE = 4
"""Most sandboxes of a worker that start at the same time; fifty together would all be slow."""


@dataclass(frozen=True, slots=True)
class PeerStub:
    """A peer that is served, and its stub.

    Attributes:
        domain: the peer's domain.
        stub_url: the runtime URL of its session here.
        runtime_url: this node's runtime URL there.
        digest, source, configuration: of its stub.
        hosts: the hosts that the stub may connect to.
    """

    domain: str
    stub_url: str
    runtime_url: str
    digest: str
    source: str
    configuration: dict[str, Any]
    hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The limits of one peer; `starts` limits how many sandboxes of this worker start at a time.

    `idle_seconds`: after which a stub that is not needed stops. `live_seconds`: in which it has to
    be live (stub_progress.py).
    """

    sandbox: SandboxLimits
    sockets: SocketLimits
    queue_messages: int
    queue_bytes: int
    stored_seconds: float
    idle_seconds: float = 600.0
    live_seconds: float = LIVE_SECONDS
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS_AT_ONCE))

    def queue(self) -> PeerQueue:
        """Make the queue of a peer."""
        return PeerQueue(self.queue_messages, self.queue_bytes, stored_seconds=self.stored_seconds)
