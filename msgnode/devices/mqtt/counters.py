"""The counters of the MQTT connector, for metrics and console."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MqttCounters:
    """Since the start of the worker.

    Attributes:
        received: messages from the broker.
        repeated: of these, those that were carried before and came again.
        refused: of these, those that no session could carry; the device is told where it can be.
        dropped: of these, those of QoS 0 that came faster than they may.
        published: messages to the broker that it has acknowledged.
        not_taken: messages to the broker that it has refused, or would not take.
        lost_connections: how often the connection to the broker was lost or could not be made.
    """

    received: int = 0
    repeated: int = 0
    refused: int = 0
    dropped: int = 0
    published: int = 0
    not_taken: int = 0
    lost_connections: int = 0
    last_error: str = ""

    def refuse(self, why: str) -> None:
        """One message is not carried."""
        self.refused += 1
        self.last_error = why[:500]

    def note_not_taken(self, why: str) -> None:
        """One message does not reach the broker."""
        self.not_taken += 1
        self.last_error = f"The broker does not take a message: {why}"[:500]
