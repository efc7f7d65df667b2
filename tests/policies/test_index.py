"""The target index: which equalities guard a condition, and who is a candidate for which facts."""

from __future__ import annotations

from typing import Any

import pytest

from policies.authoring.cases import facts_of
from policies.engine.attributes import Undetermined
from policies.engine.documents import read_document
from policies.engine.scan import build_index, guards_of

A, B = {"msgTo": {"equals": "a"}}, {"actionType": {"in": ["create", "read"]}}


def guards(raw: Any) -> dict[str, frozenset[str]]:
    rule = {"effect": "permit", "condition": raw}
    (policy_set,) = read_document([{"policies": [{"rules": [rule]}]}], forced=True)
    return guards_of(policy_set.policies[0].rules[0].condition)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (A, {"msgTo": {"a"}}),
        (B, {"actionType": {"create", "read"}}),
        ({**A, **B}, {"msgTo": {"a"}, "actionType": {"create", "read"}}),
        ({"allOf": [A, {"allOf": [B]}]}, {"msgTo": {"a"}, "actionType": {"create", "read"}}),
        ({"resource": {"equals": ["x", 1]}}, {"=resource": {"x", "1"}}),
        ({"anyOf": [A, B]}, {}),
        ({"not": A}, {}),
        ({"msgTo": {"like": "a*"}}, {}),
        ({"msgTo": {"contains": "a"}}, {}),
        ({"msgTo": {"exists": True}}, {}),
        ({"msgTo": {"equals": "<msgFrom>"}}, {}),
        ({"msgId": {"moreThan": 5}}, {}),
        ({}, {}),
    ],
)
def test_what_must_be_equal_for_a_condition_to_hold_guards_it(raw: Any, found: Any) -> None:
    assert guards(raw) == found


def own(**values: str) -> dict[str, frozenset[str]]:
    """Guards: each key with its values, separated by spaces; `list_` stands for `=resource`."""
    names = {"to": "msgTo", "type": "actionType", "list_": "=resource", "of": "msgFrom"}
    return {names[key]: frozenset(text.split()) for key, text in values.items()}


def candidates(look: Any, to: Any = "x", type_: str = "read", resource: Any = None) -> list[int]:
    body = {} if resource is None else {"resource": resource}
    facts = facts_of({"msg": {"type": type_, "to": to or "x", "body": body}})
    if to is None:
        facts["msgTo"] = None
    found = look(facts)
    assert isinstance(found, list)
    return found


def test_without_guards_there_is_no_index() -> None:
    assert build_index([{}, {}]) == (None, [0, 1])
    assert build_index([]) == (None, [])


def test_one_attribute_is_one_look_up() -> None:
    look, rest = build_index([own(to="a"), {}, own(to="b"), own(to="a b")])
    assert rest == [1]
    assert candidates(look, "a") == [0, 3]
    assert candidates(look, "b") == [2, 3]
    assert candidates(look, "c") == []
    assert candidates(look, None) == []


def test_the_attribute_that_tells_siblings_apart_best_is_looked_up() -> None:
    """By how many values it has among all, then by how few the child itself has."""
    children = [own(to="a", type="read"), own(to="b", type="read"), own(to="c", type="read")]
    look, _ = build_index(children)
    assert candidates(look, "a") == [0]
    assert candidates(look, "a", "create") == [0]  # the type is not looked at
    few, many = own(to="a", type="read create"), own(to="a b", type="read")
    look, _ = build_index([few, many])
    assert candidates(look, "a", "update") == [0]
    assert candidates(look, "b", "read") == [1]
    assert candidates(look, "x", "read") == [1]
    look, _ = build_index([own(to="a", of="b")])  # where both tell as much, by the name
    assert candidates(look, "a") == [0]
    assert candidates(look, "x") == []


@pytest.mark.parametrize("further", [{}, own(to="z1"), own(type="execute")])
def test_each_text_of_a_list_is_looked_up(further: Any) -> None:
    children = [own(list_="a"), own(list_="b"), own(list_="a c")]
    look, _ = build_index([*children, further] if further else children)
    assert candidates(look, resource=["b", "a", "x"]) == [0, 1, 2]
    assert candidates(look, resource=["c"]) == [2]
    assert candidates(look, resource=["x"]) == []
    assert candidates(look, resource=[]) == []
    assert candidates(look, resource="a") == [0, 2]
    assert candidates(look) == []


def test_several_attributes_are_looked_up_one_by_one_and_each_child_comes_once() -> None:
    children = [own(list_="a"), own(to="t"), own(list_="b"), {}, own(to="u"), own(to="t")]
    look, rest = build_index(children)
    assert rest == [3]
    assert candidates(look, "t", resource=["b", "a", "b"]) == [0, 1, 2, 5]
    assert candidates(look, "t") == [1, 5]
    assert candidates(look, None, resource="b") == [2]
    assert candidates(look, "x", resource="x") == []
    none = candidates(look, "x")
    assert (none, candidates(look, "x")) == ([], [])


@pytest.mark.parametrize("further", [[], [own(to="t")]])
def test_what_cannot_be_told_makes_all_candidates_that_an_index_covers(further: Any) -> None:
    look, rest = build_index([own(list_="a"), {}, own(list_="b"), *further])
    facts = facts_of({})
    facts["=resource"] = Undetermined("it is away")
    assert look is not None
    assert look(facts) == [0, 2, *range(3, 3 + len(further))]
    assert rest == [1]
