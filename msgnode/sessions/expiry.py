"""Once a second: end the sessions whose grace period is over."""

from __future__ import annotations

import asyncio
import logging

from .manager import SessionManager

log = logging.getLogger(__name__)


async def run_expiry(sessions: SessionManager, every: float = 1.0) -> None:
    """Runs until cancelled; a fault is logged and the next round tries again."""
    while True:
        await asyncio.sleep(every)
        try:
            sessions.expire()
        except Exception:
            log.exception("Sessions whose time is over could not be ended.")
