"""The guide of the editor for templates: what it shows beside a rule, a policy or a set."""

from __future__ import annotations

import json
from typing import Any

from django import template

from policies import guide
from policies.models import Rule

register = template.Library()


@register.simple_tag
def policy_guide(adminform: Any) -> dict[str, Any]:
    """`into`: the field that is added to; examples (title, the rule as JSON) for rules only."""
    is_rule = isinstance(adminform.form.instance, Rule)
    examples = [(each.title, json.dumps(each.as_rule())) for each in guide.EXAMPLES]
    return {
        "into": "condition" if is_rule else "target",
        "examples": examples if is_rule else [],
        "attributes": guide.ATTRIBUTES,
        "operators": guide.OPERATORS,
        "tables": {
            "Attributes": {**{n: m for g in guide.ATTRIBUTES.values() for n, m in g.items()},
                           **guide.OPEN_NAMES},
            "Operators": guide.OPERATORS,
            "Obligations": guide.OBLIGATIONS,
        },
    }  # fmt: skip
