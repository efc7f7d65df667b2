"""The information point: facts that are neither in the message nor in its session.

    rate.<key>.<window>   messages under the sender's (or recipient's) value of the key
    addrAllastMin         address requests of this runtime within a minute
    dstUsername           the verified user of the recipient
    dstRuntime srcRuntime the runtime of a hyperty
    userRegistries        registry entries of the user that a message asks about
    peerWay               whether that is a node or a legacy network
    peer                  the domain whose node the message goes to

Rules
- Nothing here blocks. What must be fetched is requested before the decision (`prepare`, which
  raises Pending once for it); a fact that could not be fetched raises CannotEvaluate.
- A message is counted once, inbound, before its own count is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from msgnode.core.identity import Identity
from msgnode.core.rates import Rates
from policies.engine.attributes import Facts, Surroundings
from policies.engine.vocabulary import RATE, WINDOWS

ALLOCATIONS = "addrAllastMin"
REGISTRIES = "userRegistries"
FETCHED = frozenset({REGISTRIES})
"""Attributes that must be fetched."""


class AttributeSource(Protocol):
    """What the node and its registry know of addresses. Answers from memory, without blocking."""

    def identity_of(self, address: str) -> Identity | None:
        """The verified identity at an address."""
        ...

    def runtime_of(self, address: str) -> str | None:
        """The URL of the runtime at or above an address."""
        ...

    def entries_of(self, user_url: str) -> list[Any] | None:
        """The registry entries of a user, None if they are not known in time."""
        ...

    def prepare(self, user_url: str) -> None:
        """Raise Pending if a user's entries must be waited for."""
        ...

    def peer_of(self, address: str) -> str | None:
        """The domain whose node a message to the address goes to, if it leaves this one."""
        ...

    def way_of(self, peer: str) -> str:
        """What the domain of a peer is: `node` or `legacy`."""
        ...


@dataclass(frozen=True, slots=True)
class NoAttributes:
    """An AttributeSource without any knowledge."""

    def identity_of(self, address: str) -> Identity | None:
        """Always None."""
        return None

    def runtime_of(self, address: str) -> str | None:
        """Always None."""
        return None

    def entries_of(self, user_url: str) -> list[Any] | None:
        """Always empty."""
        return None

    def prepare(self, user_url: str) -> None:
        """Do nothing."""

    def peer_of(self, address: str) -> str | None:
        """Always None."""
        return None

    def way_of(self, peer: str) -> str:
        """Always a node."""
        return "node"


class InformationPoint:
    """Looks facts up for one worker."""

    def __init__(
        self, directory: AttributeSource | None = None, rates: Rates | None = None
    ) -> None:
        self.directory = directory or NoAttributes()
        self.rates = rates if rates is not None else Rates()

    def surroundings(self, now: Callable[[], datetime], node: Mapping[str, Any]) -> Surroundings:
        """The Surroundings with which Facts query this point."""
        return Surroundings(now=now, node=node, look_up=self.look_up)

    def prepare(self, facts: Facts) -> None:
        """Raise Pending if attributes in FETCHED must be waited for."""
        user = facts["valueUser"]
        if isinstance(user, str):
            self.directory.prepare(user)

    def look_up(self, name: str, facts: Facts) -> Any:
        """The value of an attribute, None if there is none."""
        if (rate := RATE.fullmatch(name)) is not None:
            value = facts[rate[1]]
            if not isinstance(value, str):
                return None
            return self.rates.count((name, value), WINDOWS[rate[2]])
        if name == ALLOCATIONS:
            return self.rates.count((name, _requester(facts)), 60)
        if name == "dstUsername":
            identity = self.directory.identity_of(facts.to)
            return (identity.username or None) if identity else None
        if name == "dstRuntime":
            return self.directory.runtime_of(facts.to)
        if name == "peer":
            return self.directory.peer_of(facts.to)
        if name == "peerWay":
            peer = facts["peer"]
            return self.directory.way_of(peer) if isinstance(peer, str) else None
        if name == "srcRuntime":
            return self.directory.runtime_of(facts.message.sender)
        if name == REGISTRIES:
            user = facts["valueUser"]
            return self.directory.entries_of(user) if isinstance(user, str) else None
        return None

    def note(self, names: frozenset[str], facts: Facts) -> None:
        """Count an inbound message under those names that are counters."""
        for name in names:
            if name == ALLOCATIONS:
                if facts["msgType"] == "addressAllocation" and facts["actionType"] == "create":
                    self.rates.note((name, _requester(facts)), 60)
            elif (rate := RATE.fullmatch(name)) is not None:
                value = facts[rate[1]]
                if isinstance(value, str):
                    self.rates.note((name, value), WINDOWS[rate[2]])


def _requester(facts: Facts) -> str:
    return facts.speaker.runtime_url or facts.message.sender
