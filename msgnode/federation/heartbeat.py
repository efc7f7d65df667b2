"""Whether a peer is still there: who says something is; who is silent has to answer a ping.

The answer to a ping stands behind what the peer has said before. Where that is read late, because
the peer says more than it may or the node is held back, the answer comes late and nobody is gone.
So what comes counts as an answer, and while nothing is read nothing is concluded.
"""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import ClientConnection

EVERY_SECONDS = 5.0
SILENCE_SECONDS = 20.0
"""Without a word, or an answer to a ping, after which a peer counts as away."""


class Heart:
    """Of one socket. `is_held`: it is not read at the moment."""

    def __init__(self) -> None:
        self.is_held = False
        self._has_heard = False

    def heard(self) -> None:
        """The peer has said something."""
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
