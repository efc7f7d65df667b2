"""What a peer is served with: its stub, and the limits of everything about it. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .sandbox import SandboxLimits
from .stub_sockets import SocketLimits


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
    """Of one peer."""

    sandbox: SandboxLimits
    sockets: SocketLimits
    queue_messages: int
    queue_bytes: int
    stored_seconds: float
