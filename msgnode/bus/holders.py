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
        """Nobody else holds anything."""

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """Nobody else holds anything."""

    def find_runtime(self, key: Hashable, runtime_url: str) -> None:
        """All sessions are here."""

    def is_known(self, address: str) -> bool:
        """Always."""
        return True


NO_OTHERS = NoOthers()
