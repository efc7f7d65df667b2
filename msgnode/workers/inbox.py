"""A worker's use of the channel layer: an inbox of its own, and the group of all workers.

While the layer is out of reach, or full, an alarm stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable
from typing import Any

from channels.layers import get_channel_layer

log = logging.getLogger(__name__)

LAYER_AWAY = "redis-away"
LAYER_FULL = "redis-full"
RETRY = 0.1
"""Seconds until a layer that has refused is tried again."""


def channel_layer() -> Any:
    """The layer of the settings."""
    return get_channel_layer()


class Inbox:
    """One instance per worker.

    Attributes:
        node: a name of the node that cannot be guessed without its secret.
        group: the channel group of all its workers.
    """

    def __init__(
        self,
        layer: Any,
        worker: str,
        secret: str,
        raise_alarm: Callable[[str, str, str], None],
        clear_alarm: Callable[[str, str], None],
    ) -> None:
        self.name = ""
        self.node = hashlib.sha256(secret.encode()).hexdigest()[:32]
        self.group = f"node-{self.node}"
        self._layer = layer
        self._worker = worker
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._standing: set[str] = set()  # alarms about the layer

    async def open(self) -> None:
        """Receive messages to this worker and to all. Raises if the layer cannot be reached."""
        self.name = self.name or await self._layer.new_channel()
        await self._layer.group_add(self.group, self.name)

    async def close(self, seconds: float) -> None:
        """Stop receiving; try that for at most so many seconds."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(seconds):
                await self._layer.group_discard(self.group, self.name)

    async def receive(self) -> dict[str, Any]:
        """The next message; waits for it, and for a layer that is out of reach."""
        while True:
            try:
                message: dict[str, Any] = await self._layer.receive(self.name)
                return message
            except Exception as error:
                log.warning("The channel layer does not give what came: %s", error)
                await asyncio.sleep(RETRY)

    async def send(self, inbox: str, message: dict[str, Any]) -> None:
        """Send to the inbox of another worker."""
        await self._layer.send(inbox, message)

    async def send_to_all(self, message: dict[str, Any]) -> None:
        """Send to the inboxes of all workers, this one's as well."""
        await self._layer.group_send(self.group, message)

    def note_away(self, error: Exception) -> None:
        """Note that the layer is out of reach."""
        self._fails(LAYER_AWAY, error)

    def note_full(self, error: Exception) -> None:
        """Note that the layer is full."""
        self._fails(LAYER_FULL, error)

    def _fails(self, kind: str, error: Exception) -> None:
        """Raise an alarm, which stands until the layer works again."""
        if kind not in self._standing:
            self._standing.add(kind)
            self._raise_alarm(kind, self._worker, str(error) or repr(error))

    def is_well(self, kind: str) -> None:
        """Clear an alarm, because the layer works."""
        if kind in self._standing:
            self._standing.discard(kind)
            self._clear_alarm(kind, self._worker)
