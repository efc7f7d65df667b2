"""Once a second: end the sessions whose grace period is over, a few at a time.

After a power cut at the runtimes' side thousands expire in one second; messages of the others go
between two portions of them.
"""

from __future__ import annotations

import asyncio
import logging

from .manager import SessionManager

AT_ONCE = 25
_PAUSE = 0.002

log = logging.getLogger(__name__)


async def run_expiry(sessions: SessionManager, every: float = 1.0) -> None:
    """Runs until cancelled; a fault is logged and the next round tries again."""
    while True:
        await asyncio.sleep(every)
        try:
            while sessions.expire(AT_ONCE):  # noqa: ASYNC110  (no wait, but a turn for others)
                await asyncio.sleep(_PAUSE)
        except Exception:
            log.exception("Sessions whose time is over could not be ended.")
