"""Ports for servers that a test starts as processes, which bind them a second or two later."""

from __future__ import annotations

import random
import socket

PORTS = range(15_000, 32_768)
"""Below those that Linux gives to whoever asks for any: of these one that is free now is given, to
a connection or to a server of another test, before the process has started."""

_choice = random.SystemRandom().choice  # the seed of the tests is the same in all processes


def free_port() -> int:
    """A port nobody listens on now, and that nobody is given who asks for any."""
    for _ in range(100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := _choice(PORTS)))
            except OSError:
                continue
            return port
    raise AssertionError(f"a hundred ports of {PORTS} are all taken")
