"""Ends the sessions whose grace period is over, once a second and a few at a time.

Thousands may expire in one second, for instance after a power cut on the runtimes' side; messages
of other sessions are processed between the batches.
"""

from __future__ import annotations

import asyncio
import logging

from .manager import SessionManager

AT_ONCE = 25
_PAUSE = 0.002

log = logging.getLogger(__name__)


async def run_expiry(sessions: SessionManager, every: float = 1.0) -> None:
    """Run until cancelled; a fault is logged and the next round tries again."""
    while True:
        await asyncio.sleep(every)
        try:
            while sessions.expire(AT_ONCE):  # noqa: ASYNC110  (this does not poll: it yields to others)
                await asyncio.sleep(_PAUSE)
        except Exception:
            log.exception("Sessions whose time is over could not be ended.")
