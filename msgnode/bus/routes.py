"""Where a message goes: chooses a Route value for each recipient. Pure.

Order (docs/reference/messages.md, section 5): a component of the node · exact listeners · the
runtime that the address lies below (in either spelling, `runtime://` or `hyperty-runtime://`) · an
address learned from a sender · the peer of a foreign domain, unless the message came from that
domain's node · nowhere.

Only its owner publishes below a runtime URL: what the runtime's own sessions send there goes to all
subscribers of the address; what others send there goes to the runtime only.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from msgnode.core import addresses
from msgnode.core.messages import Message

from .ports import Component, Listener
from .table import RoutingTable


class ToComponent(msgspec.Struct, frozen=True, gc=False):
    """The message goes to a component of the node."""

    component: Component


class ToSessions(msgspec.Struct, frozen=True, gc=False):
    """The message goes to sessions: the holder of the address, or all its subscribers."""

    listeners: tuple[Listener, ...]


class Nowhere(msgspec.Struct, frozen=True, gc=False):
    """Nobody listens; `reason` is text for the sender."""

    reason: str


Route = ToComponent | ToSessions | Nowhere


class ComponentBook:
    """The node's components by address.

    Matches exactly (`exact`), with or without one trailing slash, in any case of the domain, and
    below an address for components with `answers_below`.

    Args:
        components: all components of the node.
        table: knows which domains are peers.
        for_peers: the component that also answers in place of the peers' own, because a peer sees
            all sessions of this node as one and would apply one session's request to all.
    """

    def __init__(
        self,
        components: Iterable[Component],
        table: RoutingTable | None = None,
        for_peers: Component | None = None,
    ) -> None:
        self._table = table
        self._for_peers = for_peers
        self.exact = {
            _plain(address): component
            for component in components
            for address in component.addresses
        }

    def find(self, address: str) -> Component | None:
        """The component at an address, None if there is none."""
        found = self.exact.get(address)
        if found is not None or address.partition(":")[0].lower() not in addresses.NODE_SCHEMES:
            return found
        return self.find_spelled(address)

    def find_spelled(self, address: str) -> Component | None:
        """The component at an address of a node scheme that is not spelled exactly."""
        plain = _plain(address)
        found = self.exact.get(plain)
        if found is not None:
            return found
        for prefix in addresses.ancestors(plain):
            above = self.exact.get(prefix)
            if above is not None and above.answers_below:
                return above
        if self._table is not None and self._table.peers:
            return self._in_place_of_peers(addresses.parse(plain))
        return None

    def _in_place_of_peers(self, address: addresses.Address) -> Component | None:
        """The component that answers in place of a peer's at this address, if any."""
        if self._for_peers is None or self._table is None or address.home not in self._table.peers:
            return None
        ours = addresses.parse(self._for_peers.addresses[0])
        label = ours.domain.lower().removesuffix(ours.home)
        is_same = (address.scheme, address.path) == (ours.scheme, ours.path)
        return self._for_peers if is_same and address.domain == label + address.home else None


def choose(
    message: Message,
    to: str,
    components: ComponentBook,
    table: RoutingTable,
    domain: str,
    sender: Listener | None = None,
) -> Route:
    """Choose the route of a message to one of its recipients. Changes nothing.

    Args:
        message: the message.
        to: the recipient.
        components: the node's components.
        table: who listens to what.
        domain: the node's domain.
        sender: the sending session, None for the node itself.
    """
    scheme = to.partition(":")[0].lower()
    component = components.exact.get(to)
    if component is None and scheme in addresses.NODE_SCHEMES:
        component = components.find_spelled(to)
    if component is not None:
        return ToComponent(component)
    if message.is_response:
        asked = table.requester_of(to, message.id_key)
        if asked is not None:
            return ToSessions((asked,))
    owner = table.owners.get(to)
    listeners = (owner,) if owner is not None else table.listeners(to)
    if listeners and scheme in addresses.RUNTIME_SCHEMES:
        listeners = _hearers(to, listeners, table, domain, sender)
    if listeners:
        if "/children/" in to:
            listeners = _and_reporter(to, listeners, table, sender)
        return ToSessions(listeners)
    if scheme in addresses.RUNTIME_SCHEMES:  # no other address lies below a runtime
        listeners = _at_runtime(to, table, domain, sender)
        if listeners:
            return ToSessions(listeners)
    known = table.learned.get(to, table.probes.get(to))
    if known is not None:
        return ToSessions((known,))
    if table.peers:
        peer = table.peer_of(to)
        if peer is not None and peer is not sender and not _is_of_node(sender, to):
            return ToSessions((peer,))
    return Nowhere(_reason(to, domain))


def _at_runtime(
    to: str, table: RoutingTable, domain: str, sender: Listener | None
) -> tuple[Listener, ...]:
    """The session of the runtime that an address lies below, or the listeners to its twin."""
    session = table.at_runtime(to)
    if session is not None:
        return (session,)
    twin = addresses.runtime_twin(to)
    listeners = _hearers(to, table.listeners(twin), table, domain, sender)
    if not listeners:
        session = table.at_runtime(twin)
        return (session,) if session is not None else ()
    return listeners


def _and_reporter(
    to: str, listeners: tuple[Listener, ...], table: RoutingTable, sender: Listener | None
) -> tuple[Listener, ...]:
    """Who hears of a child of an object: its observers here, and the peer that reports it."""
    peer = table.peer_of(to)
    if peer is None or peer is sender or peer in listeners or _is_of_node(sender, to):
        return listeners
    return (*listeners, peer)


def _is_of_node(sender: Listener | None, to: str) -> bool:
    """Whether the sender is the node of the address's own domain."""
    peer = sender.speaker.peer if sender is not None else ""
    return bool(peer) and peer == addresses.parse(to).home


def _hearers(
    to: str,
    listeners: tuple[Listener, ...],
    table: RoutingTable,
    domain: str,
    sender: Listener | None,
) -> tuple[Listener, ...]:
    """The subscribers of a runtime's address that receive what this session sends there.

    For a runtime of a foreign domain without a session here that is its node, except for events.
    """
    owner = table.owner_of(to) if listeners else None
    if owner is None:
        home = addresses.parse(to).home
        if home == domain or addresses.is_event(to):
            return ()
        return tuple(each for each in listeners if addresses.parse(each.runtime_url).home == home)
    if sender is not None and sender.runtime_url == owner.runtime_url:
        return listeners
    return tuple(each for each in listeners if each.runtime_url == owner.runtime_url)


def _reason(to: str, domain: str) -> str:
    address = addresses.parse(to)
    if address.scheme in addresses.NODE_SCHEMES and (
        not address.domain or address.home == domain or address.scheme == "global"
    ):
        return f"This node has no component {to}."
    if address.domain and address.home != domain:
        return f"Nobody listens to {to}, and no stub leads to the domain {address.domain}."
    return f"Nobody listens to {to}."


def _plain(address: str) -> str:
    """Normalise a node address: scheme and domain in lower case, no trailing slash."""
    parsed = addresses.parse(address)
    path = parsed.path.removesuffix("/")
    if not parsed.domain:
        return f"{parsed.scheme}:{path}"
    return f"{parsed.scheme}://{parsed.domain.lower()}{path}"
