"""Starts a worker of the node: `python -m msgnode.server`.

Loads the routing table, listens on HOST:PORT, and stops on SIGTERM or SIGINT: sessions are told to
come back (3001), what is under way is committed, status 0. uvloop is installed before anything
imports Twisted, because Daphne takes the loop it finds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import uvloop

log = logging.getLogger("msgnode.server")


def main() -> int:
    """The exit status: 0 after a stop that was asked for, 1 if the node could not start."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")
    import django

    django.setup()
    return _serve()


def _serve() -> int:
    from django.conf import settings
    from twisted.internet import tcp

    tcp.Connection.bufferSize = 256 * 1024  # bytes read from a socket at once

    from msgnode.asgi import application
    from msgnode.daphne_server import NodeServer, reactor
    from msgnode.node import get_node

    node = get_node()
    limits = settings.NODE
    loop = reactor._asyncioEventloop
    status = 0
    server = NodeServer(
        application=application,
        endpoints=[f"tcp:port={settings.PORT}:interface={_escaped(settings.HOST)}:backlog=4096"],
        signal_handlers=False,
        ping_interval=limits["PING_INTERVAL"],
        ping_timeout=limits["PING_TIMEOUT"],
        websocket_timeout=-1,
        websocket_max_message_size=limits["MAX_FRAME_BYTES"],
        websocket_max_frame_size=limits["MAX_FRAME_BYTES"],
        websocket_handshake_timeout=10,
        http_timeout=120,
        application_close_timeout=10,
        server_name="",
    )
    try:
        loop.run_until_complete(node.start())
    except Exception as error:
        log.critical("The node cannot start: %s", error, exc_info=True)
        return 1

    stopping: asyncio.Future[None] | None = None

    def stop() -> None:
        nonlocal stopping
        if stopping is None:
            stopping = asyncio.ensure_future(drain())

    async def drain() -> None:
        log.info("The worker stops.")
        for port in await asyncio.gather(*(_listening(each) for each in server.listeners)):
            if port is not None:
                port.stopListening()
        try:
            await node.stop()
            if not await server.drained(limits["DRAIN_SECONDS"]):
                log.warning("Some connections did not close in time.")
        finally:
            reactor.stop()

    def failed(failure: object) -> None:
        nonlocal status
        status = 1
        log.critical("Cannot listen on %s:%s: %s", settings.HOST, settings.PORT, failure)
        server.stop()

    server.listen_error = lambda failure: failed(failure.getErrorMessage())  # type: ignore[method-assign]
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    server.run()
    return status


async def _listening(listener: object) -> object:
    """The port of a listener that succeeded, else None."""
    result = getattr(listener, "result", None)
    return result if hasattr(result, "stopListening") else None


def _escaped(host: str) -> str:
    return host.replace(":", r"\:")


if __name__ == "__main__":
    sys.exit(main())
