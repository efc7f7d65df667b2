"""Conditions written out as text: what is written, what is called, and what is read once."""

from __future__ import annotations

from typing import Any

import pytest

from policies.authoring.cases import facts_of
from policies.engine.attributes import Facts
from policies.engine.documents import read_document
from policies.engine.language import CannotEvaluate, Condition
from policies.engine.pdp import compile_sets, is_deep
from policies.engine.scan import LAYERS, _Writer, compile_flat, compile_scan

CREATE = {"actionType": {"equals": "create"}}
LARGE, SMALL = {"bytes": {"moreThan": 1}}, {"bytes": {"lessThan": 9}}
BROKEN = {"msgFrom": {"moreThan": 5}}


def condition_of(raw: Any) -> Condition:
    rule = {"effect": "permit", "condition": raw}
    (policy_set,) = read_document([{"policies": [{"rules": [rule]}]}], forced=True)
    return policy_set.policies[0].rules[0].condition


def layers(number: int, inner: Any) -> Any:
    for _ in range(number):
        inner = {"not": [inner, SMALL]}
    return inner


@pytest.mark.parametrize("make", [lambda n: layers(n, CREATE), lambda n: nots(n)])
def test_so_many_layers_are_written_at_once_and_deeper_ones_are_called(make: Any) -> None:
    for number in range(LAYERS + 3):
        condition = condition_of(make(number))
        writer = _Writer()
        writer.expression(condition, 1, False)
        depth = number * (2 if make(1) == layers(1, CREATE) else 1)
        flat, scan = compile_flat(condition), compile_scan([(0, condition)])
        for known in (writer.names.values(), flat.__defaults__, scan.__defaults__):
            assert any(callable(each) for each in known) == (depth > LAYERS), number


def nots(number: int) -> Any:
    inner: Any = CREATE
    for _ in range(number):
        inner = {"not": inner}
    return inner


@pytest.mark.parametrize("number", [LAYERS - 1, LAYERS, LAYERS + 1, 3 * LAYERS])
@pytest.mark.parametrize("type_", ["create", "read"])
def test_deep_conditions_hold_as_shallow_ones_do(number: int, type_: str) -> None:
    facts = facts_of({"msg": {"type": type_}})
    condition = condition_of(nots(number))
    assert is_deep(condition) == (number >= LAYERS)
    assert compile_flat(condition)(facts) == ((type_ == "create") == (number % 2 == 0))
    document = [{"policies": [{"rules": [{"effect": "permit", "condition": nots(number)}]}]}]
    effect = compile_sets(read_document(document)).decide(facts).effect
    holds = (type_ == "create") == (number % 2 == 0)
    assert effect == ("permit" if holds else "notApplicable")


def test_a_condition_is_deep_by_its_deepest_branch_alone() -> None:
    def wide(number: int) -> Any:
        return {"allOf": [SMALL, {"anyOf": [LARGE, nots(number)]}]}

    assert not is_deep(condition_of(wide(LAYERS - 3)))
    assert is_deep(condition_of(wide(LAYERS - 2)))
    assert not is_deep(condition_of(CREATE))


@pytest.mark.parametrize("decoy", [BROKEN, LARGE])
def test_a_deep_condition_that_cannot_be_told_there_is_settled_by_its_other_members(
    decoy: Any,
) -> None:
    deep = {"allOf": [decoy, nots(LAYERS + 1)]}  # the second is false for `create`
    document = [{"policies": [{"rules": [{"effect": "permit", "condition": deep}]}]}]
    outcome = compile_sets(read_document(document)).decide(facts_of({"msg": {"type": "create"}}))
    assert (outcome.effect, outcome.errors) == ("notApplicable", ())


class Counted(Facts):
    """Facts that keep what is asked for."""

    def __init__(self, facts: Facts) -> None:
        around = facts.surroundings
        super().__init__(facts.message, facts.speaker, facts.direction, facts.to, around)
        self.asked: list[str] = []

    def __getitem__(self, key: str) -> Any:
        self.asked.append(key)
        return super().__getitem__(key)


def test_what_many_rules_look_at_first_is_read_once() -> None:
    rules = [
        (position, condition_of({"allOf": [{"bytes": {"moreThan": position}}, BROKEN, CREATE]}))
        for position in range(5)
    ]
    facts = Counted(facts_of({"msg": {"type": "read"}}))
    with pytest.raises(CannotEvaluate):
        compile_scan(rules)(facts)
    assert facts.asked.count("#bytes") == 1
    assert facts.asked.count("actionType") == 1


def test_what_several_rules_ask_differently_of_one_attribute_is_read_once() -> None:
    facts = Counted(facts_of({"msg": {"type": "create"}}))
    compile_scan(list(enumerate(map(condition_of, [LARGE, SMALL]))))(facts)
    assert facts.asked.count("#bytes") == 1


def test_what_a_rule_looks_at_later_is_read_where_it_gets_there_alone() -> None:
    scan = compile_scan([(0, condition_of({"allOf": [CREATE, {"msgId": {"moreThan": 1}}]}))])
    for type_, read in (("read", []), ("create", ["#msgId"])):
        facts = Counted(facts_of({"msg": {"type": type_, "id": 5}}))
        assert scan(facts) == [0] * len(read)
        assert [key for key in facts.asked if key == "#msgId"] == read


def test_a_scan_finds_the_positions_of_the_rules_that_hold() -> None:
    raws = [CREATE, {}, {"not": CREATE}, {"allOf": [LARGE, CREATE]}, {"anyOf": [SMALL, CREATE]}]
    scan = compile_scan([(3 * at, condition_of(raw)) for at, raw in enumerate(raws)])
    assert scan(facts_of({"msg": {"type": "create"}})) == [0, 3, 9, 12]
    assert scan(facts_of({"msg": {"type": "read"}})) == [3, 6]


def test_a_fault_in_what_is_written_names_the_policy() -> None:
    flat = compile_flat(condition_of(CREATE))
    assert flat.__code__.co_filename == "<policy>"


@pytest.mark.parametrize("layer", ["rules", "policies"])
def test_what_the_index_leaves_out_is_not_looked_at(layer: str) -> None:
    parts = [
        {"allOf": [{"msgId": {"moreThan": 1}}, {"msgTo": {"equals": f"hyperty://d/{number}"}}]}
        for number in range(3)
    ]
    if layer == "rules":
        policies: list[Any] = [{"rules": [{"effect": "deny", "condition": part} for part in parts]}]
    else:
        policies = [{"target": part, "rules": [{"effect": "deny"}]} for part in parts]
    snapshot = compile_sets(read_document([{"policies": policies}]))
    facts = Counted(facts_of({"msg": {"id": 5, "to": "hyperty://d/9"}}))
    assert snapshot.decide(facts).effect == "notApplicable"
    assert "#msgId" not in facts.asked
    facts = Counted(facts_of({"msg": {"id": 5, "to": "hyperty://d/1"}}))
    assert snapshot.decide(facts).effect == "deny"
    assert facts.asked.count("#msgId") == 1
    without = compile_sets(read_document([{"policies": policies}]), indexed=False)
    facts = Counted(facts_of({"msg": {"id": 5, "to": "hyperty://d/9"}}))
    assert without.decide(facts).effect == "notApplicable"
    assert facts.asked.count("#msgId") == 3


def test_what_many_rules_look_at_is_read_once_a_decision() -> None:
    rules = [
        {"effect": "deny", "condition": {"bytes": {"moreThan": 1_000_000 + number}}}
        for number in range(20)
    ]
    facts = Counted(facts_of({}))
    snapshot = compile_sets(read_document([{"policies": [{"rules": rules}]}]))
    assert snapshot.decide(facts).effect == "notApplicable"
    assert facts.asked.count("#bytes") == 1
