"""The two registries of a node, embedded or remote as the settings say, with their connectors.

A remote registry is named by its base URL (DOMAIN_URL, GLOBAL_URL); without one the embedded
registry answers. Instead of either, a script may (Instead).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.ownership import Ownership
from msgnode.net.back_end import BackEnd
from registry.api import GLOBAL_WRITES_PER_MINUTE

from .domain_registry import DomainRegistryConnector, Registry
from .embedded_registry import EmbeddedRegistry
from .global_registry import (
    EmbeddedGlobalRegistry,
    GlobalRegistry,
    GlobalRegistryConnector,
    RemoteGlobalRegistry,
)
from .registration_news import Post, leave
from .registry_requests import UNREACHABLE
from .remote_registry import News, RemoteRegistry

REMOTE_SECONDS, REMOTE_RETRIES = 3.0, 2
"""Of one try; tries after a transport error. Together less than who asked waits for an answer."""
REMOTE_CONNECTIONS = 32
"""At a time; further requests wait for one of them."""


class Instead(Protocol):
    """What stands before the registries of the settings, and asks them where nothing else does."""

    def domain_registry(self, otherwise: Registry, unavailable_code: int, news: News) -> Registry:
        """The domain registry to ask."""
        ...

    def global_registry(self, otherwise: GlobalRegistry) -> GlobalRegistry:
        """The global registry to ask."""
        ...


class Registries:
    """What node/parts.py wires: two components, jobs that run with the node, the end of both."""

    def __init__(
        self,
        domain: str,
        settings: Mapping[str, Any],
        post: Post,
        ownership: Ownership,
        written: Callable[[], Awaitable[Any]],
        budget: AddressBudget,
        embedded: EmbeddedRegistry,
        instead: Instead,
    ) -> None:
        self._embedded = embedded
        self._remote: RemoteRegistry | None = None
        self._back_ends: list[BackEnd] = []
        registry: Registry = self._embedded
        news = partial(leave, post)
        if base := settings["DOMAIN_URL"]:
            back_end = self._back_end(base, UNREACHABLE, settings)
            self._remote = RemoteRegistry(back_end, settings["UNAVAILABLE_CODE"], news)
            registry = self._remote
        registry = instead.domain_registry(registry, settings["UNAVAILABLE_CODE"], news)
        self._records = EmbeddedGlobalRegistry(self._embedded)
        records: GlobalRegistry = self._records
        if base := settings["GLOBAL_URL"]:
            text = "Error contacting the global registry."
            records = RemoteGlobalRegistry(self._back_end(base, text, settings))
        records = instead.global_registry(records)
        grace = float(settings["CLOSE_GRACE"])
        self.domain = DomainRegistryConnector(domain, registry, ownership, written, grace, budget)
        self.global_ = GlobalRegistryConnector(records, GLOBAL_WRITES_PER_MINUTE)

    def _back_end(self, base: str, text: str, settings: Mapping[str, Any]) -> BackEnd:
        back_end = BackEnd(base, text, REMOTE_SECONDS, REMOTE_RETRIES, REMOTE_CONNECTIONS)
        self._back_ends.append(back_end)
        return back_end

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the node: the ends of runtimes, the feed of a remote registry."""
        feed = [self._remote.run()] if self._remote else []
        return [self.domain.ended.run(), *feed]

    async def stop(self) -> None:
        """Close what is open."""
        self._records.stop()
        await self._embedded.stop()
        for back_end in self._back_ends:
            await back_end.close()
