"""Whose an address is: the one place that says which addresses a session may call its own.

Everything that acts in the name of an address asks here: to speak as it (admission), to claim it
(subscriptions), to register it (the domain registry).

Rules (docs/reference/messages.md, sections 3, 4 and 11)
- A session's own are its runtime URL (in both spellings) and everything below it, the addresses it
  holds and everything below them, and any address of its domain that nobody holds.
- An address that a verified subject held last stays theirs while nobody holds it.
- Its domain is that of its runtime URL, the node's or another (a visitor's); that of its verified
  identity; and that of an address it was given. Of the node's domain a visitor has no more. Stub
  addresses (`runtime://<domain>/protostub/…`, `…/p2prequester/…`) stand in the domain they lead to,
  whoever has the stub.
- Nobody is a component of a node, nor a whole domain. A node of a foreign domain may be that
  domain's.
- For a foreign domain whose node is a peer, that node speaks, in whichever of its sessions: the one
  behind its stub here, and those that it has opened here itself, as was proved (`speaker.peer`). A
  visitor of that domain has its own addresses alone.
- A runtime that came back with a new session stands in for the lost one, as the settings allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgnode.core import addresses
from msgnode.core.addresses import Address
from msgnode.core.errors import Forbidden
from msgnode.core.identity import Speaker

from .last_owners import LastOwnerCache
from .ports import Listener
from .table import RoutingTable

StandsIn = Callable[[str, Listener, Any], bool]
"""Whether for an address of one session another may speak all the same."""


class Ownership:
    """One instance per worker."""

    def __init__(
        self, table: RoutingTable, last_owners: LastOwnerCache, domain: str, shares: bool
    ) -> None:
        self.shares = shares
        self._table = table
        self._last_owners = last_owners
        self._domain = addresses.home_domain(domain)

    def is_below_runtime(self, address: str, session: Listener) -> bool:
        """Whether the address is the session's runtime URL or lies below it, in either spelling."""
        url = session.runtime_url
        return addresses.is_under(address, url) or addresses.is_under(
            addresses.runtime_twin(address), url
        )

    def check(
        self,
        address: str,
        session: Listener,
        speaker: Speaker,
        stands_in: StandsIn | None = None,
    ) -> None:
        """Whether a session may call this address its own.

        Args:
            address: any address.
            session: who wants to act in its name.
            speaker: the session's, with the identity the message was said under.
            stands_in: asked about an address of another session that the rules keep it from.

        Raises:
            Forbidden: it may not; the text says why.
        """
        owner = self._table.owner_of(address)
        if self.is_below_runtime(address, session):
            if owner is not None and owner.runtime_url != session.runtime_url:
                raise Forbidden(f"{address} belongs to another session.")
            return
        parsed = addresses.parse(address)
        if parsed.domain and not parsed.path.strip("/"):
            raise Forbidden(f"{address} names a whole domain; nobody speaks for all of it.")
        if parsed.scheme in addresses.NODE_SCHEMES and not self._is_foreign_node(parsed, session):
            raise Forbidden(f"{address} is an address of a node; a runtime cannot speak as it.")
        if owner is session:
            return
        stands_in = stands_in or self.follows
        if (
            owner is not None
            and not stands_in(address, owner, session)
            and not self._are_of_one_node(parsed.home, owner, session)
        ):
            raise Forbidden(f"{address} belongs to another session.")
        if not self._last_owners.allow(address, session.speaker):
            raise Forbidden(f"{address} belongs to a subject that this session has not logged in.")
        if owner is None:
            self.check_domain(address, session, speaker)

    def check_domain(self, address: str, session: Listener, speaker: Speaker) -> None:
        """Look whether an address that nobody holds is of a domain the session may speak for.

        Raises:
            Forbidden: it is not.
        """
        parsed = addresses.parse(address)
        home = parsed.home or _mailbox_domain(parsed)
        own = addresses.parse(session.runtime_url).home or self._domain
        if not home or home == own == self._domain or addresses.is_stub(parsed):
            return
        if home in self._table.peers and not self._is_of_node(home, session):
            raise Forbidden(f"{address} is of the domain {home}, whose node speaks for it.")
        identity = speaker.identity
        if home == own or (
            identity is not None
            and home in (identity.idp_domain.lower(), addresses.parse(identity.user_url).home)
        ):
            return
        if home == self._domain:
            if self._last_owners.owned_by(address, session.speaker):
                return
            raise Forbidden(f"{address} is of this domain: a visitor has what it was given here.")
        raise Forbidden(f"{address} is of the domain {home}, for which this session cannot speak.")

    def follows(self, address: str, owner: Listener | None, session: Listener) -> bool:
        """Whether the session is the same runtime's that came back after the owner was lost."""
        return (
            owner is not None
            and owner.runtime_url == session.runtime_url
            and not owner.is_connected
            and session.speaker.may_follow(owner.speaker, self.shares)
        )

    def shares_with(self, address: str, owner: Listener, session: Listener) -> bool:
        """Whether both are sessions of one runtime or of one subject that share what they hold."""
        if owner.runtime_url == session.runtime_url:
            return session.speaker.may_follow(owner.speaker, self.shares)
        return session.speaker.is_same_subject(owner.speaker)

    def owner_of(self, address: str) -> Listener | None:
        """The session that holds the address, or the nearest address above it."""
        return self._table.owner_of(address)

    def holds(self, address: str, session: Listener) -> bool:
        """Whether the session holds the address, or shares it with the one that does."""
        owner = self._table.owners.get(address)
        return owner is not None and (owner is session or self.shares_with(address, owner, session))

    def _is_of_node(self, domain: str, session: Listener) -> bool:
        """Whether a session is the node's of a domain that is a peer."""
        peer = self._table.peers.get(domain)
        return peer is not None and (session.runtime_url == peer or session.speaker.peer == domain)

    def _are_of_one_node(self, domain: str, owner: Listener, session: Listener) -> bool:
        return self._is_of_node(domain, owner) and self._is_of_node(domain, session)

    def _is_foreign_node(self, parsed: Address, session: Listener) -> bool:
        home = addresses.parse(session.runtime_url).home
        return bool(parsed.domain) and home != self._domain and parsed.home == home


def _mailbox_domain(parsed: Address) -> str:
    """The domain of an address like `sip:bob@legacy.example`, "" of any other."""
    has_mailbox = "@" in parsed.path and not parsed.domain
    return parsed.path.rpartition("@")[2].lower() if has_mailbox else ""
