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
    ("algorithm", "effect"), [("denyUnlessPermit", "deny"), ("permitUnlessDeny", "permit")]
)
def test_a_closed_world_always_decides(algorithm, effect):
    assert outcome(rules=[rule("permit", {"msgId": {"equals": 9}})], alg=algorithm).effect == effect
    assert outcome(rules=[rule(effect, BROKEN)], alg=algorithm).effect == effect


def test_what_a_closed_world_decides_by_itself_is_said_to_be_its_own():
    never = rule("permit", {"msgId": {"equals": 9}})
    policy = {"id": "P", "ruleCombiningAlgorithm": "denyUnlessPermit", "rules": [never]}
    decided = outcome(sets=[{"id": "S", "policies": [policy]}])
    assert (decided.effect, decided.deciding) == ("deny", ("S", "P"))


def test_a_closed_world_tells_what_could_not_be_evaluated():
    assert outcome(rules=[rule("permit", BROKEN)], alg="denyUnlessPermit").errors


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


def test_a_set_that_does_not_apply_lets_the_next_be_asked():
    sets = [
        {"priority": 0, "policies": [{"rules": [rule("deny", {"msgId": {"equals": 9}})]}]},
        {"priority": 1, "policies": [{"rules": [rule("permit")]}]},
    ]
    assert outcome(sets=sets).effect == "permit"


def test_duties_of_all_equal_decisions_are_due():
    rules = [rule("deny", obligations={"log": "a"}), rule("deny", obligations={"log": "b"})]
    assert [obligation.value for obligation in outcome(rules=rules).obligations] == ["a", "b"]


@pytest.mark.parametrize("what", ["obligations", "advice"])
@pytest.mark.parametrize("depth", [0, 1])
def test_duties_of_all_equal_policies_and_sets_are_due(what, depth):
    policies = [{"rules": [rule("deny")], what: {"deny": {"log": text}}} for text in "ab"]
    for _ in range(depth):
        policies = [{"policies": [policy]} for policy in policies]
    found = outcome(sets=[{"policies": policies}])
    assert [each.value for each in getattr(found, what)] == ["a", "b"]


@pytest.mark.parametrize("count", [3, 40, 300])
def test_duties_of_equal_rules_that_no_index_covers_are_due_once_each(count):
    rules = [rule("deny", obligations={"log": str(number)}) for number in range(count)]
    found = outcome(rules=rules)
    assert [each.value for each in found.obligations] == [str(number) for number in range(count)]


@pytest.mark.parametrize("count", [3, 40])
def test_the_first_of_many_policies_that_no_index_covers_decides(count):
    policies = [{"target": {"msgId": {"moreThan": 1000}}, "rules": [rule("permit")]}] * count
    policies = [{**policy, "id": str(number)} for number, policy in enumerate(policies)]
    policies += [{"id": "here", "rules": [rule("deny")]}, {"id": "later", "rules": [rule("deny")]}]
    sets = [{"policyCombiningAlgorithm": "firstApplicable", "policies": policies}]
    assert outcome(sets=sets).deciding[1] == "here"


def test_duties_may_be_lists_and_by_decision():
    rules = [
        rule("deny", obligations=[{"log": "a"}, {"log": "b"}]),
        rule("deny", obligations={"deny": {"log": "c"}, "permit": {"log": "d"}}),
    ]
    assert [obligation.value for obligation in outcome(rules=rules).obligations] == ["a", "b", "c"]


def test_duties_carry_their_source():
    (obligation,) = outcome(rules=[rule("deny", obligations={"log": "a"}, id="R")]).obligations
    assert obligation.source == "R"


def test_advice_travels_beside_obligations():
    found = outcome(rules=[rule("permit", advice={"anything": 1})])
    assert [obligation.name for obligation in found.advice] == ["anything"]
    assert found.obligations == ()


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


def test_an_indexed_rule_comes_before_the_last_one_that_no_index_covers():
    rules = [rule("deny", {"msgId": {"moreThan": number + 1000}}) for number in range(20)]
    rules.append(rule("permit", {"msgTo": {"equals": "hyperty://b.com/2"}}, id="indexed"))
    rules.append(rule("deny", {"msgId": {"moreThan": 0}}, id="last"))
    assert outcome(rules=rules, alg="firstApplicable").deciding[-1] == "indexed"


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


@pytest.mark.parametrize(
    ("algorithm", "effect"), [("blockOverrides", "permit"), ("allowOverrides", "deny")]
)
def test_a_decision_that_an_unclear_rule_could_not_have_changed_stands_with_its_error(
    algorithm, effect
):
    rules = [rule(effect, obligations={"log": "a"}), rule(effect, BROKEN)]
    found = outcome(rules=rules, alg=algorithm)
    assert found.effect == effect
    assert [obligation.value for obligation in found.obligations] == ["a"]
    assert found.errors


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


@pytest.mark.parametrize("effect", [Effect.DENY, Effect.PERMIT, Effect.NOT_APPLICABLE])
@pytest.mark.parametrize("what", ["obligations", "advice", "errors"])
def test_equal_decisions_bring_what_each_of_them_has(effect, what):
    one, other = (Outcome(effect, **{what: (each,)}) for each in ("first", "second"))
    decided, _ = combined(one, other, collect=True, losers=2)
    assert getattr(decided, what) == ("first", "second")
    assert decided.effect is effect
