"""Makes a Pending of a future, so that a message can wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgnode.core.pending import Pending


def waiting_for(what: str, future: asyncio.Future[Any]) -> Pending:
    """The Pending to raise; it calls back when the future is done, however it ends."""

    def when_known(callback: Callable[[], None]) -> None:
        future.add_done_callback(lambda _: callback())

    return Pending(what, when_known)
