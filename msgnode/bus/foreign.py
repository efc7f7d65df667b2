"""Explains why a message to an address of a foreign domain is not delivered."""

from __future__ import annotations

from typing import Protocol

from msgnode.core.errors import NodeError


class ForeignDomains(Protocol):
    """What this node knows about the nodes of other domains."""

    def refusal(self, to: str) -> NodeError | None:
        """Why a message does not reach a foreign address; None if there is nothing to add."""
        ...


class NoForeignDomains:
    """The ForeignDomains of a node without federation."""

    def refusal(self, to: str) -> NodeError | None:
        """Always None."""
        return None


NO_FOREIGN_DOMAINS = NoForeignDomains()
