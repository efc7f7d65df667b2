"""Rules whose first tests ask the same stand behind one test for all, which changes no decision."""

from __future__ import annotations

from typing import Any

import pytest

from policies.authoring.cases import facts_of
from policies.engine.attributes import Facts, Undetermined
from policies.engine.conditions import compile_condition
from policies.engine.documents import read_document
from policies.engine.language import CannotEvaluate, Condition
from policies.engine.scan import Scan, compile_scan

SECOND = {"actionType": {"equals": "create"}}
FIRST = {
    "equals": [{"srcUsername": {"equals": f"u{n}@x.com"}} for n in range(6)],
    "in": [{"srcUsername": {"in": [f"u{n}@x.com", f"v{n}@x.com"]}} for n in range(6)],
    "begins": [{"srcUsername": {"like": f"u{n}*"}} for n in range(6)],
    "ends": [{"srcUsername": {"like": f"*{n}@x.com"}} for n in range(6)] + [
        {"srcUsername": {"like": "*"}}
    ],
    "either end": [
        {"srcUsername": {"like": like}} for like in (["u3*", "*y.com"], ["v3*", "*x.com"])
    ],
    "more": [{"bytes": {"moreThan": n * 10}} for n in range(1, 6)],
    "less": [{"bytes": {"lessThan": n * 10}} for n in range(1, 6)],
    "between": [{"bytes": {"between": f"{n * 10} {n * 10 + 5}"}} for n in range(1, 6)],
}  # fmt: skip
USERS = ["u3@x.com", "v3@x.com", "u9@y.com", "", None]
SIZES = [None, 0, 10, 12, 20, 25, 38, 50, 1_000]


def conditions(*kinds: str) -> list[Condition]:
    """One of each kind (or all) in turn, so that those that belong together do not stand so."""
    raws: list[dict[str, Any]] = []
    for turn in range(7):
        for kind in kinds or FIRST:
            tests = FIRST[kind]
            if turn < len(tests):
                raws += [tests[turn], {"allOf": [tests[turn], SECOND]}]
    rules = [{"effect": "permit", "condition": raw} for raw in raws]
    (read,) = read_document([{"policies": [{"rules": rules}]}])
    return [rule.condition for rule in read.policies[0].rules]


def facts(type_: str, user: Any, size: Any) -> Facts:
    found = facts_of({"type": type_})
    found.set_values({"srcUsername": user})
    found["bytes"] = size
    return found


@pytest.mark.parametrize("type_", ["create", "read"])
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("size", SIZES)
def test_those_found_are_those_that_hold_one_by_one(type_: str, user: Any, size: Any) -> None:
    known = facts(type_, user, size)
    for kinds in ((), *((kind,) for kind in FIRST)):
        rules = list(enumerate(conditions(*kinds)))
        holding = [at for at, condition in rules if compile_condition(condition)(known)]
        assert compile_scan(rules)(known) == holding, kinds


def test_a_value_that_cannot_be_told_is_raised_as_by_one_of_the_rules() -> None:
    rules = list(enumerate(conditions()))
    for name in ("srcUsername", "bytes"):
        known = facts("read", "u1@x.com", 5)
        known[name] = Undetermined("not known")
        with pytest.raises(CannotEvaluate):
            compile_scan(rules)(known)


class Text(str):
    """A text that keeps what it is asked."""

    asked: list[Any]

    def __eq__(self, other: object) -> bool:
        self.asked.append(other)
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        self.asked.append("hash")
        return str.__hash__(self)

    def startswith(self, ends: Any, *rest: Any) -> bool:
        self.asked.append(ends)
        return super().startswith(ends, *rest)

    def endswith(self, ends: Any, *rest: Any) -> bool:
        self.asked.append(ends)
        return super().endswith(ends, *rest)


class Number(float):
    """A number that keeps what it is compared with."""

    asked: list[Any]

    def __lt__(self, other: Any) -> bool:
        self.asked.append(other)
        return float(self) < other

    def __gt__(self, other: Any) -> bool:
        self.asked.append(other)
        return float(self) > other

    def __ge__(self, other: Any) -> bool:
        self.asked.append(other)
        return float(self) >= other


@pytest.mark.parametrize(
    ("known", "tests"),
    [
        (Text("bob@good.example"), [{"equals": f"u{n}@x.com"} for n in range(100)]),
        (Text("bob@good.example"), [{"in": [f"u{n}@x.com", "x"]} for n in range(100)]),
        (Text("bob@good.example"), [{"like": f"u{n}*"} for n in range(100)]),
        (Text("bob@good.example"), [{"like": f"*@spam-{n}.example"} for n in range(100)]),
        (Number(5), [{"moreThan": 10 + n} for n in range(100)]),
        (Number(500), [{"lessThan": 10 + n} for n in range(100)]),
        (Number(5), [{"between": f"{10 + n} {20 + n}"} for n in range(100)]),
        (Number(5), [{"between": f"{10 + n} {10 + n}"} for n in range(100)]),
    ],
)
@pytest.mark.parametrize(("number", "beside"), [(100, {}), (100, SECOND), (2, {})])
def test_a_group_that_cannot_hold_is_passed_over_by_one_test(
    known: Text | Number, tests: list[Any], number: int, beside: dict[str, Any]
) -> None:
    name, key = ("srcUsername",) * 2 if isinstance(known, str) else ("bytes", "#bytes")
    scan = scan_of([{name: test, **beside} for test in tests[:number]])
    facts = facts_of({"type": "create"})
    known.asked = []
    facts[key] = known
    assert scan(facts) == []
    assert len(known.asked) == 1


@pytest.mark.parametrize("hour", [3, 9, 12, 18, 23])
@pytest.mark.parametrize(
    "spans", ["22:00 06:00", ["22:00 06:00", "12:00 13:00"], ["12:00 13:00", "22:00 06:00"]]
)
def test_times_past_midnight_are_found_by_each_of_several_rules(hour: int, spans: Any) -> None:
    facts = facts_of({"type": "create"})
    facts["#time"] = float(hour * 3600)
    holds = hour in (3, 23) or (hour == 12 and "12:00 13:00" in spans)
    assert scan_of([{"time": {"between": spans}}] * 2)(facts) == ([0, 1] if holds else [])


def scan_of(raws: list[dict[str, Any]]) -> Scan:
    rules = [{"effect": "deny", "condition": raw} for raw in raws]
    (read,) = read_document([{"policies": [{"rules": rules}]}])
    return compile_scan(list(enumerate(rule.condition for rule in read.policies[0].rules)))
