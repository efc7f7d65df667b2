"""On random documents and messages, the compiled engine decides as the plain evaluator does."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.authoring.cases import facts_of
from policies.engine.documents import read_document
from policies.engine.pdp import compile_sets

from . import plain

TEXTS = ["a", "b", "ab", "a.com", "b.com"]
USERS = ["bob@a.com", "eve@b.com", "bob", None]
TYPES = ["create", "read", "SUBSCRIBE"]
DAYS = {"2017-03-13": "monday", "2017-03-15": "wednesday", "2017-03-18": "saturday"}

words = st.sampled_from(TEXTS)
numbers = st.sampled_from([0, 1, 2, 5, -3, 1.5])


def listed(items):
    return items | st.lists(items, min_size=1, max_size=3)


TESTS = {
    "actionType": st.fixed_dictionaries(
        {"equals": listed(st.sampled_from(["create", "READ", "*"]))}
    )
    | st.fixed_dictionaries({"in": st.lists(st.sampled_from(TYPES), min_size=1, max_size=2)}),
    "srcUsername": st.fixed_dictionaries(
        {"equals": listed(st.sampled_from(["bob@a.com", "eve@b.com", "*"]))}
    )
    | st.fixed_dictionaries(
        {"like": listed(st.sampled_from(["*@a.com", "bob*", "*o*", "*", "b*@*.com", "bob"]))}
    )
    | st.fixed_dictionaries({"exists": st.booleans()}),
    "resource": st.fixed_dictionaries({"equals": listed(words | numbers)})
    | st.fixed_dictionaries({"contains": listed(words)})
    | st.fixed_dictionaries({"moreThan": listed(numbers), "exists": st.booleans()})
    | st.fixed_dictionaries({"lessThan": listed(numbers)}),
    "msgId": st.fixed_dictionaries(
        {"moreThan": numbers, "lessThan": numbers | st.just("<resource>")}
    )
    | st.fixed_dictionaries({"between": listed(st.sampled_from(["0 2", "1 1", "-3 0.5"]))})
    | st.fixed_dictionaries({"equals": listed(numbers | st.just("<resource>"))}),
    "srcSPDomain": st.fixed_dictionaries(
        {"equals": listed(st.sampled_from(["a.com", "B.COM", "<dstSPDomain>"]))}
    ),
    "time": st.fixed_dictionaries(
        {"between": listed(st.sampled_from(["06:00 12:30", "23:00:00 01:00:00", "13:00 23:00"]))}
    )
    | st.fixed_dictionaries({"moreThan": st.sampled_from(["12:00", "00:30:00"])}),
    "weekday": st.fixed_dictionaries({"in": listed(st.sampled_from(["Saturday", "sunday"]))})
    | st.fixed_dictionaries({"between": st.sampled_from(["friday monday", "monday wednesday"])}),
}


def expressions(name):
    return st.recursive(
        TESTS[name],
        lambda inner: (
            st.lists(inner, min_size=1, max_size=2)
            | st.fixed_dictionaries({"not": inner | st.lists(inner, min_size=1, max_size=2)})
            | st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)})
        ),
        max_leaves=3,
    )


leaves = st.sampled_from(sorted(TESTS)).flatmap(
    lambda name: st.fixed_dictionaries({name: expressions(name)})
)
conditions = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"not": inner})
        | st.tuples(inner, inner)
        .filter(lambda p: all(isinstance(c, dict) for c in p))
        .map(lambda pair: {**pair[0], **pair[1]})
    ),
    max_leaves=6,
)
algorithms = st.sampled_from(
    ["blockOverrides", "allowOverrides", "firstApplicable", "denyUnlessPermit", "permitUnlessDeny"]
)
obligations = st.just({}) | st.fixed_dictionaries({"log": st.sampled_from(["x", "y"])})
due = st.just({}) | st.fixed_dictionaries({"permit": obligations, "deny": obligations})
targets = st.just({}) | leaves
priorities = st.integers(0, 2)
rules = st.fixed_dictionaries(
    {
        "effect": st.sampled_from(["permit", "deny"]),
        "target": targets,
        "condition": st.just({}) | conditions,
        "priority": priorities,
        "obligations": obligations,
    }
)
policies = st.fixed_dictionaries(
    {
        "rules": st.lists(rules, max_size=5) | st.lists(rules, min_size=9, max_size=14),
        "target": targets,
        "ruleCombiningAlgorithm": algorithms,
        "priority": priorities,
        "obligations": due,
    }
)
sets = st.recursive(
    policies,
    lambda inner: st.fixed_dictionaries(
        {
            "policies": st.lists(inner, max_size=3),
            "target": targets,
            "policyCombiningAlgorithm": algorithms,
            "priority": priorities,
            "obligations": due,
        }
    ),
    max_leaves=4,
).filter(lambda node: "policies" in node)
documents = st.lists(sets, max_size=3)
resources = st.none() | words | numbers | st.lists(words | numbers, max_size=3)


@st.composite
def cases(draw):
    date, clock = (
        draw(st.sampled_from(sorted(DAYS))),
        draw(st.sampled_from(["00:30:00", "12:15:00", "23:30:00"])),
    )
    type_, id_ = draw(st.sampled_from(TYPES)), draw(numbers | words)
    source, target = draw(st.sampled_from(["a.com", "b.com"])), draw(st.sampled_from("ac"))
    resource, user = draw(resources), draw(st.sampled_from(USERS))
    ends = {"from": f"hyperty://{source}/1", "to": f"hyperty://{target}.com/2"}
    message = {"type": type_, "id": id_, **ends}
    body = {} if resource is None else {"resource": resource}
    known = {
        **{"actionType": type_.lower(), "msgId": id_, "srcUsername": user, "resource": resource},
        **{"srcSPDomain": source, "dstSPDomain": f"{target}.com"},
        **{"time": clock, "weekday": DAYS[date]},
    }
    return {"msg": {**message, "body": body}, "user": user, "now": f"{date}T{clock}"}, known


@settings(max_examples=settings().max_examples // 8, deadline=None)
@given(document=documents, case=cases())
def test_decision_and_duties_are_the_same_with_and_without_the_index(document, case):
    described, known = case
    effect, obligations = plain.evaluate(document, known)
    for indexed in (True, False):
        sets = compile_sets(read_document(document), indexed=indexed)
        outcome = sets.decide(facts_of(described))
        assert outcome.effect.value == effect, json.dumps(document)
        if effect in ("permit", "deny"):
            assert sorted([d.name, d.value] for d in outcome.obligations) == sorted(obligations)
