"""Which stub reaches an address: the pure part of resolving.

domain-idp://d                          the identity proxy of d
domain://…, global://…, or a service
label (msg-node. registry. idm. …)      the node of the domain without the label;
                                        global:// is at the home domain
a legacy scheme, `user@domain`          <scheme>.<last two labels>, if the settings name it
xmpp://d/bob, sip://d/bob               the home node, which is the network's gateway
anything else with a domain             the node of that domain, or the home node where the
                                        settings route the domain so
"""

from __future__ import annotations

from typing import NamedTuple

from msgnode.core import addresses

from .settings import Settings

LEGACY_SCHEMES = frozenset({"sip", "xmpp"})


class Destination(NamedTuple):
    """The key of a stub list entry, whose stub it is, and its type in the catalogue."""

    key: str
    domain: str
    kind: str = "protocolstub"


class NoDestination(Exception):
    """No stub can reach the address; `code` as in an answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def destination(to: str, settings: Settings) -> Destination:
    """Where a message goes. Raises NoDestination."""
    address = addresses.parse(to)
    home = settings.domain
    if address.scheme == "domain-idp" and address.domain:
        domain = address.domain.lower()
        return Destination(f"domain-idp://{domain}", domain, "idp-proxy")
    if address.scheme == "global":
        return Destination(home, home)
    if address.scheme in settings.interworking:
        network = _legacy_domain(address)
        if network:
            key = f"{address.scheme}.{network}"
            return Destination(key, key)
    if not address.domain or "@" in address.domain:
        if "@" in to:
            raise NoDestination(404, f"This runtime has no stub for the network of {to}.")
        raise NoDestination(400, f"The address {to} has no domain.")
    if address.scheme in LEGACY_SCHEMES:
        return Destination(home, home)
    domain = address.home
    if not _is_host(domain):
        raise NoDestination(400, f"The domain of {to} is no host name.")
    if domain != home and settings.routing.get(domain) == "node":
        return Destination(home, home)
    return Destination(domain, domain)


def _legacy_domain(address: addresses.Address) -> str:
    text = address.domain or address.path
    host = text.rpartition("@")[2].partition("/")[0].partition(":")[0].lower()
    labels = [label for label in host.split(".") if label]
    return ".".join(labels[-2:]) if len(labels) > 1 else ""


def _is_host(domain: str) -> bool:
    host, _, port = domain.partition(":")
    labels = host.split(".")
    return (
        len(host) <= 253
        and (not port or port.isdigit())
        and all(
            0 < len(label) < 64 and label.replace("-", "").replace("_", "").isalnum()
            for label in labels
        )
    )
