"""What can be asked of the domain registry: changes and searches as plain values.

The REST interface, the connector and the console make them; the store carries them out. Reading
them from what clients sent (`registry.records`) has happened before, so a command is well-formed.
`by` is who asks for it; None is the node itself, or an account that may change every entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .entries import Cause, Entry, Kind
from .ownership import Claimant


@dataclass(frozen=True, slots=True)
class Register:
    """Enter a hyperty or data object, or replace it as its owner."""

    kind: Kind
    url: str
    facts: Mapping[str, Any]
    user: str = ""
    by: Claimant | None = None


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """A sign of life without news."""

    kind: Kind
    url: str
    by: Claimant | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Replace some facts."""

    kind: Kind
    url: str
    facts: Mapping[str, Any]
    by: Claimant | None = None


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Take an entry out of service; with `user`, only if it is that user's."""

    kind: Kind
    url: str
    user: str | None = None
    cause: Cause = Cause.DELETED
    by: Claimant | None = None


Command = Register | KeepAlive | Update | Disconnect


@dataclass(frozen=True, slots=True)
class Done:
    """A command carried out: the entry after it and whether its status is another than before."""

    entry: Entry
    status_changed: bool


@dataclass(frozen=True, slots=True)
class Search:
    """A search: one key, and what the matches must have besides. Unused keys are "".

    `scheme` narrows data objects to URLs of one scheme. With `kind` OBJECT the keys user, email
    and guid find the objects whose reporter is a hyperty they find.
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
        """A search by the key of this name."""
        return cls(kind, **{key: value, **more})
