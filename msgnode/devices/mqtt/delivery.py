"""A message from the broker on its way into the node."""

from __future__ import annotations

import time
from typing import Any, Protocol


class Acknowledger(Protocol):
    """The connection that a message came by."""

    def acknowledge(self) -> None:
        """Acknowledge what is done, up to the first message that is not."""
        ...

    def released(self, size: int, qos: int) -> None:
        """Note that so many bytes of a message are in memory no longer."""
        ...

    @property
    def is_filling(self) -> bool:
        """Whether half of the room for what was read and not carried is taken."""
        ...


OVERHEAD = 512
"""Memory of a message besides its topic and payload, in bytes."""


class Delivery:
    """One message from the broker; `done` once it was carried, or refused for good.

    Its `size` is what it takes in memory: little once it is done, nothing if it is of QoS 0.
    `expires_at` is by `time.monotonic`, 0.0 for a message that does not say it.
    """

    __slots__ = (
        *("topic", "payload", "size", "qos", "retain", "digest", "is_done", "client", "mid"),
        *("response_topic", "correlation", "expires_at"),
    )

    def __init__(self, client: Acknowledger, message: Any) -> None:
        self.topic: str = message.topic
        self.payload: bytes = message.payload
        self.size = len(self.payload) + len(self.topic) + OVERHEAD
        self.qos: int = message.qos
        self.retain: bool = message.retain
        self.mid: int = message.mid
        said = message.properties
        self.response_topic: str = getattr(said, "ResponseTopic", "")
        self.correlation: bytes = getattr(said, "CorrelationData", b"")
        seconds: int = getattr(said, "MessageExpiryInterval", 0)
        self.expires_at = time.monotonic() + seconds if seconds else 0.0
        self.digest = hash((self.topic, self.payload))
        self.client = client
        self.is_done = False

    def done(self) -> None:
        """It need not come again."""
        if not self.is_done:
            self.is_done = True
            released = len(self.payload) if self.qos else self.size
            self.payload = b""
            self.size -= released
            self.client.released(released, self.qos)
            if self.qos:
                self.client.acknowledge()
