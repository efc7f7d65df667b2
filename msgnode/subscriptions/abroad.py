"""Subscriptions of addresses of other domains, which their nodes must grant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgnode.bus.ports import Body
from msgnode.core.errors import Conflict


class Abroad(Protocol):
    """The nodes of other domains, as far as this node connects to them."""

    def abroad(self, named: Iterable[str]) -> list[str]:
        """Those of these addresses that must be subscribed at another node."""
        ...

    async def subscribe(self, wanted: Sequence[str]) -> None:
        """Subscribe them there. Raises NodeError."""
        ...


class NothingAbroad:
    """The Abroad of a node without federation."""

    def abroad(self, named: Iterable[str]) -> list[str]:
        """Always empty."""
        return []

    async def subscribe(self, wanted: Sequence[str]) -> None:
        """Do nothing."""


NOTHING_ABROAD = NothingAbroad()


async def granted(
    here: asyncio.Future[Body],
    there: Abroad,
    far: Sequence[str],
    shared: Sequence[asyncio.Future[Body]],
    take_back: Callable[[], None],
) -> Body:
    """Answer a subscription once other nodes have granted their part.

    Args:
        here: the answer of this node.
        there: the nodes that must grant the others.
        far: the addresses to be granted there.
        shared: earlier requests that wait for some of the same addresses.
        take_back: undoes the subscription here if one is not granted.
    """
    try:
        body = await asyncio.shield(here)
        await there.subscribe(far)
        for each in shared:
            await asyncio.wait({each})
            if each.cancelled():
                raise Conflict("The request was given up.")
            each.result()
    except BaseException:
        take_back()
        raise
    return body
