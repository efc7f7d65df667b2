"""Decides whether a session may act as an address.

Everything that acts in the name of an address asks here: speaking as it (admission), claiming it
(subscriptions), registering it (the domain registry).

Rules (docs/reference/messages.md, sections 3, 4 and 11)
- Nobody acts as an address that is not in canonical form, or there would be two holders of one.
- A session may act as its runtime URL (in both spellings) and everything below it, the addresses it
  holds and everything below them, and any address of its domains that nobody holds.
- While nobody holds an address, it is reserved for the verified subject that held it last.
- Its domains are those of its runtime URL (the node's, or a visitor's own) and of its verified
  identity. In the node's domain a visitor has only the addresses it was given. Stub addresses
  (`runtime://<domain>/protostub/…`, `…/p2prequester/…`, `…/p2phandler/…`) name the domain they lead
  to, and any session may have one.
- No session may act as a component of the node or as a whole domain. The node of a foreign domain
  may act as that domain's components.
- A foreign domain whose node is a peer is spoken for by that node, in any of its sessions: the one
  behind its stub here and those it has opened here itself, as proved (`speaker.peer`). A visitor of
  that domain has its own addresses only. If its runtimes may come beside the node, it may speak as
  others of its domain, too, but holds none of them: `may_speak_beside_node`.
- A runtime that returns with a new session may act for its lost one, as the settings allow.
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
"""`stands_in(address, owner, session)`: whether the session may act for the owner's address."""


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
        """Check that a session may act as an address.

        Args:
            address: any address.
            session: the session that wants to act in its name.
            speaker: the session's speaker, with the identity that the message carries.
            stands_in: decides on an address that another session holds; `follows` by default.

        Raises:
            Forbidden: it may not; the text says why.
        """
        if why := addresses.fault(address):
            raise Forbidden(f"{address} {why}: nobody can act as it.")
        owner = self._table.owner_of(address)
        if self.is_below_runtime(address, session):
            if owner is not None and owner.runtime_url != session.runtime_url:
                raise Forbidden(f"{address} belongs to another session.")
            return
        parsed = addresses.parse(address)
        is_component = parsed.domain.lower() != parsed.home and parsed.scheme == "domain"
        if parsed.domain and not parsed.path.strip("/") and not is_component:
            raise Forbidden(f"{address} names a whole domain; nobody speaks for all of it.")
        if parsed.scheme in addresses.NODE_SCHEMES and not self._is_foreign_node(parsed, session):
            raise Forbidden(f"{address} is an address of a node; a runtime cannot speak as it.")
        if owner is session:
            return
        stands_in = stands_in or self.follows
        if (
            owner is not None
            and not stands_in(address, owner, session)
            and not self.are_of_one_node(address, owner, session)
        ):
            raise Forbidden(f"{address} belongs to another session.")
        if not self._last_owners.allow(address, session.speaker):
            raise Forbidden(f"{address} belongs to a subject that this session has not logged in.")
        if owner is None:
            self.check_domain(address, session, speaker)

    def check_domain(self, address: str, session: Listener, speaker: Speaker) -> None:
        """Check that an address that nobody holds is in a domain the session may speak for.

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

    def may_speak_beside_node(self, address: str, session: Listener, speaker: Speaker) -> bool:
        """Whether a visitor may speak as an address of its domain, though its node is a peer.

        Nothing proves that the address is the visitor's own. So it gets only responses to what it
        asks: the address stays with the node of the domain, or whoever holds it.
        """
        parsed = addresses.parse(address)
        home = parsed.home
        if not speaker.is_visitor or home not in self._table.visited or addresses.fault(address):
            return False
        is_own_domain = home == addresses.parse(session.runtime_url).home
        is_somebody = parsed.scheme not in addresses.NODE_SCHEMES | addresses.RUNTIME_SCHEMES
        if not (is_own_domain and is_somebody and parsed.path.strip("/")):
            return False
        owner = self._table.owner_of(address)
        return owner is None or self._is_of_node(home, owner)

    def follows(self, address: str, owner: Listener | None, session: Listener) -> bool:
        """Whether the session is of the owner's runtime, which returned after losing its socket."""
        return (
            owner is not None
            and owner.runtime_url == session.runtime_url
            and not owner.is_connected
            and session.speaker.may_follow(owner.speaker, self.shares)
        )

    def shares_with(self, address: str, owner: Listener, session: Listener) -> bool:
        """Whether owner and session share their addresses: the same runtime or subject."""
        if owner.runtime_url == session.runtime_url:
            return session.speaker.may_follow(owner.speaker, self.shares)
        return session.speaker.is_same_subject(owner.speaker)

    def are_of_one_node(self, address: str, owner: Listener, session: Listener) -> bool:
        """Whether both are sessions of the peer node that speaks for the domain of the address."""
        domain = addresses.parse(address).home
        return self._is_of_node(domain, owner) and self._is_of_node(domain, session)

    def owner_of(self, address: str) -> Listener | None:
        """The session that holds the address or the nearest address above it."""
        return self._table.owner_of(address)

    def holds(self, address: str, session: Listener) -> bool:
        """Whether the session holds the address, or shares it with the one that does."""
        owner = self._table.owners.get(address)
        return owner is not None and (owner is session or self.shares_with(address, owner, session))

    def _is_of_node(self, domain: str, session: Listener) -> bool:
        """Whether a session belongs to the peer node of a domain."""
        peer = self._table.peers.get(domain)
        return peer is not None and (session.runtime_url == peer or session.speaker.peer == domain)

    def _is_foreign_node(self, parsed: Address, session: Listener) -> bool:
        home = addresses.parse(session.runtime_url).home
        return bool(parsed.domain) and home != self._domain and parsed.home == home


def _mailbox_domain(parsed: Address) -> str:
    """The domain of an address like `sip:bob@legacy.example`, "" of any other."""
    has_mailbox = "@" in parsed.path and not parsed.domain
    return parsed.path.rpartition("@")[2].lower() if has_mailbox else ""
