"""Federation: which nodes of other domains this node meets, and how (docs/federation.md)."""

from __future__ import annotations

from typing import Any

from .environment import env

FEDERATION: str = env("FEDERATION", default="off")
FEDERATION_SIGNED: bool = env.bool("FEDERATION_SIGNED", default=False)
FEDERATION_NETWORKS: list[str] = env.list("FEDERATION_NETWORKS", default=[])
PEERS: dict[str, Any] = {
    # peers that one worker may serve at a time; each costs a process
    "MAX_STUBS": env.int("FEDERATION_MAX_STUBS", default=32),
    "QUEUE_MESSAGES": env.int("FEDERATION_QUEUE_MESSAGES", default=10_000),
    "QUEUE_BYTES": env.int("FEDERATION_QUEUE_BYTES", default=16 * 1024 * 1024),
    # that are stored for one peer, and for how long
    "STORED_MESSAGES": env.int("FEDERATION_STORED_MESSAGES", default=1_000),
    "STORED_BYTES": env.int("FEDERATION_STORED_BYTES", default=4 * 1024 * 1024),
    "STORE_HOURS": env.float("FEDERATION_STORE_HOURS", default=24.0),
    "MESSAGES_PER_SECOND": env.int("FEDERATION_MESSAGES_PER_SECOND", default=2_000),
    # that a subscription at a peer outlives its last observer here
    "LINGER_SECONDS": env.float("FEDERATION_LINGER_SECONDS", default=30.0),
    # without a message, or a subscription there, after which the sandbox of a peer ends
    "IDLE_SECONDS": env.float("FEDERATION_IDLE_SECONDS", default=600.0),
    "BYTES_PER_SECOND": env.int("FEDERATION_BYTES_PER_SECOND", default=20_000_000),
}
SANDBOX: dict[str, Any] = {
    "BUBBLEWRAP": env("SANDBOX_BUBBLEWRAP", default="auto"),
    "HEAP_MIB": env.int("SANDBOX_HEAP_MIB", default=64),
    "DATA_MIB": env.int("SANDBOX_DATA_MIB", default=640),
    "MEMORY_MIB": env.int("SANDBOX_MEMORY_MIB", default=256),
    "SILENCE_SECONDS": env.float("SANDBOX_SILENCE_SECONDS", default=3.0),
}
