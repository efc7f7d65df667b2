"""Who holds an address that the routing table does not know: asked of the other workers."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol

from msgnode.core import addresses
from msgnode.core.messages import Message

from .ports import Requester
from .routes import ComponentBook
from .table import RoutingTable


class Holders(Protocol):
    """What this worker can find out of the others. `key` names the message that needs it."""

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        """See that all that hold or hear these addresses, on any worker, are in the routing table.

        And so those that hold what is above them.

        Raises:
            Pending: it is being found out; the message is to come again.
        """
        ...

    def hears(self, address: str) -> bool:
        """Whether all that hold or hear an address are in the routing table."""
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

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
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
) -> None:
    """See that it is known here who holds and hears what this message is for or about.

    Raises:
        Pending: it is being found out; the message is to come again.
        Unavailable: what a component needs cannot be found out.
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
                missing.append(peer)  # its session may be another worker's
        component = components.find(to)
        if component is not None:  # whoever watches its own address: what it is about counts
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
