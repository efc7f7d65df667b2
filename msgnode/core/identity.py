"""The sender of a message, as policies, components and the traffic record see it. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

BROKER_ISSUER = "urn:mqtt-broker"
"""The issuer of identities that the operator's MQTT broker vouches for."""
API_KEY_ISSUER = "urn:api-key"
"""The issuer of identities of API keys, which the operator has given to network servers."""
OWN_ISSUERS = frozenset({BROKER_ISSUER, API_KEY_ISSUER})


class Origin(StrEnum):
    """Where a message entered the node."""

    RUNTIME = "runtime"
    FOREIGN = "foreign"
    COMPONENT = "component"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified identity; made by verification only, never from the text of a message body.

    `username` is the e-mail address, else another name its issuer vouches for, else the user URL.
    `aliases` are the other user URLs that its issuer asserts for it. `expires` is in seconds since
    the epoch, 0 for an identity that does not expire; `issued` is when its token was issued, 0 if
    unknown. `name_claim` is the issuer's setting by which it was named, None if unknown.
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
    issued: float = 0.0
    name_claim: str | None = None

    def is_known_as(self, user_url: str) -> bool:
        """Whether the issuer asserts this user URL, or name (an e-mail address), for the user."""
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
        """Whether it is a visitor: a runtime of another domain with a session here."""
        return self.origin is Origin.FOREIGN and not self.peer

    def is_same_subject(self, other: Speaker) -> bool:
        """Whether both have the same verified identity."""
        mine, theirs = self.identity, other.identity
        return (
            mine is not None
            and theirs is not None
            and (mine.issuer, mine.subject) == (theirs.issuer, theirs.subject)
        )

    def may_follow(self, other: Speaker, shares: bool) -> bool:
        """Whether this speaker may take over what the other holds.

        Only the same node may follow the node of a foreign domain, and only the same subject a
        verified subject. An anonymous speaker may be followed if the setting allows it (`shares`).
        """
        if other.peer and other.peer != self.peer:
            return False
        if other.identity is not None or not shares:
            return self.is_same_subject(other)
        return True

    def without_identity(self) -> Speaker:
        """The same speaker without its identity."""
        return replace(self, identity=None)
