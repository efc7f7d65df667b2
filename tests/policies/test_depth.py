"""Depth and breadth: what may be published can also be decided, errors included."""

from __future__ import annotations

import pytest

from policies.authoring.cases import facts_of
from policies.engine.documents import read_document
from policies.engine.language import MAX_DEPTH
from policies.engine.pdp import compile_sets


def nested(layers, innermost):
    """A condition every layer of which must be asked; true if the innermost is."""
    condition = innermost
    for number in range((layers - 2) // 2):
        later = {"msgId": {"moreThan": number + 5}}
        condition = {"allOf": [{"actionType": {"equals": "create"}}, {"anyOf": [later, condition]}]}
    return condition


def decide(condition, **case):
    document = [{"policies": [{"rules": [{"effect": "deny", "condition": condition}]}]}]
    return compile_sets(read_document(document)).decide(facts_of(case)).effect


@pytest.mark.parametrize("layers", [4, 12, 14, 40, 200, MAX_DEPTH])
@pytest.mark.parametrize(
    ("innermost", "effect"),
    [
        ({"msgId": {"equals": 1}}, "deny"),
        ({"msgId": {"equals": 2}}, "notApplicable"),
        ({"msgFrom": {"moreThan": 1}}, "indeterminate"),
    ],
)
def test_the_innermost_layer_decides(layers, innermost, effect):
    assert decide(nested(layers, innermost)) == effect


def test_a_layer_that_settles_the_matter_does_so_despite_an_error_deep_inside():
    condition = nested(MAX_DEPTH - 2, {"msgFrom": {"moreThan": 1}})
    assert decide({"anyOf": [condition, {"msgId": {"equals": 1}}]}) == "deny"
    assert decide({"allOf": [condition, {"msgId": {"equals": 2}}]}) == "notApplicable"


@pytest.mark.parametrize("operator", ["moreThan", "lessThan"])
def test_a_wide_condition_is_no_deeper_than_its_layers(operator):
    wide = [{"msgId": {operator: number}} for number in range(5_000)]
    assert decide(wide) == "deny"
