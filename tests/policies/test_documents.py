"""Reading documents: every fault is found, with its path and what was expected."""

from __future__ import annotations

import time

import pytest

from policies.authoring.cases import facts_of
from policies.authoring.transfer import read_bundle
from policies.engine.documents import read_document
from policies.engine.language import MAX_SETS, PolicyError
from policies.engine.pdp import compile_sets
from policies.engine.vocabulary import Algorithm


def document(condition=None, **rule):
    rule = {"effect": "permit", **rule}
    if condition is not None:
        rule["condition"] = condition
    return [{"policies": [{"rules": [rule]}]}]


def problems(raw, **more):
    with pytest.raises(PolicyError) as caught:
        read_document(raw, **more)
    return [str(problem) for problem in caught.value.problems]


def test_defaults_of_what_is_left_out():
    (policy_set,) = read_document([{"policies": [{"rules": [{"effect": "deny"}]}]}])
    policy = policy_set.policies[0]
    assert (policy_set.id, policy.id, policy.rules[0].id) == ("set-1", "set-1/1", "set-1/1/1")
    assert policy.algorithm is policy_set.algorithm is Algorithm.BLOCK_OVERRIDES
    assert policy.rules[0].priority == 0


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("denyOverrides", Algorithm.BLOCK_OVERRIDES),
        ("permit-overrides", Algorithm.ALLOW_OVERRIDES),
        ("first-applicable", Algorithm.FIRST_APPLICABLE),
    ],
)
def test_other_spellings_of_algorithms_are_read(name, algorithm):
    (policy_set,) = read_document([{"policyCombiningAlgorithm": name}])
    assert policy_set.algorithm is algorithm


def test_older_attribute_names_are_read():
    read_document(document({"<actType>": {"equals": "create"}, "domainUrl": {"exists": True}}))


def test_a_named_list_stands_for_its_members():
    lists = {"friends": ("eve@a.com",)}
    read_document(document({"srcUsername": {"in": ["@friends", "bob@a.com"]}}), lists)


def test_text_that_is_not_json_is_refused():
    with pytest.raises(PolicyError, match="not JSON"):
        read_bundle("[{]")


def test_a_document_in_the_spelling_of_the_fields_nodes_is_read():
    rule = {"id": 1, "target": {"<actType>": {"in": ["create"]}}, "condition": [], "effect": "deny"}
    scheme = {"<srcScheme>": {"in": ["hello", "<dstScheme>"]}}
    other = {"id": 2, "target": {}, "condition": scheme, "effect": "permit", "priority": 0}
    policy = {"id": 1, "rules": [rule, other], "obligations": {"deny": {"info": "no"}}}
    raw = {"id": 1, "version": 1, "update": "2017-03-14 17:18:31", "policies": [policy]}
    (policy_set,) = read_document([{**raw, "policyCombiningAlgorithm": "allowOverrides"}])
    assert (policy_set.id, policy_set.version) == ("1", 1)
    assert [each.id for each in policy_set.policies[0].rules] == ["1", "2"]
    assert policy_set.policies[0].obligations["deny"][0].value == "no"


def test_sets_may_be_nested_as_deep_as_allowed_and_then_decide():
    raw = {"target": {"msgId": {"equals": 1}}, "policies": [{"rules": [{"effect": "deny"}]}]}
    for _ in range(MAX_SETS - 1):
        obligations = {"deny": {"log": "x"}}
        raw = {"target": {"msgId": {"equals": 1}}, "policies": [raw, {"rules": []}]}
        raw["obligations"] = obligations
    outcome = compile_sets(read_document([raw])).decide(facts_of({}))
    assert outcome.effect == "deny"
    assert len(outcome.obligations) == MAX_SETS - 1


@pytest.mark.parametrize(
    "text",
    [
        '[{"policies": [{"rules": [{"effect": "deny", "effect": "permit"}]}]}]',
        '[{"policies": [], "policies": []}]',
        '[{"policies": [{"rules": [{"effect": "deny", "condition": '
        '{"srcDomain": {"equals": "a"}, "srcDomain": {"equals": "b"}}}]}]}]',
    ],
)
def test_a_key_that_stands_twice_is_refused_and_named(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_bundle(text)
    (problem,) = caught.value.problems
    assert "stands twice in one object" in str(problem)
    assert any(f"'{key}'" in str(problem) for key in ("effect", "policies", "srcDomain"))
    assert read_bundle('[{"policies": [{"rules": [{"effect": "deny"}, {"effect": "deny"}]}]}]')


def test_a_text_with_a_nul_is_refused_and_one_that_names_it_is_not() -> None:
    for text in (r'[{"description": "a\u0000"}]', r'[{"description": "\\\u0000"}]'):
        for form in (text, text.encode()):
            with pytest.raises(PolicyError, match="NUL"):
                read_bundle(form)
    assert read_bundle(r'[{"description": "\\u0000"}]')


def test_one_id_that_stands_twice_among_very_many_is_found_at_once():
    rules = [{"id": str(number), "effect": "permit"} for number in range(20_000)]
    began = time.process_time()
    with pytest.raises(PolicyError, match="'19999' stands twice"):
        read_document([{"policies": [{"rules": [*rules, rules[-1]]}]}])
    assert time.process_time() - began < 2
