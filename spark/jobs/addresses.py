"""Scheme and home domain of an address, as Spark expressions.

The rules are those of the node's own addresses (a test holds the two together): text before the
first ":" is the scheme unless it has a slash; a domain stands between "//" and the next slash; the
home domain is in lower case and without the label of a service in front of it.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

_SCHEME = r"^([^:/]+):"
_DOMAIN = r"^[^:/]+://([^/]*)"
_SERVICE_LABEL = r"^(?:msg-node|registry|idm|catalogue|qos)\."


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
