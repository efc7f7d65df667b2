"""The address of the broker, and the node's credentials there."""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The broker's address and our credentials. `window` and `max_bytes` limit what it sends."""

    host: str
    port: int
    username: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    window: int = 1_000
    max_bytes: int = 1024 * 1024

    def __str__(self) -> str:
        """Without the password."""
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{self.host}:{self.port}"
