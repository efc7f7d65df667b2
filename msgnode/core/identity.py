"""Who sends a message, as policies, components and the traffic record see it. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

BROKER_ISSUER = "urn:mqtt-broker"
"""Stands for the operator's MQTT broker, which says who a device behind it is."""
API_KEY_ISSUER = "urn:api-key"
"""Stands for the operator, who has given a network server its key."""
OWN_ISSUERS = frozenset({BROKER_ISSUER, API_KEY_ISSUER})


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
    `aliases` are the other user URLs that its issuer asserts for it. `expires` is in seconds since
    the epoch, 0 for an identity without an end.
    """

    issuer: str
    subject: str
    username: str = ""
    idp_domain: str = ""
    user_url: str = ""
    guid: str = ""
    groups: tuple[str, ...] = ()
    expires: float = 0.0
    aliases: tuple[str, ...] = ()

    def is_known_as(self, user_url: str) -> bool:
        """Whether a user URL, or a name alone (an e-mail address), is theirs by their issuer."""
        known = [each.lower() for each in (self.user_url, *self.aliases) if each]
        asked = user_url.rstrip("/").lower()
        if "://" in asked:
            return asked in known
        return bool(asked) and asked in (each.rpartition("/")[2] for each in known)


@dataclass(frozen=True, slots=True)
class Speaker:
    """The sender of a message: the session that carries it and the identity behind it, or none.

    `peer` is the foreign domain whose node it came from, "" if it came from no other node.
    """

    session_id: str
    runtime_url: str
    origin: Origin = Origin.RUNTIME
    remote_address: str = ""
    identity: Identity | None = None
    peer: str = ""

    @property
    def is_visitor(self) -> bool:
        """Whether it is a runtime of another domain that has come here itself."""
        return self.origin is Origin.FOREIGN and not self.peer

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

        Of the node of a foreign domain only that node may, of a verified subject only that subject,
        of an anonymous speaker whoever the setting allows (`shares`).
        """
        if other.peer and other.peer != self.peer:
            return False
        if other.identity is not None or not shares:
            return self.is_same_subject(other)
        return True

    def without_identity(self) -> Speaker:
        """The same session, with nobody known behind it."""
        return replace(self, identity=None)
