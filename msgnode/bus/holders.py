"""Who holds an address that the routing table does not know: asked of the other workers."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol

from msgnode.core import addresses
from msgnode.core.messages import Message

from . import delivery, routes
from .ports import Requester
from .routes import ComponentBook, Nowhere, Route, ToComponent
from .table import RoutingTable


class Holders(Protocol):
    """What this worker can find out of the others. `key` names the message that needs it."""

    def find(self, key: Hashable, addresses: Collection[str], heard: Collection[str] = ()) -> None:
        """See that who holds these addresses on another worker is in the routing table.

        And so all that listen to those `heard`.

        Raises:
            Pending: it is being found out; the message is to come again.
        """
        ...

    def hears(self, address: str) -> bool:
        """Whether all that have subscribed an address are in the routing table."""
        ...

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """The same, where nothing may be done without it.

        Raises:
            Pending: it is being found out; the message is to come again.
            Unavailable: it cannot be found out.
        """
        ...

    def find_runtime(self, key: Hashable, runtime_url: str) -> None:
        """See that the sessions of a runtime, and of those above and below it, are in the table.

        In both spellings of its URL. While nobody can be asked at all, what is in the table counts.

        Raises:
            Pending: they are being found out; who asks is to come again.
            Unavailable: one is with a worker that does not answer.
        """
        ...

    def is_known(self, address: str) -> bool:
        """Whether an address that is not in the routing table is nobody's, on any worker."""
        ...


class NoOthers:
    """The one worker of a node: its routing table knows everything. Implements Holders."""

    def find(self, key: Hashable, addresses: Collection[str], heard: Collection[str] = ()) -> None:
        """Nobody else holds or hears anything."""

    def hears(self, address: str) -> bool:
        """Always."""
        return True

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """Nobody else holds anything."""

    def find_runtime(self, key: Hashable, runtime_url: str) -> None:
        """All sessions are here."""

    def is_known(self, address: str) -> bool:
        """Always."""
        return True


NO_OTHERS = NoOthers()


def find_holders(
    holders: Holders,
    message: Message,
    session: Requester,
    components: ComponentBook,
    table: RoutingTable,
    domain: str,
) -> Route | None:
    """Find out who holds what this message is for or about, where nobody here knows.

    Returns:
        The route to its last recipient, if that had to be chosen.
    """
    route: Route | None = None
    missing: list[str] = []
    needed: list[str] = []
    unheard: list[str] = []
    for to in message.recipients:
        if to in table.owners:
            continue
        scheme = to.partition(":")[0].lower()
        if scheme in addresses.RUNTIME_SCHEMES:
            both = (to, addresses.runtime_twin(to))
            unheard += [each for each in both if each and not holders.hears(each)]
        elif scheme not in addresses.NODE_SCHEMES and not holders.hears(to):
            unheard.append(to)
        if not delivery.expects_answer(message, to):
            continue
        route = routes.choose(message, to, components, table, domain, session)
        if isinstance(route, Nowhere):
            missing.append(to)
        elif isinstance(route, ToComponent):
            named = route.component.addresses_of(message)
            needed += [each for each in named if table.owner_of(each) is None]
    if missing or unheard:
        holders.find((session.id, message.id, "to"), missing, unheard)
    if needed:
        holders.require((session.id, message.id, "about"), needed)
    return route
