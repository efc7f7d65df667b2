"""What the sync manager asks of nodes: subscriptions, and the addresses of hyperties."""

from __future__ import annotations

import asyncio

from msgnode.core import addresses
from msgnode.runtime.python.message_bus import MessageBus

from .errors import SyncError
from .talk import Body, ask_until_answered


class NodeSubscriptions:
    """Those of one runtime."""

    def __init__(self, bus: MessageBus, url: str) -> None:
        """`url` is who asks: the runtime's sync manager."""
        self._bus = bus
        self._url = url
        self._claims: dict[str, asyncio.Task[None]] = {}  # by hyperty
        self._tasks: set[asyncio.Task[None]] = set()

    async def claim(self, hyperty: str) -> None:
        """Have the home node deliver here what is for a hyperty. Raises SyncError."""
        if addresses.is_under(hyperty, self._bus.runtime_url):
            return  # such addresses lead here anyway
        task = self._claims.get(hyperty)
        if task is None:
            task = asyncio.create_task(self.ask("subscribe", hyperty, [hyperty], hyperty))
            self._claims[hyperty] = task
        try:
            await asyncio.shield(task)
        except SyncError:
            self._claims.pop(hyperty, None)
            raise

    async def ask(self, kind: str, address: str, resources: list[str], source: str) -> None:
        """Subscribe or unsubscribe at the node of an address. Raises SyncError."""
        domain = addresses.parse(address).home
        body: Body = {"resources": resources, "source": source}
        if kind == "unsubscribe":
            body["resource"] = resources[0]
        head = {"type": kind, "from": self._url, "to": f"domain://msg-node.{domain}/sm"}
        message = {**head, "body": body}
        try:
            await ask_until_answered(self._bus, message)
        except SyncError as error:
            text = f"The node of {domain} answered {error.code}: {error}"
            raise SyncError(error.code, text) from None

    def announce(self, address: str, resources: list[str], source: str) -> None:
        """Subscribe again what a node has forgotten."""
        task = asyncio.create_task(self._announce(address, resources, source))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def announce_hyperties(self) -> None:
        """The home node has forgotten all of them."""
        for hyperty in self._claims:
            self.announce(hyperty, [hyperty], hyperty)

    def forget(self, hyperty: str) -> None:
        """A hyperty has gone."""
        self._claims.pop(hyperty, None)

    def close(self) -> None:
        """Ask nothing any more."""
        for task in (*self._tasks, *self._claims.values()):
            task.cancel()

    async def _announce(self, address: str, resources: list[str], source: str) -> None:
        try:
            await self.ask("subscribe", address, resources, source)
        except SyncError as error:
            text = f"{address} could not be announced again: {error}"
            self._bus.report("data.not-announced", text, None, error)
