"""What is to be said of an address of a foreign domain that nobody here listens to."""

from __future__ import annotations

from typing import Protocol

from msgnode.core.errors import NodeError


class ForeignDomains(Protocol):
    """What this node knows of the nodes of other domains."""

    def refusal(self, to: str) -> NodeError | None:
        """Why a message does not reach a foreign address; None if there is nothing to add."""
        ...


class NoForeignDomains:
    """A node that is not joined to others. Implements ForeignDomains."""

    def refusal(self, to: str) -> NodeError | None:
        """Nothing is known of them."""
        return None


NO_FOREIGN_DOMAINS = NoForeignDomains()
