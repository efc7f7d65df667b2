"""Addresses here and in a SIP network. Pure.

sip://sip.example/bob                  sip:bob@sip.example
sip://sip.example/bob@other.example    sip:bob@other.example, by the same proxy
sip://sip.example/b@c@sip.example      sip:b%40c@sip.example, such as a user of another node
user://a.example/alice@a.example       sip:alice%40a.example@gw.sip.example
user://a.example/alice                 sip:alice@gw.sip.example
who has no address of his own          sip:guest001@sip.example, lent
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from sipmessage import URI

from msgnode.core import addresses
from msgnode.core.errors import BadMessage, NotFound

from .address_pool import is_lent
from .network import named_address
from .sip_messages import uri

GATEWAY = "gateway"
"""The account whose flow takes what is for the users of this node."""
_HOST = re.compile(r"(?!-)[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
MAX_USER = 200


class SipAddresses:
    """Maps addresses.

    Args:
        own: this node's domain.
        domain: the domain of the network.
        component: the domain there of this node's users, "" if they have none.
    """

    def __init__(self, own: str, domain: str, component: str) -> None:
        self.own = own
        self.domain = domain
        self.component = component

    def name_of(self, user_url: str) -> str:
        """The name that a user of this node has there, "" if users have none. Raises BadMessage."""
        if not self.component:
            return ""
        name = unquote(user_url.removeprefix("user://").partition("/")[2])
        if not name or len(name) > MAX_USER or self.user_of(name) != user_url:
            raise BadMessage(f"The name {user_url[:200]} cannot be expressed in SIP.")
        return name

    def user_of(self, name: str) -> str:
        """The user of this node that has a name there, "" if it is nobody's."""
        local, at, domain = name.rpartition("@")
        home = domain.lower() if at and local else self.own
        has_some = self.component and home != self.domain
        return named_address(f"user://{home}/", name) if has_some else ""

    def uri_of(self, address: str) -> str:
        """The URI of somebody in the network.

        Raises:
            BadMessage: it can be nobody's.
            NotFound: it is an address of this node there.
        """
        path = unquote(addresses.parse(address).path.removeprefix("/"))
        user, at, host = path.rpartition("@")
        if not at:
            user, host = path, self.domain
        if not user or len(user) > MAX_USER or not user.isprintable() or not _HOST.fullmatch(host):
            raise BadMessage(f"{address[:200]} names nobody of {self.domain}.")
        if self.is_ours(user, host):
            raise NotFound(f"{address[:200]} is an address of this node: write to it here.")
        return uri(user, host.lower())

    def is_ours(self, user: str, host: str) -> bool:
        """Whether an address there is of this node: nobody there may have it."""
        host = host.lower()
        if host in (self.own, self.component):
            return bool(host)
        return host == self.domain and (user == GATEWAY or is_lent(user))

    def address_of(self, found: URI) -> str:
        """The address here of somebody there, "" if there can be none."""
        host = found.host.lower()
        name = found.user or ""
        is_short = host in ("", self.domain) and "@" not in name
        path = name if is_short else f"{name}@{host or self.domain}"
        return named_address(f"sip://{self.domain}/", path) if 0 < len(name) <= MAX_USER else ""
