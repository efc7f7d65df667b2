"""The guide of the editor for templates: what it shows beside a rule, a policy or a set."""

from __future__ import annotations

import json
from typing import Any

from django import template

from policies.authoring import language_reference
from policies.models import Rule

register = template.Library()


@register.simple_tag
def policy_guide(adminform: Any) -> dict[str, Any]:
    """`into`: the field that is added to; examples (title, the rule as JSON) for rules only."""
    is_rule = isinstance(adminform.form.instance, Rule)
    examples = [(each.title, json.dumps(each.as_rule())) for each in language_reference.EXAMPLES]
    return {
        "into": "condition" if is_rule else "target",
        "examples": examples if is_rule else [],
        "attributes": language_reference.ATTRIBUTES,
        "operators": language_reference.OPERATORS,
        "tables": {
            "Attributes": {
                **{n: m for g in language_reference.ATTRIBUTES.values() for n, m in g.items()},
                **language_reference.OPEN_NAMES,
            },
            "Operators": language_reference.OPERATORS,
            "Obligations": language_reference.OBLIGATIONS,
        },
    }  # fmt: skip
