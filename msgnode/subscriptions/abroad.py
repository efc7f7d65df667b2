"""What other domains have to grant when a session here subscribes addresses of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from msgnode.bus.ports import Body


class Abroad(Protocol):
    """The nodes of other domains, as far as this node meets them."""

    def abroad(self, named: Iterable[str]) -> list[str]:
        """Those of these addresses that another node has to be asked for."""
        ...

    async def subscribe(self, wanted: Sequence[str]) -> None:
        """Have them subscribed there. Raises NodeError."""
        ...


class NothingAbroad:
    """A node that is not joined to others. Implements Abroad."""

    def abroad(self, named: Iterable[str]) -> list[str]:
        """Nobody has to be asked."""
        return []

    async def subscribe(self, wanted: Sequence[str]) -> None:
        """Nothing to do."""


NOTHING_ABROAD = NothingAbroad()


async def granted(
    here: asyncio.Future[Body], there: Abroad, far: Sequence[str], take_back: Callable[[], Any]
) -> Body:
    """The answer to a subscription, once those far away are granted, too.

    Args:
        here: the answer of this node.
        there: grants the others.
        far: the addresses that it has to grant.
        take_back: undoes what was done here, where one is not granted.
    """
    try:
        body = await asyncio.shield(here)
        await there.subscribe(far)
    except BaseException:
        take_back()
        raise
    return body
