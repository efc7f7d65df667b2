"""Ports for servers that a test starts as processes, which bind them a second or two later.

Until then nobody else may be given them: neither another process of this test run (pytest-xdist)
nor another test run on this machine. So a port is held, for as long as its process lives or until
it has given HELD more, by a Unix socket named after it that nobody else can bind meanwhile. That
needs no file, and ends with its process (Linux; elsewhere chance has to do).
"""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Iterable
from contextlib import ExitStack

PORTS = range(25_000, 32_768)
"""Below those that Linux gives to whoever asks for any: of these one that is free now is given, to
a connection or to a server of another test, before the process has started."""
CLUSTER_PORTS = range(10_000, 15_000)
"""For servers of a Redis Cluster, which have a second port `BUS` above the first."""
BUS = 10_000
HELD = 200

_choice = random.SystemRandom().choice  # the seed of the tests is the same in all processes
_held: dict[int, socket.socket] = {}  # the oldest first


def free_port(beside: int = 0) -> int:
    """A port nobody listens on now, and that nobody is given who asks for any.

    Args:
        beside: so many of those that follow it are free, too, and go with it.
    """
    return _one_of(PORTS[: len(PORTS) - beside], range(beside + 1))


def free_cluster_port() -> int:
    """Such a port for a server of a Redis Cluster."""
    return _one_of(CLUSTER_PORTS, (0, BUS))


def _one_of(ports: range, further: Iterable[int]) -> int:
    """One of these ports, if it and those so far above it are free."""
    for _ in range(1000):
        port = _choice(ports)
        if _hold([port + each for each in further]):
            return port
    raise AssertionError(f"a thousand ports of {ports} are all taken")


def _hold(ports: Iterable[int]) -> bool:
    """Hold all of these ports, or none if one is held or has a server."""
    with ExitStack() as stack:
        holds: dict[int, socket.socket] = {}
        for port in ports:
            hold = holds[port] = stack.enter_context(socket.socket(socket.AF_UNIX))
            try:
                if sys.platform == "linux":
                    hold.bind(f"\0port of a test {port}")
            except OSError:
                return False
            if port in _held or not _is_free(port):
                return False
        stack.pop_all()
    _held.update(holds)
    while len(_held) > HELD:  # who was given these has bound them long since, or has ended
        _held.pop(next(iter(_held))).close()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
