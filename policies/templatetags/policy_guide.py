"""The guide of the editor for templates: what it shows beside a rule, a policy or a set."""

from __future__ import annotations

import json
from typing import Any

from django import template
from django.conf import settings

from policies.authoring import language_reference, standing
from policies.authoring.forms import review
from policies.engine.vocabulary import ATTRIBUTES, CLOSED_WORLDS, RATE_KEYS, WINDOWS
from policies.models import DecisionEntry, NamedList, Policy, Rule
from policies.typed_pages import sentence_of

register = template.Library()

RECENT = 200
"""Decisions of the log whose values are suggested."""
MOST_SUGGESTED = 30
_SEEN = {"msgFrom": "sender", "msgTo": "to", "srcUsername": "username"}
_SCHEMES = ("comm", "domain", "global", "hyperty", "hyperty-runtime", "runtime", "user-guid")


@register.simple_tag(takes_context=True)
def policy_guide(context: Any, adminform: Any) -> dict[str, Any]:
    """What the page has: `into` is the field that is built; examples are for rules only."""
    instance = adminform.form.instance
    is_rule = isinstance(instance, Rule)
    layer = "rule" if is_rule else "policy" if isinstance(instance, Policy) else "set"
    examples = [(each.title, json.dumps(each.as_rule())) for each in language_reference.EXAMPLES]
    return {
        "into": "condition" if is_rule else "target",
        "layer": layer,
        "rule": instance.pk if is_rule and instance.pk else "",
        "examples": examples if is_rule else [],
        "sentence": _sentence(layer, instance),
        "words": _words(context["request"].user),
        "tables": {
            "Attributes": {
                **{n: m for g in language_reference.ATTRIBUTES.values() for n, m in g.items()},
                **language_reference.OPEN_NAMES,
            },
            "Operators": language_reference.OPERATORS,
            "Obligations": language_reference.OBLIGATIONS,
        },
    }  # fmt: skip


@register.simple_tag
def standing_of_rule(rule: Rule | None) -> standing.Standing | None:
    """What a stored rule does now, in words."""
    return standing.standing_of(rule) if rule is not None and rule.pk else None


def _sentence(layer: str, instance: Any) -> str:
    """What a stored layer says, "" if it is not in order."""
    if instance.pk is None:
        return ""
    raw = {"target": instance.target}
    if layer == "rule":
        raw |= {"effect": instance.effect, "condition": instance.condition,
                "obligations": instance.obligations}  # fmt: skip
    wrong, _ = review(layer, raw)
    return "" if wrong else sentence_of(layer, raw)


def _words(user: Any) -> dict[str, Any]:
    """What the builder offers: attributes, operators by kind, and values that are known."""
    return {
        "attributes": language_reference.ATTRIBUTES,
        "operators": language_reference.OPERATOR_WORDS,
        "operators_of": language_reference.OPERATORS_OF,
        "kinds": ATTRIBUTES,
        "rate_keys": RATE_KEYS,
        "windows": list(WINDOWS),
        "lists": list(NamedList.objects.values_list("name", flat=True)),
        "suggestions": _suggestions(user.has_perm("policies.view_decisionentry")),
    }


def _suggestions(may_see_decisions: bool) -> dict[str, list[str]]:
    """Values by attribute: all there are, or those that decisions of the log had."""
    known: dict[str, list[str]] = {name: list(world) for name, world in CLOSED_WORLDS.items()}
    domain = settings.DOMAIN
    known |= dict.fromkeys(("srcScheme", "dstScheme"), list(_SCHEMES))
    known |= dict.fromkeys(("srcSPDomain", "dstSPDomain", "srcIDPDomain"), [domain])
    if may_see_decisions:
        rows = DecisionEntry.objects.order_by("-id").values(*_SEEN.values())[:RECENT]
        seen = list(rows)
        for name, column in _SEEN.items():
            values = dict.fromkeys(row[column] for row in seen if row[column])
            known[name] = list(values)[:MOST_SUGGESTED]
    return known
