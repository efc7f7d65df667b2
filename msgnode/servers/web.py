"""The web process, with the console and the API: `ROLE=web python -m msgnode.servers.main`.

It contains no node: no lease, no sessions, no routing table. Its changes reach the workers through
the database, as from every process that is not a worker. It listens on HOST:PORT, and stops on
SIGTERM or SIGINT when the current requests are answered.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import suppress

from django.conf import settings
from django.db import DatabaseError

from msgnode.asgi import application, is_serving_pages
from msgnode.servers.collector import Collector
from msgnode.servers.daphne import DaphneServing
from msgnode.servers.start import limit_background_threads, listening_socket, on_signals
from msgnode.storage.table_version import EarlierTables, refuse_earlier

log = logging.getLogger("msgnode.servers.web")


class WebProcess:
    """The web process: its server, its start and its stop."""

    def __init__(self) -> None:
        self._serving = DaphneServing(application, settings.NODE)
        self._loop = self._serving.loop
        limit_background_threads(self._loop)
        self._stopping: asyncio.Task[None] | None = None

    def run(self) -> int:
        """Serve until a signal; return the exit status."""
        try:
            with suppress(DatabaseError):  # it is not ready until the database answers
                refuse_earlier()
        except EarlierTables as error:
            log.critical("The web process cannot start: %s", error)
            return 1
        Collector(is_serving=is_serving_pages).start(self._loop)
        gc.enable()
        on_signals(self._loop, self._stop)
        try:
            listening = listening_socket(settings.HOST, settings.PORT, is_shared=False)
        except OSError as error:
            log.critical("Cannot listen on %s:%s: %s", settings.HOST, settings.PORT, error)
            return 1
        log.info("The web process is ready.")
        self._serving.run(listening)
        return 0

    def _stop(self) -> None:
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        log.info("The web process stops.")
        self._serving.stop_listening()
        try:
            if not await self._serving.drained(settings.NODE["DRAIN_SECONDS"]):
                log.warning("Some requests were not answered in time.")
        finally:
            self._serving.stop()
