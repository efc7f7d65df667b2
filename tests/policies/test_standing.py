"""What of a rule is in force, in words; and one rule that is enforced alone and taken back."""

from __future__ import annotations

import pytest

from policies.authoring import pap, standing
from policies.authoring.drafts import policy_of_the_console, replace_draft
from policies.authoring.standing import State
from policies.enforcement.snapshot import make_snapshot
from policies.engine.language import PolicyError
from policies.models import PolicySet, PolicyTest, Rule

pytestmark = pytest.mark.django_db


def rule_of_the_console(key: str = "no-updates") -> Rule:
    condition = {"actionType": {"equals": "update"}}
    return Rule.objects.create(key=key, policy=policy_of_the_console(), condition=condition)


def enforce(rule: Rule, shown: str = "") -> None:
    standing.apply(rule, standing.enforcing(rule), None, shown)
    rule.refresh_from_db()


def take_back(rule: Rule) -> None:
    standing.apply(rule, standing.taking_back(rule), None, "")
    rule.refresh_from_db()


def enforced_rules() -> int:
    version = pap.current()
    assert version is not None
    return make_snapshot(version.document, version.lists).enforced.rules


def state(rule: Rule) -> State:
    return standing.standing_of(rule).state


def test_a_rule_is_not_in_force_then_counted_then_enforced_then_counted_again() -> None:
    rule = rule_of_the_console()
    assert state(rule) is State.NOT_YET
    pap.publish()
    assert (state(rule), enforced_rules()) == (State.SHADOW, 0)
    assert "decides no message by it" in standing.standing_of(rule).words
    enforce(rule)
    assert (state(rule), enforced_rules()) == (State.ENFORCED, 1)
    take_back(rule)
    assert (state(rule), enforced_rules()) == (State.SHADOW, 0)
    assert rule.policy == policy_of_the_console()


def test_what_was_enforced_alone_stays_so_when_the_whole_draft_is_published() -> None:
    rule = rule_of_the_console()
    enforce(rule)
    pap.publish()
    assert (state(rule), enforced_rules()) == (State.ENFORCED, 1)


def test_other_rules_and_edits_of_the_draft_stay_out_of_force() -> None:
    rule, other = rule_of_the_console(), rule_of_the_console("other")
    enforce(rule)
    assert state(other) is State.NOT_YET
    Rule.objects.filter(pk=rule.pk).update(condition={})
    rule.refresh_from_db()
    found = standing.standing_of(rule)
    assert (found.state, found.is_changed) == (State.ENFORCED, True)
    assert "not in force yet" in found.words
    enforce(rule)
    assert not standing.standing_of(rule).is_changed
    assert (state(other), enforced_rules()) == (State.NOT_YET, 1)


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_a_rule_deep_in_a_set_that_is_not_enforced_keeps_what_is_around_it(mode: str) -> None:
    target = {"actionType": {"equals": "create"}}
    rules = [{"id": "R", "effect": "deny"}, {"id": "S", "effect": "deny"}]
    inner = {"id": "inner", "target": target, "policies": [{"id": "P", "rules": rules}]}
    replace_draft([{"id": "top", "mode": mode, "policies": [inner]}], {})
    pap.publish()
    rule, other = Rule.objects.order_by("key")
    enforce(rule)
    document = pap.current().document
    (path, _, _) = next(each for each in standing.rules_of(document) if each[1] == "enforce")
    assert path == ("top-enforced", "inner", "P", "R")
    assert document[1]["policies"][0]["target"] == target
    assert (state(rule), state(other)) == (State.ENFORCED, State(standing._MODES[mode]))


def test_a_rule_of_an_enforced_set_is_taken_back_to_a_set_in_shadow_mode() -> None:
    rules = [{"id": "R", "effect": "deny"}, {"id": "S", "effect": "deny"}]
    replace_draft([{"id": "top", "mode": "enforce", "policies": [{"id": "P", "rules": rules}]}], {})
    pap.publish()
    rule, other = Rule.objects.order_by("key")
    take_back(rule)
    assert (state(rule), state(other), enforced_rules()) == (State.SHADOW, State.ENFORCED, 1)
    assert rule.policy.policy_set.key == "top-shadow"
    enforce(rule)
    assert (rule.policy.policy_set.key, enforced_rules()) == ("top", 2)


def test_a_set_that_the_draft_enforces_but_no_version_does_enforces_nothing_else() -> None:
    rule, other = rule_of_the_console(), rule_of_the_console("other")
    pap.publish()
    PolicySet.objects.update(mode="enforce")
    rule.refresh_from_db()
    enforce(rule)
    assert (state(rule), state(other), enforced_rules()) == (State.ENFORCED, State.SHADOW, 1)


def test_a_set_beside_that_is_switched_off_is_named_and_nothing_happens() -> None:
    rule = rule_of_the_console()
    PolicySet.objects.create(key="console-enforced", mode="off")
    with pytest.raises(PolicyError, match="console-enforced is not in mode enforce"):
        standing.enforcing(rule)


def test_a_rule_of_the_same_name_in_the_set_beside_is_named() -> None:
    first = rule_of_the_console()
    enforce(first)
    second = rule_of_the_console()
    with pytest.raises(PolicyError, match="there is a rule no-updates already"):
        standing.enforcing(second)


def test_nothing_is_published_or_moved_if_a_test_of_the_policies_fails() -> None:
    rule = rule_of_the_console()
    PolicyTest.objects.create(
        name="updates pass", case={"msg": {"type": "update"}, "expect": "permit"}
    )
    with pytest.raises(pap.NotFit, match="updates pass"):
        enforce(rule)
    rule.refresh_from_db()
    assert pap.current() is None
    assert rule.policy == policy_of_the_console()


def test_what_is_not_as_it_was_shown_is_not_enforced() -> None:
    rule = rule_of_the_console()
    shown = standing.enforcing(rule).mark
    Rule.objects.update(effect="permit")
    rule.refresh_from_db()
    with pytest.raises(pap.ChangedMeanwhile):
        enforce(rule, shown)


def test_the_changes_of_a_document_are_said_in_words() -> None:
    rules = [{"id": "R", "effect": "deny"}, {"id": "S", "effect": "deny"}]
    before = [{"id": "top", "mode": "shadow", "policies": [{"id": "P", "rules": rules}]}]
    after = [
        {"id": "top", "mode": "enforce", "policies": [{"id": "P", "rules": rules[:1]}]},
        {"id": "new", "mode": "shadow", "policies": [{"id": "Q", "rules": rules[1:]}]},
    ]
    assert standing.changes_in_words((before, {}), (after, {})) == [
        ("top / P / R", "enforced; in shadow: only counted now", "Refuses every message."),
        ("new / Q / S", "new, in shadow: only counted", "Refuses every message."),
        ("top / P / S", "removed; in shadow: only counted now", "Refuses every message."),
    ]
