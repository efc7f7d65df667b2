"""Describes a rule, a policy or a set as a sentence, while it is being edited. Pure.

    Refuses a message if its type is create and the sender's user is not eve@a.org or bob@a.org.

A condition is described from its parsed value, so that a sentence says what the engine does,
however the condition was written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from policies.engine.language import (
    ALWAYS,
    All,
    Attribute,
    Broken,
    Condition,
    Not,
    ObligationExpression,
    Rule,
    Some,
    Test,
)
from policies.engine.vocabulary import RATE, Kind

from .explain import shown_value

PHRASES: dict[str, str] = {
    "msgFrom": "the sender's address",
    "msgTo": "the recipient's address",
    "msgId": "its id",
    "actionType": "its type",
    "msgType": "its kind",
    "resource": "the resource it names",
    "bodyValue": "the value in its body",
    "valueNumber": "the number of addresses it asks for",
    "valueAllocated": "the list of allocated addresses",
    "valueExpires": "the seconds a registration lives",
    "valueResources": "the list of resources in its body",
    "valueUser": "the user it names",
    "valueDescriptor": "the descriptor it names",
    "subscription": "the subscriber it names",
    "subscribeTo": "the list of addresses it subscribes to",
    "resourceType": "the type of resource it names",
    "bytes": "its length in bytes",
    "direction": "its direction",
    "auth": "its mark of a sender",
    "srcScheme": "the scheme of the sender's address",
    "dstScheme": "the scheme of the recipient's address",
    "srcSPDomain": "the domain of the sender's address",
    "dstSPDomain": "the domain of the recipient's address",
    "srcHyperty": "the sender's hyperty",
    "dstHyperty": "the recipient's hyperty",
    "hyperty": "the recipient's hyperty",
    "srcRuntime": "the sender's runtime",
    "dstRuntime": "the recipient's runtime",
    "srcUsername": "the sender's user",
    "srcIDP": "the issuer of the sender's identity",
    "srcIDPDomain": "the domain of the sender's identity",
    "srcGroups": "the list of the sender's groups",
    "srcSession": "the sender's session",
    "srcAddress": "the sender's IP address",
    "srcOrigin": "the sender's origin",
    "peer": "the domain of the node it comes from or goes to",
    "peerWay": "what the domain is that it comes from or goes to",
    "hops": "the number of nodes it has passed before",
    "dstUsername": "the recipient's user",
    "userRegistries": "the list of hyperties of the user it names",
    "time": "the time",
    "date": "the date",
    "weekday": "the weekday",
    "addrAllastMin": "the number of address requests in the last minute",
    "domain": "the node's domain",
    "domainRegistry": "the node's registry",
    "port": "the node's port",
    "useSSL": "whether the node is reached over TLS",
}
"""Every attribute of the language; a test holds them together."""
_EFFECTS = {"deny": "Refuses", "permit": "Permits"}
_CLOCK = (Kind.TIME, Kind.DATE, Kind.WEEKDAY)
_SHOWN = 5
_LONGEST = 2_000
_LAYERS = 40


def of_rule(rule: Rule) -> str:
    """What a rule does, and when."""
    condition = _both(rule.target, rule.condition)
    whom = "every message" if condition == ALWAYS else f"a message if {words(condition)}"
    duties = "".join(f", and {_duty(each)}" for each in rule.obligations)
    return _cut(f"{_EFFECTS[rule.effect]} {whom}{duties}.")


def of_target(layer: str, target: Condition) -> str:
    """What a policy or a set is asked about."""
    if target == ALWAYS:
        return f"This {layer} is asked about every message."
    return _cut(f"This {layer} is asked about a message if {words(target)}.")


def words(condition: Condition, depth: int = 0) -> str:
    """A condition in words; a group within a group stands in brackets."""
    if depth > _LAYERS:
        return "…"
    if isinstance(condition, Test):
        return _test(condition)
    if isinstance(condition, Broken):
        return f"something that is never known holds ({condition.why})"
    if isinstance(condition, Not):
        inner = condition.member
        if isinstance(inner, Test):
            return _test(inner, is_negated=True)
        return f"it is not so that {_inner(inner, depth)}"
    if condition == ALWAYS:
        return "anything holds"
    joint = " or " if isinstance(condition, Some) else " and "
    return joint.join(_inner(member, depth) for member in condition.members)


def _inner(member: Condition, depth: int) -> str:
    text = words(member, depth + 1)
    is_group = isinstance(member, (All, Some)) and len(member.members) > 1
    is_negated_group = isinstance(member, Not) and not isinstance(member.member, Test)
    return f"({text})" if is_group or is_negated_group else text


def _both(target: Condition, condition: Condition) -> Condition:
    if target == ALWAYS:
        return condition
    return target if condition == ALWAYS else All((target, condition))


def _test(test: Test, is_negated: bool = False) -> str:
    noun = phrase(test.attribute)
    values = _values(test)
    is_clock = test.attribute.kind in _CLOCK
    positive, negative = {
        "equals": (f"is {values}", f"is not {values}"),
        "in": (f"is {values}", f"is not {values}"),
        "moreThan": (
            f"is {'after' if is_clock else 'more than'} {values}",
            f"is not {'after' if is_clock else 'more than'} {values}",
        ),
        "lessThan": (
            f"is {'before' if is_clock else 'less than'} {values}",
            f"is not {'before' if is_clock else 'less than'} {values}",
        ),
        "between": (f"is between {values}", f"is not between {values}"),
        "contains": (f"contains {values}", f"does not contain {values}"),
        "like": (f"is like {values}", f"is not like {values}"),
        "exists": ("is known", "is not known"),
    }[test.operator]
    if test.operator == "exists" and test.values == (False,):
        positive, negative = negative, positive
    return f"{noun} {negative if is_negated else positive}"


def phrase(attribute: Attribute) -> str:
    """What an attribute is, in a few words."""
    name = attribute.name
    if attribute.terms:
        return f"the sum of {' and '.join(_named(term) for term in attribute.terms)}"
    return _named(name)


def _named(name: str) -> str:
    if name in PHRASES:
        return PHRASES[name]
    if (rate := RATE.fullmatch(name)) is not None:
        key = PHRASES.get(rate[1], rate[1])
        return f"the number of messages of {key} within a {rate[2]}"
    if name.startswith("body."):
        return f"{name.removeprefix('body.')} in its body"
    return name


def _values(test: Test) -> str:
    if test.reference is not None:
        return phrase(test.reference)
    joint = " and " if test.operator == "between" else " … "
    texts = [shown_value(test, value).replace(" … ", joint) for value in test.values]
    more = f" or {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN + 1 else ""
    return " or ".join(texts[:_SHOWN] if more else texts) + more if texts else "nothing"


def _duty(expression: ObligationExpression) -> str:
    name, value = expression.name, expression.value
    if name in ("inform", "info"):
        return f"tells its sender “{value}”"
    if name == "rateLimit" and isinstance(value, dict):
        limits = [f"{most} {_limit(key)}" for key, most in value.items()]
        return f"lets no more pass than {' and '.join(limits)}"
    if name == "log":
        return "writes a line to the node's log"
    if name == "emailto":
        return f"mails {_listed(value)}"
    if name == "limitByNumberOfEntries":
        return "keeps only the first entries of a list"
    if name == "limitByConditionOfEntries":
        return "keeps only the entries of a list that fit"
    return f"asks for {name}"


def _limit(key: str) -> str:
    found = re.fullmatch(r"rate\.(\w+)\.(\w+)", str(key))
    if found is None:
        return f"of {key}"
    return f"messages a {found[2]} of {PHRASES.get(found[1], found[1])}"


def _listed(value: object) -> str:
    texts: Sequence[object] = value if isinstance(value, list) else [value]
    return " and ".join(str(each) for each in texts)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
