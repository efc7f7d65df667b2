"""Who holds an address that the routing table does not know: asked of the other workers."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol


class Holders(Protocol):
    """What this worker can find out of the others. `key` names the message that needs it."""

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        """See that who holds these addresses on another worker is in the routing table.

        Raises:
            Pending: it is being found out; the message is to come again.
        """
        ...

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """The same, where nothing may be done without it.

        Raises:
            Pending: it is being found out; the message is to come again.
            Unavailable: it cannot be found out.
        """
        ...

    def is_known(self, address: str) -> bool:
        """Whether an address that is not in the routing table is nobody's, on any worker."""
        ...


class NoOthers:
    """The one worker of a node: its routing table knows everything. Implements Holders."""

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        """Nobody else holds anything."""

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """Nobody else holds anything."""

    def is_known(self, address: str) -> bool:
        """Always."""
        return True


NO_OTHERS = NoOthers()
