"""Stock uvicorn, the alternative to Daphne: it owns the sockets, the node uses plain ASGI.

Nothing is overridden and no private name is used: frames are ASGI events, through the sessions
package's AsgiLink. docs/operations.md says how it differs from Daphne.

- The node stops by itself, because uvicorn's own stop closes sockets with 1012 before anything else
  is told.
- uvicorn closes a socket only when its buffer is empty, so one that is never read would stay for
  ever. The kernel ends it instead, once nothing was accepted for as long as a ping may go
  unanswered.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import uvloop
from uvicorn import Config, Server


class UvicornServing:
    """Serves an application. Implements Serving."""

    def __init__(self, application: Any, limits: dict[str, Any]) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        asyncio.set_event_loop(self.loop)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # it logs whole URLs
        self._unread_for = limits["PING_INTERVAL"] + limits["PING_TIMEOUT"]
        self._server = Server(
            Config(
                application,
                interface="asgi3",
                ws="websockets-sansio",
                http="h11",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                ws_per_message_deflate=False,
                server_header=False,
                ws_max_size=limits["MAX_FRAME_BYTES"],
                ws_ping_interval=limits["PING_INTERVAL"],
                ws_ping_timeout=limits["PING_TIMEOUT"],
                timeout_graceful_shutdown=1,
            )
        )

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop`."""
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted sockets inherit it
            milliseconds = round(self._unread_for * 1000)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self.loop.run_until_complete(self._serve(listening))

    def stop(self) -> None:
        """End `run`."""
        self._server.should_exit = True

    def stop_listening(self) -> None:
        """Accept no new connections; open ones continue."""
        for listener in getattr(self._server, "servers", ()):  # none before it has begun
            listener.close()

    async def drained(self, seconds: float) -> bool:
        """Wait until every application has ended, for at most so many seconds."""
        running = self._server.server_state.tasks
        if running:
            _, left = await asyncio.wait(list(running), timeout=seconds)
            return not left
        return True

    async def _serve(self, listening: socket.socket) -> None:
        server = self._server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[listening])
        await server.main_loop()
        await server.shutdown()
