"""The information point: facts that are neither in the message nor in its session.

    rate.<key>.<window>   messages under the sender's (or recipient's) value of the key
    addrAllastMin         address requests of this runtime within a minute
    dstUsername           the verified user behind the recipient
    dstRuntime srcRuntime the runtime of a hyperty
    userRegistries        registry entries of the user a message asks about
    peer                  the domain whose node the message goes to

Rules
- Nothing here waits. What must be fetched is asked for before a message is judged (`prepare`,
  which raises Pending once for it); a fact that could not be had raises CannotEvaluate.
- A message is counted once, when it comes in; what it asks for includes itself.
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
"""Attributes that are not in memory until they are asked for."""


class AttributeSource(Protocol):
    """What the node and its registry know of addresses. Answers at once, from memory."""

    def identity_of(self, address: str) -> Identity | None:
        """Whose the address is, if that is verified."""
        ...

    def runtime_of(self, address: str) -> str | None:
        """The URL of the runtime the address is in."""
        ...

    def entries_of(self, user_url: str) -> list[Any] | None:
        """The hyperties a user has registered, None if that is not known in time."""
        ...

    def prepare(self, user_url: str) -> None:
        """Raise Pending if a user's entries must be waited for."""
        ...

    def peer_of(self, address: str) -> str | None:
        """The domain whose node a message to the address goes to, if it leaves this one."""
        ...


@dataclass(frozen=True, slots=True)
class NoAttributes:
    """A directory that knows nobody."""

    def identity_of(self, address: str) -> Identity | None:
        """Nobody."""
        return None

    def runtime_of(self, address: str) -> str | None:
        """Nowhere."""
        return None

    def entries_of(self, user_url: str) -> list[Any] | None:
        """Nothing."""
        return None

    def prepare(self, user_url: str) -> None:
        """Nothing is ever waited for."""

    def peer_of(self, address: str) -> str | None:
        """Nothing leaves."""
        return None


class InformationPoint:
    """Looks facts up for one worker."""

    def __init__(
        self, directory: AttributeSource | None = None, rates: Rates | None = None
    ) -> None:
        self.directory = directory or NoAttributes()
        self.rates = rates if rates is not None else Rates()

    def surroundings(self, now: Callable[[], datetime], node: Mapping[str, Any]) -> Surroundings:
        """What Facts need to ask this point."""
        return Surroundings(now=now, node=node, look_up=self.look_up)

    def prepare(self, facts: Facts) -> None:
        """Raise Pending if what is FETCHED must be waited for."""
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
        if name == "srcRuntime":
            return self.directory.runtime_of(facts.message.sender)
        if name == REGISTRIES:
            user = facts["valueUser"]
            return self.directory.entries_of(user) if isinstance(user, str) else None
        return None

    def note(self, names: frozenset[str], facts: Facts) -> None:
        """Count an incoming message under those of the names that are counters."""
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
