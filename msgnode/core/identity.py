"""Who sends a message, as policies, components and the traffic record see it. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Origin(StrEnum):
    """Where a message entered the node."""

    RUNTIME = "runtime"
    FOREIGN = "foreign"
    COMPONENT = "component"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified identity. Only verification makes one; never text of a message body.

    `username` is the e-mail address, else the preferred user name, else the user URL.
    `expires` is in seconds since the epoch, 0 for an identity without an end.
    """

    issuer: str
    subject: str
    username: str = ""
    idp_domain: str = ""
    user_url: str = ""
    guid: str = ""
    groups: tuple[str, ...] = ()
    expires: float = 0.0


@dataclass(frozen=True, slots=True)
class Speaker:
    """The sender of a message: the session that carries it and the identity behind it, or none."""

    session_id: str
    runtime_url: str
    origin: Origin = Origin.RUNTIME
    remote_address: str = ""
    identity: Identity | None = None

    def is_same_subject(self, other: Speaker) -> bool:
        """Whether both have a verified identity and it is one and the same."""
        mine, theirs = self.identity, other.identity
        return (
            mine is not None
            and theirs is not None
            and (mine.issuer, mine.subject) == (theirs.issuer, theirs.subject)
        )

    def may_follow(self, other: Speaker, shares: bool) -> bool:
        """Whether this one may take up what the other has.

        Of a verified subject only that subject may, of an anonymous speaker whoever the setting
        allows (`shares`).
        """
        if other.identity is not None or not shares:
            return self.is_same_subject(other)
        return True

    def without_identity(self) -> Speaker:
        """The same session, with nobody known behind it."""
        return replace(self, identity=None)
