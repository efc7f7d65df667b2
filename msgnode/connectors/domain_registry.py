"""domain://registry.<domain>: the connector to the domain registry, embedded or remote.

Every message gets one answer. Words of the reference (A5): 200 with or without `value`, 404 "Not
Found", 408 "Temporarily Unavailable" with the records, 504 when a remote registry is out of reach.
A runtime whose last session has closed takes its registrations to `disconnected`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from msgnode import models
from msgnode.bus.ports import Body, Component, Listener
from msgnode.core import addresses
from msgnode.core.messages import Message

from .registry_requests import Request, request_of

log = logging.getLogger(__name__)


class Registry(Protocol):
    """The registry behind the connector."""

    def carry_out(self, request: Request, sender: str) -> Awaitable[Body]: ...
    async def runtime_gone(self, runtime_url: str) -> None: ...


class DomainRegistryConnector(Component):
    """Relays to a Registry; see the head of the file."""

    name = "domain-registry"
    kind = "connector"

    def __init__(self, domain: str, registry: Registry) -> None:
        super().__init__((f"domain://registry.{domain}",))
        self._domain = domain
        self._registry = registry
        self._ending: set[asyncio.Task[None]] = set()

    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        request = request_of(message.type, message.fields(), self._domain)
        return self._registry.carry_out(request, message.sender)

    def session_closed(self, session_id: str, runtime_url: str, reason: str) -> None:
        """A SessionEnd: if it was the runtime's last session, its registrations end."""
        task = asyncio.get_running_loop().create_task(self._end(session_id, runtime_url))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, session_id: str, runtime_url: str) -> None:
        try:
            if not await asyncio.to_thread(_has_another_session, session_id, runtime_url):
                await self._registry.runtime_gone(runtime_url)
        except Exception:
            # They expire by themselves; nobody waits for this.
            log.exception("Registrations of a closed session could not be ended.")


def _has_another_session(session_id: str, runtime_url: str) -> bool:
    urls = [url for url in (runtime_url, addresses.runtime_twin(runtime_url)) if url]
    others = models.Session.objects.filter(runtime_url__in=urls).exclude(id=session_id)
    return others.exclude(state=models.Session.State.CLOSED).exists()
