"""What a peer is served with: its stub, and the limits of everything about it. Frozen values."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from .peer_queue import PeerQueue
from .sandbox import SandboxLimits
from .stub_sockets import SocketLimits

STARTS_AT_ONCE = 4
"""Sandboxes of a worker that start at the same time; fifty together would all be slow."""


@dataclass(frozen=True, slots=True)
class PeerStub:
    """A peer that is served, and its stub.

    Attributes:
        domain: of the peer.
        stub_url: the runtime URL of its session here.
        runtime_url: what this node is called there.
        digest, source, configuration: of the stub.
        hosts: that it may connect to.
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
    """Of one peer; `starts` lets so many sandboxes of this worker start at a time.

    `idle_seconds`: after which a stub ends that nobody needs.
    """

    sandbox: SandboxLimits
    sockets: SocketLimits
    queue_messages: int
    queue_bytes: int
    stored_seconds: float
    idle_seconds: float = 600.0
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS_AT_ONCE))

    def queue(self) -> PeerQueue:
        """One for what waits for a peer."""
        return PeerQueue(self.queue_messages, self.queue_bytes, stored_seconds=self.stored_seconds)
