"""Combining, priorities and obligations, where the numbered cases do not already show it."""

from __future__ import annotations

import pytest

from msgnode.core.decision import Effect
from policies.authoring.cases import facts_of, run_case
from policies.engine.attributes import Undetermined
from policies.engine.combining import Outcome, Siblings, combiner
from policies.engine.documents import read_document
from policies.engine.pdp import compile_sets
from policies.engine.vocabulary import Algorithm

BROKEN = {"msgFrom": {"moreThan": 5}}


def outcome(**case):
    result = run_case(case)
    assert result.outcome is not None, result.faults
    return result.outcome


def rule(effect, condition=None, **more):
    return {"effect": effect, "condition": condition or {}, **more}


def test_a_decision_names_set_policy_and_rule():
    document = [{"id": "S", "policies": [{"id": "P", "rules": [{"id": "R", "effect": "deny"}]}]}]
    assert compile_sets(read_document(document)).decide(facts_of({})).deciding == ("S", "P", "R")


def test_a_snapshot_says_what_it_may_ask_for_and_how_many_rules_it_has():
    compare = {"sumOf bytes hops": {"moreThan": "<msgId>"}}
    rules = [rule("deny", compare), rule("permit", {"not": {"srcUsername": {"exists": True}}})]
    policies = [{"target": {"msgTo": {"like": "a*"}}, "rules": rules}]
    sets = [{"target": {"anyOf": [{"time": {"moreThan": "06:00"}}]}, "policies": policies}]
    snapshot = compile_sets(read_document(sets))
    assert snapshot.attributes == {"bytes", "hops", "msgId", "srcUsername", "msgTo", "time"}
    assert (snapshot.rules, snapshot.version) == (2, 0)


def test_an_error_names_the_rule_and_the_reason():
    (error,) = outcome(rules=[rule("deny", BROKEN, id="R")]).errors
    assert error.startswith("set-1/set-1/1/R: ")
    assert "not a number" in error


@pytest.mark.parametrize(
    ("outer", "closed", "other"),
    [
        ("blockOverrides", "denyUnlessPermit", "permit"),
        ("allowOverrides", "permitUnlessDeny", "deny"),
    ],
)
def test_what_a_closed_world_decides_by_itself_overrides_its_siblings(outer, closed, other):
    never = {"msgId": {"equals": 9}}
    policies = [
        {"rules": [rule(other)]},
        {"ruleCombiningAlgorithm": closed, "rules": [rule(other, never)]},
    ]
    found = outcome(sets=[{"policyCombiningAlgorithm": outer, "policies": policies}])
    assert found.effect != other


@pytest.mark.parametrize(
    ("outer", "closed", "other", "own"),
    [
        ("allowOverrides", "denyUnlessPermit", "deny", "permit"),
        ("blockOverrides", "permitUnlessDeny", "permit", "deny"),
    ],
)
def test_what_a_rule_in_a_closed_world_decides_overrides_its_siblings(outer, closed, other, own):
    policies = [
        {"rules": [rule(other)]},
        {"ruleCombiningAlgorithm": closed, "rules": [rule(own)]},
    ]
    found = outcome(sets=[{"policyCombiningAlgorithm": outer, "policies": policies}])
    assert found.effect == own


@pytest.mark.parametrize("count", [3, 40, 300])
def test_duties_of_equal_rules_that_no_index_covers_are_due_once_each(count):
    rules = [rule("deny", obligations={"log": str(number)}) for number in range(count)]
    found = outcome(rules=rules)
    assert [each.value for each in found.obligations] == [str(number) for number in range(count)]


def test_duties_may_be_lists_and_by_decision():
    rules = [
        rule("deny", obligations=[{"log": "a"}, {"log": "b"}]),
        rule("deny", obligations={"deny": {"log": "c"}, "permit": {"log": "d"}}),
    ]
    assert [obligation.value for obligation in outcome(rules=rules).obligations] == ["a", "b", "c"]


def test_duties_carry_their_source():
    (obligation,) = outcome(rules=[rule("deny", obligations={"log": "a"}, id="R")]).obligations
    assert obligation.source == "R"


def test_obligations_of_a_set_that_does_not_apply_are_not_due_elsewhere():
    sets = [
        {"policies": [], "obligations": {"permit": {"log": "no"}}, "priority": 0},
        {"policies": [{"rules": [rule("permit")]}], "priority": 1},
    ]
    assert outcome(sets=sets).obligations == ()


@pytest.mark.parametrize("count", [3, 40, 300])
@pytest.mark.parametrize("algorithm", ["blockOverrides", "allowOverrides", "firstApplicable"])
def test_the_first_of_equal_rules_is_named(count, algorithm):
    rules = [rule("deny", {"msgId": {"moreThan": 1000}}) for _ in range(count)]
    rules += [rule("deny", {"msgTo": {"like": "hyperty*"}}, id="here"), rule("deny", id="later")]
    assert outcome(rules=rules, alg=algorithm).deciding[-1] == "here"


@pytest.mark.parametrize("size", [1, 12, 200])
def test_rules_in_and_outside_the_index_keep_their_order(size):
    rules = []
    for number in range(size):
        rules.append(rule("permit", {"msgTo": {"equals": f"x{number}"}}))
        rules.append(rule("deny", {"msgId": {"moreThan": number + 5}}))
    rules.insert(size, rule("permit", {"msgTo": {"equals": "hyperty://b.com/2"}}, id="indexed"))
    rules.insert(size + 1, rule("deny", {"msgId": {"moreThan": 0}}, id="unindexed"))
    assert outcome(rules=rules, alg="firstApplicable").deciding[-1] == "indexed"
    rules[size], rules[size + 1] = rules[size + 1], rules[size]
    assert outcome(rules=rules, alg="firstApplicable").deciding[-1] == "unindexed"


def test_a_broken_rule_among_many_leaves_the_others_in_force():
    rules = [rule("permit", {"msgId": {"moreThan": n + 5}}) for n in range(30)]
    rules[7] = rule("permit", BROKEN)
    rules.append(rule("deny", {"msgId": {"moreThan": 0}}, id="stop"))
    assert outcome(rules=rules).deciding[-1] == "stop"
    assert outcome(rules=rules[:-1]).effect == "indeterminate"


def test_an_attribute_that_cannot_be_told_makes_indexed_rules_indeterminate():
    rules = [rule("deny", {"dstUsername": {"equals": name}}) for name in "ab"]
    facts = facts_of({})
    facts["=dstUsername"] = facts["dstUsername"] = Undetermined("not at hand")
    snapshot = compile_sets(read_document([{"policies": [{"rules": rules}]}]))
    assert snapshot.decide(facts).effect == "indeterminate"


def test_where_an_indexed_fact_is_not_known_every_rule_is_looked_at():
    by_group = [rule("deny", {"srcGroups": {"equals": f"g{n}"}}) for n in range(5)]
    by_address = [rule("permit", {"msgTo": {"equals": f"hyperty://b.com/{n}"}}) for n in range(5)]
    document = [{"policies": [{"rules": [*by_group, *by_address]}]}]
    facts = facts_of({"pip": {"srcGroups": Undetermined("the directory is away")}})
    sets = read_document(document)
    found = [compile_sets(sets, indexed=each).decide(facts) for each in (True, False)]
    assert found[0] == found[1]
    assert found[0].effect == "indeterminate"
    assert len(found[0].errors) == 5


def combined(*outcomes, collect, losers):
    """What block-overrides makes of children, and which of them it asked."""
    asked = []

    def child(number):
        return lambda facts: asked.append(number) or outcomes[number]

    children = [child(number) for number in range(len(outcomes))]
    siblings = Siblings(children, ("S",), collect, losers)
    decided = combiner(Algorithm.BLOCK_OVERRIDES, siblings)(facts_of({}), range(len(outcomes)))
    return decided, asked


def test_who_can_only_lose_is_not_asked_once_somebody_has_lost():
    permits = [Outcome(Effect.PERMIT), Outcome(Effect.PERMIT)]
    assert combined(*permits, collect=False, losers=1)[1] == [0]
    assert combined(*permits, collect=False, losers=2)[1] == [0, 1]
    assert combined(*permits, collect=True, losers=1)[1] == [0, 1]
