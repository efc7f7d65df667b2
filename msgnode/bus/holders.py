"""Finds out from other workers who holds an address that the routing table does not know."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol

from msgnode.core import addresses
from msgnode.core.messages import Message

from .ports import Requester
from .routes import ComponentBook
from .table import RoutingTable


class Holders(Protocol):
    """Queries the other workers. `key` identifies the message that needs the result."""

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        """Ensure the routing table has the holders and subscribers of these addresses everywhere.

        Holders of addresses above them are included.

        Raises:
            Pending: the query is running; carry the message again afterwards.
        """
        ...

    def hears(self, address: str) -> bool:
        """Whether the routing table has all holders and subscribers of an address."""
        ...

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """As `find`, for a message that must not be carried without the result.

        Raises:
            Pending: the query is running; carry the message again afterwards.
            Unavailable: the query has failed.
        """
        ...

    def find_runtime(self, key: Hashable, runtime_url: str) -> None:
        """Ensure the table has the sessions of a runtime and of runtimes above and below its URL.

        Both spellings of the URL are covered. If no worker can be queried, the table counts as
        complete.

        Raises:
            Pending: the query is running; ask again afterwards.
            Unavailable: a worker that has such a session does not answer.
        """
        ...

    def is_known(self, address: str) -> bool:
        """Whether an address missing from the routing table is certainly held by nobody."""
        ...

    def is_runtime_known(self, runtime_url: str) -> bool:
        """Whether a session of a runtime that is missing from the table has certainly ended."""
        ...

    def miss_response(self, address: str) -> None:
        """Note that a response did not reach an address, of which is not known whose it is."""
        ...


class NoOthers:
    """Holders of a node with one worker: its routing table is always complete."""

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        """Do nothing: there are no other workers."""

    def hears(self, address: str) -> bool:
        """Always true."""
        return True

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """Do nothing: there are no other workers."""

    def find_runtime(self, key: Hashable, runtime_url: str) -> None:
        """Do nothing: all sessions are in the table."""

    def is_known(self, address: str) -> bool:
        """Always true."""
        return True

    def is_runtime_known(self, runtime_url: str) -> bool:
        """Always true."""
        return True

    def miss_response(self, address: str) -> None:
        """Do nothing: whose an address is is always known."""


NO_OTHERS = NoOthers()


def find_holders(
    holders: Holders,
    message: Message,
    session: Requester,
    components: ComponentBook,
    table: RoutingTable,
) -> None:
    """Ensure the table has the holders and subscribers of what a message is sent to or about.

    Raises:
        Pending: a query is running; carry the message again afterwards.
        Unavailable: a query that a component depends on has failed.
    """
    missing: list[str] = []
    needed: list[str] = []
    for to in message.recipients:
        owner = table.owners.get(to)
        if owner is not None and owner.is_here:
            continue
        if table.peers:
            peer = table.peers.get(addresses.parse(to).home)
            if peer and not holders.hears(peer):
                missing.append(peer)  # its session may be on another worker
            asker = _asker(message, to, table)
            if asker and asker != peer and not holders.hears(asker):
                missing.append(asker)  # a visitor, who has asked beside the node of its domain
        component = components.find(to)
        if component is not None:  # what matters is what the message is about, not the address
            for each in component.addresses_of(message):
                is_own = table.owners.get(each) is session or each == session.runtime_url
                if not is_own and not holders.hears(each):
                    needed.append(each)
        elif not holders.hears(to) and to not in table.probes:
            missing.append(to)
    if missing:
        holders.find((session.id, message.id, "to"), missing)
    if needed:
        holders.require((session.id, message.id, "about"), needed)


def _asker(message: Message, to: str, table: RoutingTable) -> str:
    """The runtime that a response is for, "" if that is not remembered, or it is none."""
    path = table.return_paths.find(to, message.id_key) if message.is_response else None
    return path.runtime_url if path is not None else ""
