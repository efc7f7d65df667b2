"""What a process needs to serve: a listening socket, signals, an end, and a processor."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

_BACKLOG = 4096
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE, _MOST_FREE = 1024 * 1024, 4 * 1024 * 1024
"""Bytes of a block that gets pages of its own, and of free ones at the heap's end that are kept."""
BACKGROUND_THREADS = 8
"""Threads for work that is rare, whatever the number of processors: each may have a connection to
the database (docs/operations.md counts them).
"""


def listening_socket(host: str, port: int, is_shared: bool) -> socket.socket:
    """Create a listening socket.

    Several workers may share one; each then gets its own share of the connections.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.bind(address)
    made.listen(_BACKLOG)
    made.setblocking(False)
    return made


def on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Have the loop call `stop` at each SIGTERM and SIGINT.

    The loop's own handlers miss a signal that comes while it does not run, as between a start and
    the serving. Here it is called as soon as the loop runs.
    """

    def told(*_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, and the process ends
            loop.call_soon_threadsafe(stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)


def limit_background_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Bound the threads of a loop that `asyncio.to_thread` uses."""
    loop.set_default_executor(ThreadPoolExecutor(BACKGROUND_THREADS, "background"))


def end_within(seconds: float, status: int) -> None:
    """End this process with a status by then, whatever its threads still wait for.

    Python waits for them. One that answers a request may wait for the loop, which runs no more.
    """
    ending = threading.Timer(seconds, os._exit, (status,))
    ending.daemon = True
    ending.start()


log = logging.getLogger("msgnode.servers.start")


def keep_to_one_processor(number: int) -> None:
    """Pin this process to one processor; do nothing if it may use only one.

    A Python process can use only one processor at a time. On several, its threads wait longer for
    each other, and each processor they use has less time for the worker on it.

    Args:
        number: distributes the web processes of a machine over its processors; the port serves.
    """
    if not hasattr(os, "sched_setaffinity"):  # macOS has no such call
        return
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, {allowed[-1 - number % len(allowed)]})
    except OSError as error:
        log.warning("The web process cannot keep to one processor: %s", error)


def use_one_heap() -> None:
    """Have all threads of this process allocate from one heap of glibc.

    By default a thread gets one of its own, and each keeps the most that it ever needed: the
    threads that make pages grew a worker for ten minutes. Threads that allocate without the GIL,
    as in SQLite, wait for one another; messages are as fast as before.

    And by default the first large block that is freed has later ones, up to 32 MiB, lie in the
    heap, which keeps twice as much at its end: one list of 3 MiB left a worker 14 MiB larger.
    """
    with suppress(OSError, AttributeError):  # another C library has no such option
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_M_TRIM_THRESHOLD, _MOST_FREE)
