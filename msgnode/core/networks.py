"""Networks of IP addresses, as an operator writes them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


def not_networks(texts: Iterable[str]) -> list[str]:
    """Those of the texts that are no networks.

    >>> not_networks(["10.1.0.0/16", "2001:db8::/32", "10.1.2.3/16", "home"])
    ['10.1.2.3/16', 'home']
    """
    return [each for each in texts if not _is_network(each)]


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
