"""The connector to the domain registry, domain://registry.<domain>, embedded or remote.

Every message gets one answer, as in docs/reference/registry.md, section A5: 200 with or without
`value`, 404 "Not Found", 408 "Temporarily Unavailable" with the records, 504 when a remote registry
is out of reach. Who may change an entry is checked in two steps: here by what the node knows in
memory, that is who owns the addresses and the user id in the request (403); in the registry by who
owns the entry. An anonymous session may register under any user id, so whoever finds its entries
cannot rely on that. When the last session of a runtime has ended, its registrations become
`disconnected`, after a grace period if the runtime closed it itself (ended_runtimes).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.ownership import Ownership
from msgnode.bus.ports import CLOSED_BY_RUNTIME, Body, Component, Listener
from msgnode.core import addresses
from msgnode.core.errors import Forbidden, NodeError
from msgnode.core.messages import Message
from registry.api import Claimant, subject_mark

from .ended_runtimes import EndedRuntimes
from .registry_requests import (
    Change,
    Find,
    Refresh,
    Register,
    Remove,
    Request,
    possible_urls,
    request_of,
)


class Registry(Protocol):
    """The registry behind the connector."""

    def carry_out(self, request: Request, by: Claimant | None) -> Awaitable[Body]:
        """Answer a request; `by` is the client for a change, None the node itself."""
        ...

    async def runtimes_gone(
        self, runtime_urls: Sequence[str], live: Mapping[str, frozenset[str]]
    ) -> None:
        """Disconnect the entries of runtimes that have no session any more.

        For those in `live`, which have some, disconnect the entries of owners whose marks are
        missing.
        """
        ...


class DomainRegistryConnector(Component):
    """Relays to a Registry; see the head of the file."""

    name = "domain-registry"
    kind = "connector"
    cancels = True

    def __init__(
        self,
        domain: str,
        registry: Registry,
        ownership: Ownership,
        written: Callable[[], Awaitable[Any]],
        grace: float,
        budget: AddressBudget,
    ) -> None:
        super().__init__((f"domain://registry.{domain}",))
        self._budget = budget
        self._registered: dict[str, set[str]] = {}  # session id -> URLs it has registered
        self._domain = domain
        self._registry = registry
        self._ownership = ownership
        self.ended = EndedRuntimes(registry.runtimes_gone, written, grace)

    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        """Execute a request; only the holder of an address may claim it."""
        fields = message.fields()
        request = request_of(message.type, fields, self._domain, caller.runtime_url)
        if isinstance(request, Find):
            return self._registry.carry_out(request, None)
        request = self._of_caller(request, caller)
        self._check(request, caller)
        if isinstance(request, Register):
            self._count(request.url, caller)
        return self._registry.carry_out(request, self._claimant(request, caller))

    def addresses_of(self, message: Message) -> list[str]:
        """The addresses that a request claims, whose holders must be known first."""
        with suppress(NodeError):  # the answer says so
            request = request_of(message.type, message.fields(), self._domain)
            if isinstance(request, Find):
                return []
            facts = request.body if isinstance(request, Register | Change) else {}
            named = possible_urls(request.url) + tuple(
                map(facts.get, ("runtime", "p2pHandler", "reporter"))
            )
            return [each for each in named if isinstance(each, str) and each]
        return []

    def _of_caller(
        self, request: Change | Register | Refresh | Remove, caller: Listener
    ) -> Change | Register | Refresh | Remove:
        """The request; what names an object by its id alone is for the caller's of that id."""
        urls = possible_urls(request.url)
        if urls == (request.url,):
            return request
        mine = (url for url in urls if self._ownership.holds(url, caller))
        return replace(request, url=next(mine, urls[0]))

    def _check(self, request: Change | Register | Refresh | Remove, caller: Listener) -> None:
        """Whether the addresses a request names are the caller's. Raises Forbidden."""
        if request.url:
            self._check_address(request.url, caller)
        if isinstance(request, Register) and request.user:
            self._check_user(request.user, caller)
        if isinstance(request, Register | Change):
            self._check_facts(request.body, caller)

    def _count(self, url: str, caller: Listener) -> None:
        """Count an entry as an address of the session that made it, until that ends.

        Its row stays when it is removed.

        Raises:
            TooMany: the session's source or subject has as many as it may have.
        """
        known = self._registered.get(caller.id, ())
        if url in known:
            return
        self._budget.check(caller, [url])
        self._budget.take(caller, [url])
        if caller.is_here:
            self._registered.setdefault(caller.id, set()).add(url)

    def _check_user(self, user: str, caller: Listener) -> None:
        """Whether a hyperty may be entered under this user id. Raises Forbidden."""
        identity = caller.speaker.identity
        if identity is not None and not identity.is_known_as(user):
            raise Forbidden(f"{user} is not this session's user, {identity.user_url}.")

    def _check_facts(self, facts: Mapping[str, Any], caller: Listener) -> None:
        runtime, handler = facts.get("runtime"), facts.get("p2pHandler")
        if isinstance(runtime, str) and not self._is_runtime_of(runtime.rstrip("/"), caller):
            raise Forbidden(f"The runtime {runtime} is not this session's.")
        if isinstance(handler, str) and not (
            self._is_runtime_of(handler, caller) or self._ownership.holds(handler, caller)
        ):
            raise Forbidden(f"The P2P handler {handler} is not this session's.")
        reporter = facts.get("reporter")
        if isinstance(reporter, str):
            self._check_address(reporter, caller)

    def _check_address(self, address: str, caller: Listener) -> None:
        self._ownership.check(address, caller, caller.speaker, self._ownership.shares_with)

    def _is_runtime_of(self, url: str, caller: Listener) -> bool:
        """Whether a runtime's address is the caller's, or is one that a foreign node speaks for."""
        if addresses.fault(url):
            return False
        if self._ownership.is_below_runtime(url, caller):
            return True
        owner = self._ownership.owner_of(url)
        home = addresses.parse(caller.runtime_url).home
        is_free = owner is None or owner is caller
        return is_free and home != self._domain and addresses.parse(url).home == home

    def _claimant(self, request: Request, caller: Listener) -> Claimant:
        identity = caller.speaker.identity
        url = caller.runtime_url
        return Claimant(
            session=caller.id,
            subject=subject_mark(identity.issuer, identity.subject) if identity else "",
            runtimes=tuple(filter(None, (url, addresses.runtime_twin(url)))),
            holds=self._ownership.holds(getattr(request, "url", ""), caller),
            shares=self._ownership.shares,
        )

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd: if it was the runtime's last session, its registrations end."""
        self.session_handed_off(session.id)
        if session.runtime_url:
            self.ended.note(session.runtime_url, None if reason == CLOSED_BY_RUNTIME else 0.0)

    def session_handed_off(self, session_id: str) -> None:
        """A session counts here no longer."""
        if self._registered.pop(session_id, None) is not None:
            self._budget.forget(session_id)
