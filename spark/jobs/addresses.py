"""Scheme, home domain, service and legacy network of an address, as Spark expressions.

The rules are those of the node's own addresses (a test compares the two): text before the first ":"
is the scheme unless it has a slash; the domain is between "//" and the next slash; the home domain
is in lower case and without a service label.

A service is the label before a domain, as in `qos.example.com`, or `p2p` for the addresses by which
runtimes set up direct connections. A legacy network is that of an address such as
`sip:bob@pbx.example.com` and is named after its stub: scheme and last two labels.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

_SCHEME = r"^([^:/]+):"
_DOMAIN = r"^[^:/]+://([^/]*)"
_LABELS = "msg-node|registry|idm|catalogue|qos"
_SERVICE_LABEL = rf"^(?:{_LABELS})\."
_SERVICE = rf"^[^:/]+://({_LABELS})\."
_P2P = r"^(?:hyperty-)?runtime://[^/]*/p2p(?:handler|requester)$"
P2P = "p2p"
_MAILBOX = r"^[^:/]+:(?://)?[^/]*@([^/@:;?]+)"
OF_THE_FIELD = (
    "runtime", "hyperty-runtime", "hyperty", "mn", "domain", "domain-idp", "global",
    "hyperty-catalogue", "comm", "connection", "context", "resource", "fs", "user",
)  # fmt: skip
"""Schemes that no legacy network has."""


def head(address: Column) -> Column:
    """The address up to its third slash: all that scheme and domain depend on, and cheap to cut."""
    return f.substring_index(address, "/", 3)


def scheme(address: Column) -> Column:
    """The scheme of an address."""
    return f.lower(f.regexp_extract(address, _SCHEME, 1))


def home_domain(address: Column) -> Column:
    """The domain of an address without its service label, in lower case."""
    return f.regexp_replace(
        f.lower(f.regexp_extract(address, _DOMAIN, 1)), f.lit(_SERVICE_LABEL), f.lit("")
    )


def service(head: Column) -> Column:
    """The service that an address is of: its label, `p2p`, or "" for none."""
    lowered = f.lower(head)
    return f.when(lowered.rlike(_P2P), P2P).otherwise(f.regexp_extract(lowered, _SERVICE, 1))


def network(head: Column) -> Column:
    """The legacy network of an address, as `sip.example.com`; "" for none."""
    host = f.regexp_extract(f.lower(head), _MAILBOX, 1)
    is_legacy = ~scheme(head).isin(*OF_THE_FIELD) & host.contains(".")
    return f.when(
        is_legacy, f.concat_ws(".", scheme(head), f.substring_index(host, ".", -2))
    ).otherwise("")
