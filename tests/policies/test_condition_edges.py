"""The edges of comparisons: first and last value of an interval, one value and several, no value.

Each condition is decided on its own, where it is compiled to one expression, and beside others.
"""

from __future__ import annotations

from typing import Any

import pytest

from policies.authoring.cases import facts_of
from policies.engine.conditions import compile_condition
from policies.engine.documents import read_document
from policies.engine.language import CannotEvaluate, Condition, PolicyError
from policies.engine.scan import compile_flat, compile_scan


def condition_of(raw: Any) -> Condition:
    rule = {"effect": "permit", "condition": raw}
    (policy_set,) = read_document([{"policies": [{"rules": [rule]}]}], forced=True)
    return policy_set.policies[0].rules[0].condition


def holds(raw: Any, **case: Any) -> bool:
    """What the condition says, the same in each of its forms."""
    condition, facts = condition_of(raw), facts_of(case)
    answers = {
        bool(compile_condition(condition)(facts)),
        bool(compile_flat(condition)(facts)),
        bool(compile_scan([(0, condition), (1, condition)])(facts)),
    }
    (answer,) = answers
    return answer


@pytest.mark.parametrize(
    ("intervals", "inside", "outside"),
    [
        ("2 5", (2, 3, 5), (1, 6)),
        (["2 5", "8 9"], (2, 5, 8, 9), (1, 6, 7, 10)),
        (["2 2", "8 9"], (2, 8, 9), (1, 3, 7, 10)),
    ],
)
def test_an_interval_has_both_its_ends(
    intervals: Any, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    raw = {"msgId": {"between": intervals}}
    assert [holds(raw, msg={"id": number}) for number in inside] == [True] * len(inside)
    assert [holds(raw, msg={"id": number}) for number in outside] == [False] * len(outside)


@pytest.mark.parametrize(
    ("limit", "above", "below"), [(3, True, False), (5, False, False), (7, False, True)]
)
def test_a_number_is_compared_with_that_of_another_attribute(
    limit: int, above: bool, below: bool
) -> None:
    msg = {"id": 5, "body": {"limit": limit}}
    assert holds({"msgId": {"moreThan": "<body.limit>"}}, msg=msg) is above
    assert holds({"msgId": {"lessThan": "<body.limit>"}}, msg=msg) is below


@pytest.mark.parametrize(
    ("intervals", "inside", "outside"),
    [
        ("23:00 01:00", ("23:00", "23:30", "00:00", "01:00"), ("01:01", "22:59")),
        (["23:00 01:00", "04:00 05:00"], ("23:00", "01:00", "04:00", "05:00"), ("03:59", "06:00")),
    ],
)
def test_an_interval_of_times_may_pass_midnight_and_has_both_its_ends(
    intervals: Any, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    raw = {"time": {"between": intervals}}
    assert [holds(raw, now=f"2017-03-15T{time}:00") for time in inside] == [True] * len(inside)
    assert not any(holds(raw, now=f"2017-03-15T{time}:00") for time in outside)


def test_an_interval_of_times_is_exact_to_the_second() -> None:
    raw = {"time": {"between": "11:59:50 12:00:10"}}
    assert all(holds(raw, now=f"2017-03-15T{time}") for time in ("11:59:50", "12:00:10"))
    assert not any(holds(raw, now=f"2017-03-15T{time}") for time in ("11:59:49", "12:00:11"))


@pytest.mark.parametrize(
    ("test", "inside", "outside"),
    [
        ({"moreThan": 2}, (3,), (1, 2)),
        ({"lessThan": 2}, (1,), (2, 3)),
        ({"moreThan": [2, 5]}, (3, 6), (2,)),
        ({"lessThan": [2, 5]}, (1, 4), (5,)),
    ],
)
def test_more_and_less_leave_out_the_value_itself_and_one_of_several_is_enough(
    test: dict[str, Any], inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    assert all(holds({"msgId": test}, msg={"id": number}) for number in inside)
    assert not any(holds({"msgId": test}, msg={"id": number}) for number in outside)


def test_of_an_attribute_with_several_values_one_that_is_meant_is_enough() -> None:
    for wanted in ("a", ["a"], ["x", "a"]):
        raw = {"resource": {"equals": wanted}}
        assert holds(raw, msg={"body": {"resource": "a"}})
        assert holds(raw, msg={"body": {"resource": ["b", "a"]}})
        assert not holds(raw, msg={"body": {"resource": ["b"]}})
        assert not holds(raw, msg={"body": {"resource": []}})
        assert not holds(raw)


def test_a_text_contains_its_parts_and_a_list_its_members() -> None:
    for wanted in ("ab", ["ab"], ["x", "ab"]):
        raw = {"resource": {"contains": wanted}}
        assert holds(raw, msg={"body": {"resource": "cabd"}})
        assert not holds(raw, msg={"body": {"resource": "acb"}})
        assert holds(raw, msg={"body": {"resource": ["b", "ab"]}})
        assert not holds(raw, msg={"body": {"resource": ["cabd"]}})
        assert not holds(raw)


@pytest.mark.parametrize("name", ["create", "CREATE", "Create"])
def test_an_attribute_without_case_is_compared_with_another_whatever_its_case(name: str) -> None:
    for other, expected in ((name, True), (name + "d", False)):
        msg = {"type": "create", "body": {"name": other}}
        assert holds({"actionType": {"equals": "<body.name>"}}, msg=msg) is expected
        assert holds({"body.name": {"equals": "<actionType>"}}, msg=msg) is expected


def test_a_condition_on_what_is_unknown_says_what_it_cannot_evaluate() -> None:
    condition = condition_of({"nobody": {"equals": 1}})
    for check in (compile_condition(condition), compile_flat(condition)):
        with pytest.raises(CannotEvaluate, match="nobody"):
            check(facts_of({}))


def test_a_sum_that_is_too_large_cannot_be_evaluated() -> None:
    message = {"id": 1.5, "body": {"value": {"number": 10**400}}}
    condition = condition_of({"sumOf msgId valueNumber": {"moreThan": 1}})
    with pytest.raises(CannotEvaluate, match="too large"):
        compile_condition(condition)(facts_of({"msg": message}))


@pytest.mark.parametrize("bound", [10**400, float("inf"), float("nan")])
def test_a_bound_that_no_number_can_reach_is_a_fault_of_the_document(bound: Any) -> None:
    for operator in ("moreThan", "lessThan"):
        rule = {"effect": "deny", "condition": {"msgId": {operator: bound}}}
        with pytest.raises(PolicyError, match="expected a number"):
            read_document([{"policies": [{"rules": [rule]}]}])
