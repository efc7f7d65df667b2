"""Every combination of what holds, does not and cannot be told, and of what siblings decide."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from policies.authoring.cases import facts_of
from policies.engine.attributes import Undetermined
from policies.engine.conditions import compile_condition, matcher
from policies.engine.documents import read_document
from policies.engine.language import (
    All,
    Attribute,
    CannotEvaluate,
    Condition,
    Not,
    Some,
    Test,
)
from policies.engine.pdp import compile_sets
from policies.engine.vocabulary import Kind

from . import plain

TRUE, FALSE = {"msgId": {"equals": 1}}, {"msgTo": {"equals": "nobody"}}
UNTOLD = {"msgFrom": {"moreThan": 5}}
RAW = {True: TRUE, False: FALSE, None: UNTOLD}


def condition_of(raw: Any) -> Condition:
    rule = {"effect": "permit", "condition": raw}
    (policy_set,) = read_document([{"policies": [{"rules": [rule]}]}], forced=True)
    return policy_set.policies[0].rules[0].condition


def truth(condition: Condition, **case: Any) -> bool | None:
    try:
        answer = compile_condition(condition)(facts_of({"msg": {"id": 1}, **case}))
    except CannotEvaluate:
        return None
    assert isinstance(answer, bool)
    return answer


@pytest.mark.parametrize("truths", [c for n in (0, 1, 2, 3) for c in product(RAW, repeat=n)])
def test_all_and_some_follow_the_three_valued_tables(truths: tuple[bool | None, ...]) -> None:
    members = tuple(condition_of(RAW[each]) for each in truths)
    assert truth(All(members)) is plain.all_of(truths)
    assert truth(Some(members)) is plain.any_of(truths)
    assert truth(Not(All(members))) is plain.negated(plain.all_of(truths))


def test_what_could_not_be_told_says_why() -> None:
    for join in (All, Some):
        for number in (2, 3):
            members = (condition_of(UNTOLD),) * number
            with pytest.raises(CannotEvaluate, match="is not a number"):
                compile_condition(join(members))(facts_of({}))


LEAVES: dict[str, Any] = {  # what a child is -> its policy
    "permit": {"rules": [{"effect": "permit"}]},
    "deny": {"rules": [{"effect": "deny"}]},
    "no": {
        "rules": [{"effect": "permit", "condition": FALSE}, {"effect": "deny", "target": FALSE}]
    },
    "P?": {"rules": [{"effect": "permit", "condition": UNTOLD}]},
    "D?": {"rules": [{"effect": "deny", "condition": UNTOLD}]},
    "PD?": {
        "rules": [
            {"effect": "permit", "condition": UNTOLD},
            {"effect": "deny", "condition": UNTOLD},
        ]
    },
}
ENDS = {
    "permit": ("permit", ""), "deny": ("deny", ""), "no": ("notApplicable", ""),
    "P?": ("indeterminate", "P"), "D?": ("indeterminate", "D"), "PD?": ("indeterminate", "DP"),
}  # fmt: skip
ALGORITHMS = (
    *("blockOverrides", "allowOverrides", "firstApplicable"),
    *("denyUnlessPermit", "permitUnlessDeny"),
)


def decided(algorithm: str, kinds: tuple[str, ...], has_duties: bool, nested: bool) -> Any:
    """What siblings of these kinds come to; each with a log and an advice by its place."""
    children = []
    for at, kind in enumerate(kinds):
        child = {"id": f"c{at}", **LEAVES[kind]}
        if has_duties:
            due = {effect: {"log": f"{at}"} for effect in ("permit", "deny", "notApplicable")}
            child |= {"obligations": due, "advice": due}
        children.append({"id": f"s{at}", "policies": [child]} if nested else child)
    document = [{"id": "S", "policyCombiningAlgorithm": algorithm, "policies": children}]
    return compile_sets(read_document(document)).decide(facts_of({"msg": {"id": 1}}))


def expected(algorithm: str, kinds: tuple[str, ...]) -> tuple[str, str]:
    """Effect and side, by the book."""
    if algorithm == "firstApplicable":
        return next((ENDS[kind] for kind in kinds if kind != "no"), ENDS["no"])
    win, lose = (
        ("deny", "permit")
        if algorithm in ("blockOverrides", "permitUnlessDeny")
        else ("permit", "deny")
    )
    effects = [f"{effect}-{side}" if side else effect for effect, side in map(ENDS.get, kinds)]
    effect, _, side = plain.overridden(effects, win, lose).partition("-")
    return (lose, "") if "Unless" in algorithm and effect not in (win, lose) else (effect, side)


def is_closed(algorithm: str, kinds: tuple[str, ...]) -> bool:
    """Whether a closed world decides by itself, because its children do not."""
    same = "blockOverrides" if algorithm == "permitUnlessDeny" else "allowOverrides"
    return expected(same, kinds)[0] not in ("permit", "deny")


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("has_duties", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_siblings_come_to_what_the_book_says(
    algorithm: str, has_duties: bool, nested: bool
) -> None:
    for kinds in (c for n in (1, 2, 3) for c in product(LEAVES, repeat=n)):
        found = decided(algorithm, kinds, has_duties, nested)
        effect, side = expected(algorithm, kinds)
        assert (found.effect, found.side) == (effect, side), kinds
        ends = [ENDS[kind][0] for kind in kinds]
        places = [str(at) for at, end in enumerate(ends) if end == effect]
        if algorithm == "firstApplicable" and effect != "notApplicable":
            places = places[:1]
        if "Unless" in algorithm and is_closed(algorithm, kinds):
            assert found.deciding == ("S",), kinds
            places = []
        elif effect == "indeterminate":
            assert found.deciding[0] == "S", kinds
            places = []
        due = [each.value for each in found.obligations]
        assert due == (places if has_duties else []), kinds
        assert [each.value for each in found.advice] == due, kinds
        assert all(each.name == "log" for each in (*found.obligations, *found.advice))


@pytest.mark.parametrize(
    ("algorithm", "kinds", "told"),
    [
        ("blockOverrides", ("P?", "D?"), ["c1", "c0"]),
        ("blockOverrides", ("D?", "no", "P?"), ["c0", "c2"]),
        ("blockOverrides", ("permit", "P?"), []),  # it could not have won, and is not asked
        ("blockOverrides", ("permit", "D?"), ["c1"]),
        ("blockOverrides", ("deny", "D?"), []),
        ("allowOverrides", ("D?", "deny", "D?"), ["c0"]),
        ("allowOverrides", ("PD?", "deny", "D?"), ["c0", "c0"]),
        ("firstApplicable", ("no", "P?", "D?"), ["c1"]),
        ("denyUnlessPermit", ("P?", "D?"), ["c0", "c1"]),
        ("permitUnlessDeny", ("D?", "no"), ["c0"]),
        ("denyUnlessPermit", ("no",), []),
    ],
)
def test_all_that_could_not_be_told_is_said_where_it_mattered(
    algorithm: str, kinds: tuple[str, ...], told: list[str]
) -> None:
    errors = decided(algorithm, kinds, False, False).errors
    assert [error.split("/")[1] for error in errors] == told
    assert all("is not a number" in error for error in errors)


@pytest.mark.parametrize("kind", list(LEAVES))
@pytest.mark.parametrize(("target", "applies"), [(TRUE, True), (FALSE, False), (UNTOLD, None)])
def test_a_target_that_cannot_be_told_makes_what_is_below_untold(
    kind: str, target: Any, applies: bool | None
) -> None:
    child = {"id": "c", "target": target, **LEAVES[kind]}
    child["obligations"] = {ENDS[kind][0]: {"log": "x"}}
    document = [{"id": "S", "policies": [child]}]
    found = compile_sets(read_document(document)).decide(facts_of({"msg": {"id": 1}}))
    effect, side = ENDS[kind]
    if applies is True:
        assert (found.effect, found.side) == (effect, side)
        assert len(found.obligations) == 1
    elif applies is False or kind == "no":
        assert (found.effect, found.side, found.errors) == ("notApplicable", "", ())
    else:
        wanted = side or effect[0].upper()
        assert (found.effect, found.side) == ("indeterminate", wanted)
        assert found.deciding == ("S", "c")
        assert found.obligations == ()
        (error,) = found.errors
        assert error.startswith("S/c: ")
        assert "is not a number" in error


@pytest.mark.parametrize("number", [7, 8, 9, 200])
@pytest.mark.parametrize("indexed", [True, False])
def test_of_many_rules_the_one_that_holds_decides_wherever_it_stands(
    number: int, indexed: bool
) -> None:
    """Some with an equality that an index knows, others without."""
    rules = []
    for at in range(number):
        at_hand = {"msgTo": {"equals": f"hyperty://d/{at}"}}
        condition = at_hand if at % 3 == 0 else {"msgTo": {"like": f"*d/{at}"}}
        rules.append({"id": f"r{at}", "effect": "permit", "condition": condition})
    document = [{"policies": [{"ruleCombiningAlgorithm": "firstApplicable", "rules": rules}]}]
    snapshot = compile_sets(read_document(document), version=4, indexed=indexed)
    assert (snapshot.version, snapshot.rules) == (4, number)
    assert snapshot.attributes == {"msgTo"}
    for at in range(number):
        found = snapshot.decide(facts_of({"msg": {"to": f"hyperty://d/{at}"}}))
        assert found.deciding[-1] == f"r{at}"
        assert (found.effect, found.side, found.obligations) == ("permit", "", ())
    assert snapshot.decide(facts_of({"msg": {"to": "x"}})).effect == "notApplicable"


def test_a_document_has_no_version_until_it_is_given_one() -> None:
    assert compile_sets(read_document([])).version == 0


@pytest.mark.parametrize(
    ("pieces", "yes", "no"),
    [
        (("ab",), ["ab"], ["a", "abc", "xab"]),
        (("a", "b"), ["ab", "axb", "abb"], ["a", "b", "ba", "abx"]),
        (("ab", "ba"), ["abba", "abxba"], ["aba", "ab", "ba"]),
        (("", "x", ""), ["x", "axb", "xx"], ["", "ab"]),
        (("a", "x", "y", "b"), ["axyb", "a.x.y.b", "axxyyb"], ["ayxb", "axb", "ayb", "axyc"]),
        (("a", "xx", "xx", "b"), ["axxxxb", "axx.xxb"], ["axxxb", "axxb"]),
        (("", "aa", "ab", ""), ["aaab", "aa.ab"], ["aab", "abaa"]),
        (("", ""), ["", "x"], []),
        (("x", ""), ["x", "xy"], ["", "yx"]),
    ],
)
def test_a_pattern_matches_from_end_to_end(
    pieces: tuple[str, ...], yes: list[str], no: list[str]
) -> None:
    matches = matcher(pieces)
    assert [matches(text) for text in yes] == [True] * len(yes)
    assert [matches(text) for text in no] == [False] * len(no)


@pytest.mark.parametrize(
    ("raw", "resource", "type_", "answer"),
    [
        ({"resource": {"contains": "b"}}, "abc", "read", True),
        ({"resource": {"contains": ["x", "y"]}}, "abc", "read", False),
        ({"resource": {"contains": "ab"}}, ["abc"], "read", False),
        ({"resource": {"contains": "abc"}}, ["x", "abc"], "read", True),
        ({"resource": {"contains": "abc"}}, None, "read", False),
        ({"resource": {"equals": "<actionType>"}}, "READ", "read", True),  # one of them is folded
        ({"resource": {"equals": "<actionType>"}}, ["x", "Read"], "read", True),
        ({"resource": {"equals": "<actionType>"}}, ["x"], "read", False),
        ({"resource": {"equals": "<actionType>"}}, None, "read", False),
        ({"resource": {"contains": "<actionType>"}}, "is READ here", "read", True),
        ({"resource": {"contains": "<actionType>"}}, ["is read here"], "read", False),
        ({"resource": {"contains": "<actionType>"}}, ["read"], "read", True),
        ({"resource": {"contains": "<srcUsername>"}}, "anything", "read", False),
        ({"msgTo": {"equals": "<resource>"}}, "hyperty://D/1", "read", False),  # and here none
        ({"msgTo": {"equals": "<resource>"}}, ["hyperty://d/1"], "read", True),
        ({"resource": {"moreThan": "<msgId>"}}, 2, "read", True),
        ({"resource": {"lessThan": "<msgId>"}}, 2, "read", False),
        ({"resource": {"moreThan": "<msgId>"}}, 1, "read", False),
        ({"resource": {"lessThan": "<msgId>"}}, 1, "read", False),
        ({"resource": {"moreThan": "<msgId>"}}, None, "read", False),
        ({"resource": {"moreThan": "<bodyValue>"}}, 2, "read", False),
        ({"resource": {"moreThan": "<msgTo>"}}, None, "read", False),
        ({"resource": {"moreThan": "<msgTo>"}}, 2, "read", None),
        ({"resource": {"moreThan": "<msgId>"}}, "x", "read", None),
    ],
)
def test_comparisons_with_texts_lists_and_other_attributes(
    raw: Any, resource: Any, type_: str, answer: bool | None
) -> None:
    body = {} if resource is None else {"resource": resource}
    message = {"id": 1, "type": type_, "to": "hyperty://d/1", "body": body}
    assert truth(condition_of(raw), msg=message) is answer


@pytest.mark.parametrize("operator", ["moreThan", "lessThan", "between"])
def test_a_comparison_with_no_parameter_that_could_be_read_never_holds(operator: str) -> None:
    attribute = Attribute("msgId", Kind.ANY)
    assert truth(Test(attribute, operator, ())) is False


def test_what_is_untold_is_untold_in_every_comparison() -> None:
    untold = Undetermined("it is away")
    for operator, parameter in (
        *(("equals", "x"), ("in", ["x"]), ("contains", "x"), ("like", "x*"), ("like", ["a", "b"])),
        *(("moreThan", 1), ("lessThan", 1), ("between", "1 2"), ("between", ["1 2", "3 4"])),
        *(("exists", True), ("equals", "<msgTo>"), ("moreThan", "<msgId>")),
    ):
        check = compile_condition(condition_of({"resource": {operator: parameter}}))
        facts = facts_of({"msg": {"id": 1}})
        facts["resource"] = untold
        with pytest.raises(CannotEvaluate, match="it is away"):
            bool(check(facts))
