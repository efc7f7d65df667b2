"""A future as something a message can wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgnode.core.pending import Pending


def waiting_for(what: str, future: asyncio.Future[Any]) -> Pending:
    """To be raised; whoever catches it is called back when the future is done, however it ends."""

    def when_known(callback: Callable[[], None]) -> None:
        future.add_done_callback(lambda _: callback())

    return Pending(what, when_known)
