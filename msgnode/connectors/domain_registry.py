"""domain://registry.<domain>: the connector to the domain registry, embedded or remote.

Every message gets one answer. Words of the reference (A5): 200 with or without `value`, 404 "Not
Found", 408 "Temporarily Unavailable" with the records, 504 when a remote registry is out of reach.
A runtime whose last session has closed takes its registrations to `disconnected`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgnode.bus.ports import Body, Component, Listener
from msgnode.core.messages import Message

from .ended_runtimes import EndedRuntimes
from .registry_requests import Request, request_of


class Registry(Protocol):
    """The registry behind the connector."""

    def carry_out(self, request: Request, sender: str) -> Awaitable[Body]: ...

    async def runtimes_gone(self, runtime_urls: Sequence[str]) -> None:
        """These runtimes have no session any more: disconnect what they registered."""
        ...


class DomainRegistryConnector(Component):
    """Relays to a Registry; see the head of the file."""

    name = "domain-registry"
    kind = "connector"

    def __init__(
        self, domain: str, registry: Registry, written: Callable[[], Awaitable[Any]]
    ) -> None:
        super().__init__((f"domain://registry.{domain}",))
        self._domain = domain
        self._registry = registry
        self.ended = EndedRuntimes(registry.runtimes_gone, written)

    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        request = request_of(message.type, message.fields(), self._domain)
        return self._registry.carry_out(request, message.sender)

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd: if it was the runtime's last session, its registrations end."""
        self.ended.note(session.runtime_url)
