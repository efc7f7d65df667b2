"""Reading documents: every fault is found, with its path and what was expected."""

from __future__ import annotations

import json
import time

import pytest

from policies.authoring.cases import facts_of
from policies.authoring.transfer import read_bundle
from policies.engine.documents import read_document, read_text
from policies.engine.language import MAX_DEPTH, MAX_SETS, PolicyError
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


AT = "$[0].policies[0].rules[0]"


@pytest.mark.parametrize(
    ("condition", "path", "expected"),
    [
        ({"srcDomains": {"equals": "a"}}, ".condition.srcDomains", "did you mean"),
        ({"qqqq": {"equals": "a"}}, ".condition.qqqq", "see the list of attributes"),
        ({"<srcDomainx": {"equals": "a"}}, ".condition.<srcDomainx", "no attribute '<srcDomainx'"),
        ({"and": []}, ".condition.and", "must not be empty"),
        (["or"], ".condition.anyOf", "must not be empty"),
        (
            {"msgType": {"equals": ["create", "x"]}},
            ".condition.msgType.equals",
            "msgType is never 'x'",
        ),
        ({"msgId": {"equal": 1}}, ".condition.msgId.equal", "there is no operator"),
        ({"msgId": {"moreThan": "x"}}, ".condition.msgId.moreThan", "expected a number"),
        ({"msgId": {"equals": []}}, ".condition.msgId.equals", "must not be empty"),
        ({"msgId": {}}, ".condition.msgId", "expected an operator"),
        ({"msgId": 1}, ".condition.msgId", "expected an operator"),
        ({"anyOf": []}, ".condition.anyOf", "must not be empty"),
        ({"not": {}}, ".condition.not", "must not be empty"),
        ({"allOf": [{"msgId": {"equals": 1}}, {}]}, ".condition.allOf[1]", "empty condition"),
        ("always", ".condition", "expected a map of conditions"),
        ({"time": {"between": "6:00"}}, ".condition.time.between", "two bounds"),
        ({"time": {"between": "25:00 26:00"}}, ".condition.time.between", "06:00"),
        ({"msgId": {"between": "5 1"}}, ".condition.msgId.between", "lower bound comes first"),
        ({"date": {"moreThan": "2017-3-5"}}, ".condition.date.moreThan", "2017-03-15"),
        ({"weekday": {"equals": "caturday"}}, ".condition.weekday.equals", "monday"),
        ({"actionType": {"in": ["creat"]}}, ".condition.actionType.in", "never 'creat'"),
        ({"srcUsername": {"like": 5}}, ".condition.srcUsername.like", "expects a text"),
        ({"srcUsername": {"like": "<msgTo>"}}, ".condition.srcUsername.like", "no reference"),
        ({"srcUsername": {"exists": "yes"}}, ".condition.srcUsername.exists", "true or false"),
        ({"srcUsername": {"in": "@friends"}}, ".condition.srcUsername.in", "no list named"),
        ({"msgTo": {"equals": {"a": 1}}}, ".condition.msgTo.equals", "expected a text"),
        ({"rate.colour.minute": {"moreThan": 1}}, ".condition.rate.colour.minute", "no attribute"),
        ({"sumOf msgId colour": {"moreThan": 1}}, ".condition.sumOf msgId colour", "no attribute"),
        ({"total msgId": {"moreThan": 1}}, ".condition.total msgId", "no attribute 'total msgId'"),
        ({"msgTo": {"contains": [None]}}, ".condition.msgTo.contains[0]", "expected a text"),
        ({"time": {"moreThan": 6}}, ".condition.time.moreThan", "06:00"),
        ({"srcUsername": {"equals": ["*", {}]}}, ".condition.srcUsername.equals[1]", "a text"),
        ({"srcUsername": {"equals": ["<msgTo>", {}]}}, ".condition.srcUsername.equals[1]", "text"),
    ],
)
def test_a_fault_in_a_condition_is_told_with_its_path(condition, path, expected):
    (problem,) = problems(document(condition))
    assert problem.startswith(f"{AT}{path}: ")
    assert expected in problem


@pytest.mark.parametrize(
    ("raw", "path", "expected"),
    [
        ("text", "$", "list of policy sets"),
        ([1], "$[0]", "a policy set"),
        ([{"policy": []}], "$[0].policy", "no such key"),
        ([{"policies": {}}], "$[0].policies", "expected a list"),
        ([{"policyCombiningAlgorithm": "best"}], "$[0].policyCombiningAlgorithm", "blockOverrides"),
        ([{"id": ""}], "$[0].id", "a text or a number"),
        ([{"priority": "high"}], "$[0].priority", "the lower one comes first"),
        ([{"id": "a"}, {"id": "a"}], "$", "'a' stands twice"),
        ([{"obligations": {"log": "x"}}], "$[0].obligations", "by decision"),
        ([{"advice": {"log": "x"}}], "$[0].advice", "by decision"),
        (
            [{"policies": [{"obligations": {"log": "x"}}]}],
            "$[0].policies[0].obligations",
            "by decision",
        ),
        (document(effect="allow"), f"{AT}.effect", "permit or deny"),
        (document(obligations={"mail": "x"}), f"{AT}.obligations.mail", "emailto"),
        (document(obligations={"emailto": "x"}), f"{AT}.obligations.emailto", "e-mail"),
        (document(obligations={"log": 1}), f"{AT}.obligations.log", "a text"),
        (document(obligations="log"), f"{AT}.obligations", "a map of names"),
        (document(obligations={"rateLimit": 60}), f"{AT}.obligations.rateLimit", "a map such as"),
        (
            document(obligations={"rateLimit": {"rate.msgTo.week": 1}}),
            f"{AT}.obligations.rateLimit.rate.msgTo.week",
            "second|minute|hour|day",
        ),
        (
            document(obligations={"limitByNumberOfEntries": 1}),
            f"{AT}.obligations.limitByNumberOfEntries",
            "expected a map {attribute: limit}",
        ),
        (
            document(obligations={"limitByNumberOfEntries": {"msgTo": 1}}),
            f"{AT}.obligations.limitByNumberOfEntries.msgTo",
            "cannot be rewritten",
        ),
        (
            document(obligations={"limitByNumberOfEntries": {"valueAllocated": -1}}),
            f"{AT}.obligations.limitByNumberOfEntries.valueAllocated",
            "0 or more",
        ),
        (
            document(obligations={"limitByConditionOfEntries": {"bodyValue": {"x": {"is": 1}}}}),
            f"{AT}.obligations.limitByConditionOfEntries.bodyValue.x.is",
            "there is no operator",
        ),
    ],
)
def test_a_fault_in_a_layer_is_told_with_its_path(raw, path, expected):
    (problem,) = problems(raw)
    assert problem.startswith(f"{path}: ")
    assert expected in problem


def test_all_faults_are_told_at_once():
    raw = [{"policies": [{"rules": [{"effect": "x", "condition": {"nope": {}}, "prio": 1}]}]}]
    assert len(problems(raw)) == 3


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


def nested(layers):
    condition = {"msgId": {"equals": 1}}
    for _ in range(layers - 2):
        condition = {"allOf": [condition]}
    return condition


def test_conditions_may_have_as_many_layers_as_allowed():
    read_document(document(nested(MAX_DEPTH)))


def test_one_layer_more_is_refused():
    (problem,) = problems(document(nested(MAX_DEPTH + 1)))
    assert f"deeper than {MAX_DEPTH}" in problem


@pytest.mark.parametrize("layers", [2_000, 100_000])
def test_any_depth_of_text_is_refused_in_words(layers):
    text = '[{"target":' + '{"allOf":[' * layers + "]}" * layers + "}]"
    with pytest.raises(PolicyError, match="deeper"):
        read_text(text)


def test_text_that_is_not_json_is_refused():
    with pytest.raises(PolicyError, match="not JSON"):
        read_text("[{]")


def test_sets_may_hold_sets():
    inner = {"id": "inner", "policies": [{"rules": [{"effect": "deny"}]}]}
    (outer,) = read_text(json.dumps([{"policies": [inner]}]))
    assert outer.policies[0].id == "inner"


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


def test_no_nesting_of_sets_exhausts_the_reader():
    raw = {"policies": []}
    for _ in range(2_000):
        raw = {"policies": [raw]}
    assert "deeper" in problems([raw])[0]


@pytest.mark.parametrize(
    ("raw", "path", "expected"),
    [
        ({"id": "x" * 101}, "$[0].id", "at most 100 characters"),
        ({"id": "a\x00"}, "$[0].id", "can be printed"),
        ({"priority": 10**20}, "$[0].priority", "whole number"),
        ({"priority": 1.5}, "$[0].priority", "whole number"),
        ({"mode": "enforced"}, "$[0].mode", "one of off, shadow, enforce"),
        ({"mode": []}, "$[0].mode", "one of off, shadow, enforce"),
    ],
)
def test_what_the_draft_could_not_keep_is_a_fault(raw, path, expected):
    (problem,) = problems([{**raw, "policies": []}])
    assert problem.startswith(path)
    assert expected in problem


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
    for read in (read_text, read_bundle):
        with pytest.raises(PolicyError) as caught:
            read(text)
        (problem,) = caught.value.problems
        assert "stands twice in one object" in str(problem)
        assert any(f"'{key}'" in str(problem) for key in ("effect", "policies", "srcDomain"))
    assert read_text('[{"policies": [{"rules": [{"effect": "deny"}, {"effect": "deny"}]}]}]')


def test_a_text_with_a_nul_is_refused_and_one_that_names_it_is_not() -> None:
    for text in (r'[{"description": "a\u0000"}]', r'[{"description": "\\\u0000"}]'):
        for form in (text, text.encode()):
            for read in (read_text, read_bundle):
                with pytest.raises(PolicyError, match="NUL"):
                    read(form)
    assert read_text(r'[{"description": "\\u0000"}]')


def test_one_id_that_stands_twice_among_very_many_is_found_at_once():
    rules = [{"id": str(number), "effect": "permit"} for number in range(20_000)]
    began = time.process_time()
    with pytest.raises(PolicyError, match="'19999' stands twice"):
        read_document([{"policies": [{"rules": [*rules, rules[-1]]}]}])
    assert time.process_time() - began < 2
