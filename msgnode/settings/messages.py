"""Messages: the limits of those who send them, devices without a WebSocket, other domains."""

from __future__ import annotations

from typing import Any

from .environment import NODE_MODE, env

# --- Sockets and sessions -------------------------------------------------------------------------
NODE: dict[str, float] = {
    # sockets
    "MAX_FRAME_BYTES": env.int("MAX_FRAME_BYTES", default=1024 * 1024),
    "MAX_REQUEST_BYTES": env.int("MAX_REQUEST_BYTES", default=16 * 1024 * 1024),
    "PING_INTERVAL": env.float("PING_INTERVAL", default=30.0),
    "PING_TIMEOUT": env.float("PING_TIMEOUT", default=30.0),
    "HANDSHAKE_TIMEOUT": env.float("HANDSHAKE_TIMEOUT", default=60.0),
    "MAX_CONNECTIONS": env.int("MAX_CONNECTIONS", default=100_000),
    "MAX_CONNECTIONS_PER_SOURCE": env.int("MAX_CONNECTIONS_PER_SOURCE", default=12_000),
    # sessions
    "MAX_SESSIONS_PER_RUNTIME": env.int("MAX_SESSIONS_PER_RUNTIME", default=16),
    "GRACE_PERIOD": env.float("GRACE_PERIOD", default=120.0),
    "OUTBOX_BYTES": env.int("OUTBOX_BYTES", default=4 * 1024 * 1024),
    # bytes that wait for the sessions of one source address or one subject, and for all
    "MAX_QUEUE_BYTES_PER_SOURCE": env.int("MAX_QUEUE_BYTES_PER_SOURCE", default=64 * 1024 * 1024),
    "MAX_QUEUE_BYTES": env.int("MAX_QUEUE_BYTES", default=512 * 1024 * 1024),
    "MAX_MESSAGES_PER_SECOND": env.int("MAX_MESSAGES_PER_SECOND", default=10_000),
    "MAX_BYTES_PER_SECOND": env.int("MAX_BYTES_PER_SECOND", default=50_000_000),
    # workers
    "WORKER_TIMEOUT": env.float("WORKER_TIMEOUT", default=5.0),
    "LINK_BYTES": env.int("LINK_BYTES", default=8 * 1024 * 1024),
    # addresses and subscriptions
    "MAX_ADDRESSES_PER_REQUEST": env.int("MAX_ADDRESSES_PER_REQUEST", default=1_000),
    "MAX_ALLOCATIONS_PER_SESSION": env.int("MAX_ALLOCATIONS_PER_SESSION", default=100_000),
    "MAX_SUBSCRIPTIONS_PER_SESSION": env.int("MAX_SUBSCRIPTIONS_PER_SESSION", default=20_000),
    # of all sessions of one source address (IPv6: its /64) or one subject, in each worker
    "MAX_ADDRESSES_PER_SOURCE": env.int("MAX_ADDRESSES_PER_SOURCE", default=500_000),
    "MAX_OPEN_REQUESTS": env.int("MAX_OPEN_REQUESTS", default=10_000),
    # keeping
    "CLOSED_SESSION_DAYS": env.int("CLOSED_SESSION_DAYS", default=7),
    "MAX_CLOSED_SESSIONS": env.int("MAX_CLOSED_SESSIONS", default=100_000),
    # the message each worker sends itself: seconds between two, and until it is not ready
    "PROBE_INTERVAL": env.float("PROBE_INTERVAL", default=3.0),
    "PROBE_TIMEOUT": env.float("PROBE_TIMEOUT", default=5.0),
    "DRAIN_SECONDS": env.float("DRAIN_SECONDS", default=5.0),
}
# Sockets are closed over this time, so that not all come back at once; the last one still has the
# rest of it.
NODE["DRAIN_STAGGER"] = 0.4 * NODE["DRAIN_SECONDS"]
# Half of them may be detached: a page that is loaded again leaves one behind for a while.
NODE["MAX_SESSIONS"] = 2 * NODE["MAX_CONNECTIONS"]
RESUME: str = env("RESUME", default="when-idle" if NODE_MODE == "embedded" else "with-proof")
SHARE_RUNTIME_URL: bool = env.bool("SHARE_RUNTIME_URL", default=NODE_MODE == "embedded")
STRICT_RESPONSES: bool = env.bool("STRICT_RESPONSES", default=True)
STORE_FOR_DETACHED: bool = env.bool("STORE_FOR_DETACHED", default=True)
DEVICE_HTTP: bool = env.bool("DEVICE_HTTP", default=False)
# Whether they may name a URL to be posted to, and the networks that may be besides public ones.
DEVICE_WEBHOOKS: bool = env.bool("DEVICE_WEBHOOKS", default=False)
# Whom push services that wake devices may write to about it, if any may; which services.
PUSH_CONTACT: str = env("PUSH_CONTACT", default="")
PUSH_HOSTS: list[str] = env.list(
    "PUSH_HOSTS",
    default=[
        *("fcm.googleapis.com", "*.push.services.mozilla.com"),
        *("web.push.apple.com", "*.notify.windows.com"),
    ],
)
WEBHOOK_NETWORKS: list[str] = env.list("WEBHOOK_NETWORKS", default=[])

# --- The operator's MQTT broker, for devices and sensors behind it (docs/connectors.md) -----------
MQTT: dict[str, Any] = {
    "URL": env("MQTT_URL", default=""),
    "PREFIX": env("MQTT_PREFIX", default="rethink").strip("/"),
    "CA_FILE": env("MQTT_CA_FILE", default=""),
    "CERT_FILE": env("MQTT_CERT_FILE", default=""),
    # messages of QoS 1 that the broker sends before the first of them is acknowledged
    "WINDOW": env.int("MQTT_WINDOW", default=1_000),
    # of each sensor topic; above it the broker is held back
    "MESSAGES_PER_SECOND": env.int("MQTT_MESSAGES_PER_SECOND", default=5_000),
}

# --- Nodes of other domains (docs/federation.md) --------------------------------------------------
FEDERATION: str = env("FEDERATION", default="off")
FEDERATION_SIGNED: bool = env.bool("FEDERATION_SIGNED", default=False)
FEDERATION_NETWORKS: list[str] = env.list("FEDERATION_NETWORKS", default=[])
PEERS: dict[str, Any] = {
    # peers that one worker may serve at a time; each costs a process
    "MAX_STUBS": env.int("FEDERATION_MAX_STUBS", default=32),
    # that are stored for one peer, and for how long
    "STORED_MESSAGES": env.int("FEDERATION_STORED_MESSAGES", default=1_000),
    "STORE_HOURS": env.float("FEDERATION_STORE_HOURS", default=24.0),
}
SANDBOX: dict[str, Any] = {
    "BUBBLEWRAP": env("SANDBOX_BUBBLEWRAP", default="auto"),
    "SILENCE_SECONDS": env.float("SANDBOX_SILENCE_SECONDS", default=3.0),
}
