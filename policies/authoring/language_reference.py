"""The reference beside the editor: attributes, operators, obligations, and example rules. Pure.

A test compares it with the vocabulary, and parses every example.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from policies.engine.vocabulary import Kind

ATTRIBUTES: dict[str, dict[str, str]] = {
    "Message": {
        "msgFrom": "address of the sender",
        "msgTo": "address of the recipient",
        "msgId": "id of the message",
        "actionType": "create, read, update, delete, subscribe, response …",
        "msgType": "registration, addressAllocation, dataSync, discovery …",
        "resource": "body.resource",
        "bodyValue": "body.value",
        "valueNumber": "body.value.number",
        "valueAllocated": "list of allocated addresses",
        "valueExpires": "seconds a registration lives",
        "valueResources": "list of resources",
        "valueUser": "user URL in the body",
        "valueDescriptor": "descriptor URL in the body",
        "subscription": "body.subscriber",
        "subscribeTo": "list of addresses a subscription names",
        "resourceType": "body.value.resourceType",
        "bytes": "length of the message",
        "direction": "in (from its sender) or out (to its recipient)",
        "auth": "never set: what a sender claims is no fact",
    },
    "Ends": {
        "srcScheme": "scheme of the sender, such as hyperty",
        "dstScheme": "scheme of the recipient",
        "srcSPDomain": "domain in the sender's address",
        "dstSPDomain": "domain in the recipient's address",
        "srcHyperty": "hyperty of the sender",
        "dstHyperty": "hyperty of the recipient",
        "hyperty": "the same as dstHyperty",
        "srcRuntime": "runtime of the sender",
        "dstRuntime": "runtime of the recipient",
    },
    "Sender and recipient": {
        "srcUsername": "verified e-mail address of the sender",
        "srcIDP": "issuer of the sender's identity",
        "srcIDPDomain": "domain of the sender's identity",
        "srcGroups": "list of the sender's groups",
        "srcSession": "session of the sender",
        "srcAddress": "IP address of the sender",
        "srcOrigin": "runtime, foreign, component or operator",
        "peer": "the other domain whose node it comes from, or goes to",
        "peerWay": "what that domain is: node or legacy, a network of another protocol",
        "hops": "nodes it has passed before this one: 0, or 1 from a peer",
        "dstUsername": "verified e-mail address of the recipient",
        "userRegistries": "list of hyperties of the user the message names",
    },
    "Clock, counters, node": {
        "time": "HH:MM in the node's time zone",
        "date": "YYYY-MM-DD",
        "weekday": "monday … sunday",
        "addrAllastMin": "address requests of the runtime in the last minute",
        "domain": "domain of this node",
        "domainRegistry": "address of its registry",
        "port": "its port",
        "useSSL": "whether it is reached over TLS",
    },
}
OPEN_NAMES = {
    "body.<field>": "any field of the body, such as body.value.name",
    "rate.<key>.<window>": "messages in a second, minute, hour or day; key: srcUsername, "
    "srcSession, srcAddress, srcIDPDomain, srcSPDomain, srcRuntime, msgFrom, msgTo, dstSPDomain, "
    "peer",
}
OPERATORS = {
    "equals": 'the same text; "*" is any value',
    "in": 'one of a list; "@name" is a named list',
    "moreThan": "numbers, times, dates, weekdays; the length of a list",
    "lessThan": "as moreThan",
    "between": 'two bounds in one text: "22:00 06:00"',
    "contains": "a list holds it, a text includes it",
    "like": "* stands for anything; the whole text must fit",
    "exists": "true or false",
}
OPERATOR_WORDS = {
    "equals": "is",
    "in": "is one of",
    "moreThan": "is more than",
    "lessThan": "is less than",
    "between": "is between",
    "contains": "contains",
    "like": "is like (* stands for anything)",
    "exists": "is known",
}
"""As the builder names them."""
_OF_TEXTS = ("equals", "in", "like", "contains", "exists")
_OF_NUMBERS = ("moreThan", "lessThan", "equals", "between", "exists")
_OF_CLOCKS = ("between", "moreThan", "lessThan", "equals", "in")
OPERATORS_OF: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((Kind.TEXT, Kind.FOLDED), _OF_TEXTS),
    Kind.NUMBER: _OF_NUMBERS,
    Kind.FLAG: ("equals", "exists"),
    Kind.LIST: ("contains", "moreThan", "lessThan", "like", "exists"),
    Kind.ANY: tuple(OPERATORS),
    **dict.fromkeys((Kind.TIME, Kind.DATE, Kind.WEEKDAY), _OF_CLOCKS),
}
"""Those that make sense for a kind of attribute, the most likely first."""
OBLIGATIONS = {
    "inform": "words for the sender of a refused message",
    "info": "the same as inform",
    "rateLimit": '{"rate.srcUsername.minute": 60}: more is refused with 429',
    "limitByNumberOfEntries": '{"valueAllocated": 1}: keep the first entries of a list',
    "limitByConditionOfEntries": '{"bodyValue": {"name": {"like": "a*"}}}: keep entries that fit',
    "log": "a line in the node's log",
    "emailto": "an address, or a list of them",
}


@dataclass(frozen=True, slots=True)
class Example:
    """A rule to start from."""

    title: str
    effect: str
    condition: Any = field(default_factory=dict)
    obligations: Any = field(default_factory=dict)

    def as_rule(self) -> dict[str, Any]:
        """In the words of the language."""
        return {
            "effect": self.effect,
            "condition": self.condition,
            "obligations": self.obligations,
        }


EXAMPLES = (
    Example(
        "Block users", "deny", {"srcUsername": {"in": ["eve@example.org", "bob@example.org"]}},
        {"inform": "You are blocked; ask the operator."},
    ),
    Example(
        "Nothing to or from a domain", "deny",
        [{"srcSPDomain": {"equals": "example.net"}}, {"dstSPDomain": {"equals": "example.net"}}],
        {"inform": "This domain is not let through here."},
    ),
    Example("Only users of a domain", "deny", {"not": {"srcIDPDomain": {"equals": "example.org"}}}),
    Example(
        "Closed at night", "deny", {"time": {"between": "22:00 06:00"}},
        {"inform": "We are closed until six."},
    ),
    Example("At most 60 messages a minute", "permit", {},
            {"rateLimit": {"rate.srcSession.minute": 60}}),
    Example(
        "A daily quota for each user", "deny", {"rate.srcUsername.day": {"moreThan": 10000}},
        {"inform": "Your messages for today are used up."},
    ),
    Example("Nobody may subscribe below an address", "deny",
            {"actionType": {"equals": "subscribe"}, "subscribeTo": {"like": "comm://*/private/*"}}),
    Example("Only a group may reach an address", "deny",
            {"msgTo": {"like": "hyperty://example.org/staff*"},
             "not": {"srcGroups": {"contains": "staff"}}}),
    Example("At most three hyperties for each user", "deny",
            {"msgType": {"equals": "registration"}, "actionType": {"equals": "create"},
             "userRegistries": {"moreThan": 2}}),
)  # fmt: skip
