"""Starts a worker: `python -m msgnode.servers.main`; with ROLE=web, the web process.

It loads the routing table, listens on HOST:PORT, and stops on SIGTERM or SIGINT: sessions are told
to reconnect (3001), pending changes are committed, exit status 0. Told so before it is ready, it
leaves the other workers and ends.
uvloop is installed before anything imports Twisted, because Daphne uses the loop it finds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import sys
from contextlib import suppress

import uvloop

from msgnode import celery_apps
from msgnode.core import database_errors
from msgnode.servers.collector import Collector
from msgnode.servers.start import (
    end_within,
    keep_to_one_processor,
    limit_background_threads,
    listening_socket,
    on_signals,
    use_one_heap,
)
from msgnode.storage.table_version import EarlierTables, refuse_earlier
from msgnode.workers.worker_process import TIMES_FENCED

log = logging.getLogger("msgnode.servers.main")

_NO_SPACE = 1024 * 1024
_SWITCH_INTERVAL = 0.001
"""Seconds for which the writer's thread may keep the GIL: the loop releases it at every system
call, and would wait Python's default of 5 ms to get it back.
"""

_TRY_AGAIN = 0.2  # seconds until a start is cancelled once more
_LAST_THREADS = 1.0  # seconds for threads that still work on a request
_LAST_WORDS = 0.5
"""Seconds a restarting worker waits until its sockets have been told."""


def main() -> int:
    """Run; return the exit status: 0 after a requested stop, 1 if the node could not start."""
    use_one_heap()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.disable()  # a start makes little garbage, and collecting takes a fifth of its time
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")
    import django
    from django.conf import settings

    if settings.ROLE != "web":
        celery_apps.defer()
    django.setup()
    for line in settings.REMOVED_SETTINGS:
        log.warning("%s", line)
    if settings.ROLE == "web":
        keep_to_one_processor(settings.PORT)  # first, because threads inherit it
        from msgnode.servers.web import WebProcess

        status = WebProcess().run()
    else:
        status = Worker().run()
    end_within(_LAST_THREADS, status)
    return status


class Worker:
    """One process of the node: its server, its start and its stop."""

    def __init__(self) -> None:
        from django.conf import settings

        from msgnode.asgi import application
        from msgnode.node import get_node
        from msgnode.servers.daphne import DaphneServing

        self._node = get_node()
        self._drain_seconds = settings.NODE["DRAIN_SECONDS"]
        self._where = f"{settings.HOST}:{settings.PORT}"
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._is_fenced = False
        self._node.parts.lease.on_lost.append(self._fence)
        self._serving = DaphneServing(application, settings.NODE)
        self._loop = self._serving.loop
        limit_background_threads(self._loop)
        self._shares_port = settings.WORKERS > 1
        self._address = settings.HOST, settings.PORT

    def run(self) -> int:
        """Serve until a signal or the loss of the lease; return the exit status."""
        if self._shares_port and self._node.parts.cluster.is_alone:
            log.critical("The node cannot start: several WORKERS need a REDIS_URL.")
            return 1
        try:
            refuse_earlier()
            on_signals(self._loop, self._stop)
            self._start()
        except EarlierTables as error:
            log.critical("The node cannot start: %s", error)
            return 1
        except Exception as error:
            is_ours = not database_errors.is_damaged(error)
            log.critical("The node cannot start: %s", _in_words(error), exc_info=is_ours)
            self._give_up()
            return 1
        from msgnode.asgi import is_serving_pages

        sessions = self._node.parts.sessions.sessions
        Collector(sessions.__len__, is_serving_pages).start(self._loop)
        gc.enable()
        try:
            listening = listening_socket(*self._address, self._shares_port)
        except OSError as error:
            log.critical("Cannot listen on %s: %s", self._where, error)
            self._give_up()
            return 1
        self._loop.call_soon(self._node.parts.path.watch, listening.getsockname())
        self._serving.run(listening)
        return 0

    def _start(self) -> None:
        """Start the node; end this process if it is told to stop meanwhile."""
        self._starting = starting = self._loop.create_task(self._node.start())
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(starting)
        if starting.cancelling():
            log.info("The worker stops before it is ready.")
            self._give_up()
            logging.shutdown()
            os._exit(0)  # a thread may still load, or wait for the database

    def _fence(self, why: str) -> None:
        """Restart this process under a new epoch, because the lease is lost."""
        log.error("The worker has lost its lease: %s.", why)
        self._is_fenced = True
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._begin_again(why))

    async def _begin_again(self, why: str) -> None:
        self._serving.stop_listening()
        try:
            await self._node.fence(why)
            await self._serving.drained(_LAST_WORDS)
        except Exception:
            log.exception("The worker could not leave in order.")
        count = self._node.parts.times_fenced + 1
        words = [word for word in sys.orig_argv[1:] if not word.startswith(TIMES_FENCED)]
        try:
            logging.shutdown()
            os.execv(sys.executable, [sys.executable, *words, f"{TIMES_FENCED}{count}"])  # noqa: S606
        finally:
            os._exit(1)  # a supervisor starts another

    def _stop(self) -> None:
        if self._is_fenced:
            log.info("The worker stops.")
            logging.shutdown()
            os._exit(0)  # nothing is left to store, and its threads may wait for the database
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            self._loop.call_later(_TRY_AGAIN, self._stop)  # it may miss that, waiting for Redis
        elif self._stopping is None:
            self._stopping = self._loop.create_task(self._drain())

    def _give_up(self) -> None:
        """Leave the other workers after a start that came to nothing."""
        if self._starting is None:
            return
        self._stopping = self._loop.create_task(self._node.give_up())
        with suppress(TimeoutError):
            self._loop.run_until_complete(asyncio.wait_for(self._stopping, self._drain_seconds * 2))

    async def _drain(self) -> None:
        log.info("The worker stops.")
        self._serving.stop_listening()
        try:
            await self._node.drain()
            if not await self._serving.drained(self._drain_seconds):
                log.warning("Some connections did not close in time.")
            await self._node.stop()
        finally:
            self._serving.stop()


def _in_words(error: Exception) -> str:
    """Describe an error; SQLite reports a full disk as an I/O error where it creates files."""
    from django.conf import settings

    with suppress(OSError):
        if shutil.disk_usage(settings.DATA_DIR).free < _NO_SPACE:
            return f"the disk of DATA_DIR {settings.DATA_DIR} is full ({error})"
    if database_errors.is_damaged(error):
        return (
            f"{database_errors.DAMAGED} ({error}). `manage.py restore` puts a backup in its place."
        )
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
