"""The vocabulary of the policy language: attributes with kinds, operators, functions, algorithms.

Rules
- The kind tells how an attribute is compared: folded texts ignore case; `time`, `date` and
  `weekday` have an order of their own; `any` may be a text, a number or a list.
- Older spellings of the field (`actType`, `denyOverrides`, `domainUrl` …) are accepted as aliases
  and written back under the name listed here.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgnode.core.message_types import TYPES


class Kind(StrEnum):
    """How the values of an attribute are compared."""

    TEXT = "text"
    FOLDED = "folded"
    NUMBER = "number"
    FLAG = "flag"
    LIST = "list"
    ANY = "any"
    TIME = "time"
    DATE = "date"
    WEEKDAY = "weekday"


class Algorithm(StrEnum):
    """How the decisions of siblings are combined."""

    BLOCK_OVERRIDES = "blockOverrides"
    ALLOW_OVERRIDES = "allowOverrides"
    FIRST_APPLICABLE = "firstApplicable"
    DENY_UNLESS_PERMIT = "denyUnlessPermit"
    PERMIT_UNLESS_DENY = "permitUnlessDeny"


_T, _F, _N, _A, _L = Kind.TEXT, Kind.FOLDED, Kind.NUMBER, Kind.ANY, Kind.LIST

ATTRIBUTES: dict[str, Kind] = {
    # the message
    **dict.fromkeys(("msgFrom", "msgTo", "msgType", "srcHyperty", "dstHyperty", "hyperty"), _T),
    **dict.fromkeys(("actionType", "srcScheme", "dstScheme", "srcSPDomain", "dstSPDomain"), _F),
    **dict.fromkeys(("msgId", "resource", "resourceType", "bodyValue", "valueUser"), _A),
    **dict.fromkeys(("valueNumber", "valueExpires", "valueDescriptor", "subscription"), _A),
    **dict.fromkeys(("valueAllocated", "valueResources", "subscribeTo"), _L),
    "auth": Kind.FLAG,
    "bytes": _N,
    "direction": _F,
    # who sends it
    **dict.fromkeys(("srcUsername", "srcIDP", "srcSession", "srcAddress"), _T),
    "srcIDPDomain": _F,
    "srcOrigin": _F,
    "peer": _F,
    "peerWay": _F,
    "hops": _N,
    "srcGroups": _L,
    # facts looked up
    **dict.fromkeys(("srcRuntime", "dstRuntime", "dstUsername"), _A),
    "userRegistries": _L,
    "addrAllastMin": _N,
    # the clock and the node
    "time": Kind.TIME,
    "date": Kind.DATE,
    "weekday": Kind.WEEKDAY,
    "domain": _F,
    "domainRegistry": _F,
    "port": _N,
    "useSSL": Kind.FLAG,
}

ALIASES = {
    "actType": "actionType",
    "idp": "srcIDP",
    "origin": "srcOrigin",
    "srcUser": "srcUsername",
    "valueAllocate": "valueAllocated",
    "domainUrl": "domain",
    "domainRegistryUrl": "domainRegistry",
}

FIELD_NAMES = {"srcDomain": "srcIDPDomain"}
"""Names of attributes in published examples of the field; accepted with a warning."""
FIELD_KEYWORDS = {"and": "allOf", "or": "anyOf"}
"""Keywords of the field's runtimes; accepted with a warning."""

ALGORITHM_ALIASES = {
    **{algorithm.value: algorithm for algorithm in Algorithm},
    **dict.fromkeys(("denyOverrides", "deny-overrides"), Algorithm.BLOCK_OVERRIDES),
    **dict.fromkeys(
        ("permitOverrides", "allow-overrides", "permit-overrides"), Algorithm.ALLOW_OVERRIDES
    ),
    "first-applicable": Algorithm.FIRST_APPLICABLE,
    "deny-unless-permit": Algorithm.DENY_UNLESS_PERMIT,
    "permit-unless-deny": Algorithm.PERMIT_UNLESS_DENY,
}

OPERATORS = (*("equals", "in", "moreThan", "lessThan", "between", "contains", "like", "exists"),)
KEYWORDS = ("allOf", "anyOf", "not")
FUNCTIONS = ("sumOf",)

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MESSAGE_KINDS = (
    *("registration", "addressAllocation", "objectAllocation", "discovery", "globalRegistry"),
    *("identityManagement", "dataSync", "p2pConnection"),
)
SYNONYMS = {"msgType": {"subscription": "dataSync"}}
"""Literal parameters that are read as another (the guideline calls dataSync a subscription)."""

CLOSED_WORLDS: dict[str, tuple[str, ...]] = {
    "msgType": MESSAGE_KINDS,
    "actionType": tuple(sorted(TYPES)),
    "weekday": WEEKDAYS,
    "direction": ("in", "out"),
    "peerWay": ("legacy", "node"),
    "srcOrigin": ("component", "foreign", "operator", "runtime"),
}
"""Attributes with a closed set of values, so that a misspelling is found when saved."""

OBLIGATIONS = (
    *("limitByNumberOfEntries", "limitByConditionOfEntries"),  # change the message
    "rateLimit",  # may still refuse it
    *("inform", "info"),  # words for the sender
    *("log", "emailto"),  # afterwards
)

RATE = re.compile(r"rate\.([A-Za-z]+)\.(second|minute|hour|day)")
RATE_KEYS = (
    *("srcUsername", "srcIDPDomain", "srcSession", "srcAddress", "srcSPDomain", "srcRuntime"),
    *("msgFrom", "msgTo", "dstSPDomain", "peer"),
)
WINDOWS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_BODY_FIELD = re.compile(r"body(\.[A-Za-z_][A-Za-z0-9_-]*)+")


def kind_of(name: str) -> Kind | None:
    """The kind of an attribute by its main name, None if there is no such attribute."""
    kind = ATTRIBUTES.get(name)
    if kind is not None:
        return kind
    if (rate := RATE.fullmatch(name)) and rate[1] in RATE_KEYS:
        return Kind.NUMBER
    if _BODY_FIELD.fullmatch(name):
        return Kind.ANY
    return None
