"""Ports for servers that a test starts as processes, which bind them a second or two later.

Until then nobody else may be given them, so each process of a test run (pytest-xdist) has ports of
its own, and gives none twice.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable, Mapping

PORTS = range(25_000, 32_768)
"""Below those that Linux gives to whoever asks for any: of these one that is free now is given, to
a connection or to a server of another test, before the process has started."""
CLUSTER_PORTS = range(10_000, 15_000)
"""For servers of a Redis Cluster, which have a second port `BUS` above the first."""
BUS = 10_000

_choice = random.SystemRandom().choice  # the seed of the tests is the same in all processes
_given: set[int] = set()


def share(ports: range, environment: Mapping[str, str]) -> range:
    """Those of these ports that a process of a test run may give."""
    name = environment.get("PYTEST_XDIST_WORKER", "gw0")
    size = len(ports) // int(environment.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = ports.start + int(name.removeprefix("gw")) * size
    return range(first, first + size)


def free_port(beside: int = 0) -> int:
    """A port nobody listens on now, and that nobody is given who asks for any.

    Args:
        beside: so many of those that follow it are free, too, and go with it.
    """
    own = share(PORTS, os.environ)
    return _one_of(own[: len(own) - beside], range(beside + 1))


def free_cluster_port() -> int:
    """Such a port for a server of a Redis Cluster."""
    return _one_of(share(CLUSTER_PORTS, os.environ), (0, BUS))


def _one_of(own: range, further: Iterable[int]) -> int:
    """One of these ports, if it and those so far above it are free."""
    if len(_given) > len(own) // 2:
        _given.clear()  # who was given these has bound them long since, or has ended
    for _ in range(100):
        port = _choice(own)
        wanted = [port + each for each in further]
        if _given.isdisjoint(wanted) and all(map(_is_free, wanted)):
            _given.update(wanted)
            return port
    raise AssertionError(f"a hundred ports of {own} are all taken")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
