"""Detects a peer that has gone: a silent peer must answer a ping.

The answer to a ping comes after everything the peer has sent before. If that is read late, because
the peer sends more than it may or the node is paused, the answer is late although nobody has gone.
So everything that comes counts as an answer, and while nothing is read nothing is concluded.
"""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import ClientConnection

EVERY_SECONDS = 5.0
SILENCE_SECONDS = 20.0
"""Seconds without a frame or an answer to a ping after which a peer counts as gone."""


class Heart:
    """The heartbeat of one socket. `is_held`: reading it is paused."""

    def __init__(self) -> None:
        self.is_held = False
        self._has_heard = False

    def heard(self) -> None:
        """Note that the peer has sent something."""
        self._has_heard = True

    async def beat(self, link: ClientConnection) -> None:
        """Return when the peer has been silent for too long. Raises ConnectionClosed."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            if self._is_alive():
                continue
            silent = 0.0
            pong: asyncio.Future[float] | None = None
            while silent < SILENCE_SECONDS:
                if pong is None and not link.transport.get_write_buffer_size():
                    pong = asyncio.ensure_future(await link.ping())
                step = min(EVERY_SECONDS / 5, SILENCE_SECONDS - silent)
                if pong is None:
                    await asyncio.sleep(step)
                else:
                    await asyncio.wait({pong}, timeout=step)
                if self._is_alive() or (pong is not None and pong.done()):
                    break
                silent += step
            else:
                return

    def _is_alive(self) -> bool:
        has_heard, self._has_heard = self._has_heard, False
        return has_heard or self.is_held
