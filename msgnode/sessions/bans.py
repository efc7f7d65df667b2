"""Bans: which runtime URLs, source addresses, subjects and domains are banned, until when. Pure.

A worker keeps a snapshot of the bans in force (BanList) and checks it at every new socket, `open`,
`re-open` and stub connect. A ban on a runtime URL covers both spellings of its scheme; on a source
an address or a network; on a subject both subject and user name; on a domain its visitors here, but
not its node if that is a peer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from msgnode.core import addresses
from msgnode.core.identity import Speaker

RUNTIME, SOURCE, SUBJECT, DOMAIN = "runtime", "source", "subject", "domain"
NEVER = float("inf")

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Ban(NamedTuple):
    """`until` is in seconds since the epoch."""

    kind: str
    value: str
    reason: str = ""
    until: float = NEVER


class BanList:
    """A snapshot. The cost of a look-up does not grow with the banned runtime URLs and subjects."""

    def __init__(self, bans: Iterable[Ban] = ()) -> None:
        self._bans = frozenset(bans)
        self._exact: dict[tuple[str, str], Ban] = {}
        self._networks: list[tuple[_Network, Ban]] = []
        for ban in self._bans:
            network = _network(ban.value) if ban.kind == SOURCE else None
            if network is not None:
                self._networks.append((network, ban))
            else:
                self._exact[ban.kind, ban.value] = ban

    def __bool__(self) -> bool:
        return bool(self._bans)

    def beyond(self, earlier: BanList) -> BanList:
        """The bans that are not in an earlier snapshot."""
        return BanList(self._bans - earlier._bans)

    def of_source(self, source: str, now: float) -> Ban | None:
        """The ban on a source address."""
        address = _address(source) if self._networks else None
        if address is None:
            return None
        for network, ban in self._networks:
            if ban.until > now and address in network:
                return ban
        return None

    def of_session(self, runtime_url: str, speaker: Speaker, now: float) -> Ban | None:
        """The ban on a runtime URL or its speaker."""
        if not self._bans:
            return None
        names = [(RUNTIME, runtime_url), (RUNTIME, addresses.runtime_twin(runtime_url))]
        if speaker.peer != (domain := addresses.parse(runtime_url).home):
            names.append((DOMAIN, domain))
        if speaker.identity is not None:
            names += [(SUBJECT, speaker.identity.subject), (SUBJECT, speaker.identity.username)]
        for kind, value in names:
            ban = self._exact.get((kind, value)) if value else None
            if ban is not None and ban.until > now:
                return ban
        return self.of_source(speaker.remote_address, now)


def network_fault(text: str) -> str:
    """Why `text` is neither an IP address nor a network, or ""."""
    return "" if _network(text) is not None else "is no IP address and no network (192.0.2.0/24)"


def _network(text: str) -> _Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


@lru_cache(maxsize=8192)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:192.0.2.1 on a socket for both
    return mapped or address
