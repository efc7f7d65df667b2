"""The commands and searches of the domain registry, as plain values.

The REST interface, the connector and the console create them; the store executes them. Input from
clients has already been checked (`registry.records`), so a command is well-formed. `by` is the
client; None is the node itself, or an account that may change every entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .entries import Cause, Entry, Kind
from .ownership import Claimant


@dataclass(frozen=True, slots=True)
class Register:
    """Register a hyperty or data object, or replace it as its owner."""

    kind: Kind
    url: str
    facts: Mapping[str, Any]
    user: str = ""
    by: Claimant | None = None


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Keep an entry alive, without changes."""

    kind: Kind
    url: str
    by: Claimant | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Replace some fields."""

    kind: Kind
    url: str
    facts: Mapping[str, Any]
    by: Claimant | None = None


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Disconnect an entry; with `user`, only if it is that user's."""

    kind: Kind
    url: str
    user: str | None = None
    cause: Cause = Cause.DELETED
    by: Claimant | None = None


Command = Register | KeepAlive | Update | Disconnect


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a command: the entry after it, and whether its status has changed."""

    entry: Entry
    status_changed: bool


@dataclass(frozen=True, slots=True)
class Search:
    """A search: one key, and further conditions. Unused keys are "".

    `scheme` restricts data objects to URLs of one scheme. With `kind` OBJECT the keys user, email
    and guid find the objects whose reporter is a hyperty found by that key.
    """

    kind: Kind
    user: str = ""
    email: str = ""
    guid: str = ""
    runtime: str = ""
    name: str = ""
    reporter: str = ""
    url: str = ""
    scheme: str = ""
    resources: tuple[str, ...] = ()
    data_schemes: tuple[str, ...] = ()

    @classmethod
    def by(cls, kind: Kind, key: str, value: str, **more: Any) -> Search:
        """Make a search by the key of this name."""
        return cls(kind, **{key: value, **more})
