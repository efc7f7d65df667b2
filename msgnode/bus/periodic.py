"""What is done again and again while a worker runs: one loop for all of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgnode.core.faults import FAULTS

log = logging.getLogger(__name__)


async def every(
    seconds: float,
    look: Callable[[], Awaitable[object] | None],
    part: str,
    says: str = "",
    is_first_at_once: bool = False,
) -> None:
    """Call `look` until cancelled, each time after a pause; what fails is tried again after it.

    Args:
        seconds: the pause.
        look: what is done.
        part: counts its failures, as faults of the node.
        says: what the log says of a failure that is none of the node's, as a database that is away.
        is_first_at_once: whether the first call has no pause before it.
    """
    if is_first_at_once:
        await asyncio.sleep(0)
    else:
        await asyncio.sleep(seconds)
    while True:
        try:
            looking = look()
            if looking is not None:
                await looking
        except Exception as error:
            if says:
                log.warning("%s: %s", says, error)
            else:
                FAULTS.note(part, error)
        await asyncio.sleep(seconds)
