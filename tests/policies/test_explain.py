"""The tree of a decision agrees with the decision and shows the values used."""

from __future__ import annotations

from policies.authoring.cases import facts_of
from policies.authoring.explain import explain
from policies.engine.documents import read_document


def tree(*rules, case=None, **more):
    document = [{"id": "S", "policies": [{"id": "P", "rules": list(rules)}], **more}]
    (branch,) = explain(read_document(document), facts_of(case or {}))
    return branch


def flat(branch):
    yield branch
    for child in branch.children:
        yield from flat(child)


def test_every_layer_and_test_is_shown_with_its_truth():
    branch = tree(
        {
            "id": "R",
            "effect": "deny",
            "target": {"actionType": {"equals": ["create", "read"]}},
            "condition": {
                "not": [{"msgId": {"moreThan": 5}}],
                "anyOf": [{"time": {"between": "11:00 13:00"}}, {"weekday": {"equals": "sunday"}}],
            },
        },
        target={"srcUsername": {"exists": False}},
    )
    shown = {each.label: (each.result, each.note) for each in flat(branch)}
    assert shown["set S (blockOverrides)"] == ("deny", "")
    assert shown["target: srcUsername exists False"] == ("true", "absent")
    assert shown["policy P (blockOverrides)"][0] == "deny"
    assert shown["rule R (deny)"][0] == "deny"
    assert shown["target: actionType equals create or read"] == ("true", '"create"')
    assert shown["not"][0] == "true"
    assert shown["msgId moreThan 5"] == ("false", "1")
    assert shown["time between 11:00:00 … 13:00:00"] == ("true", '"12:00:00"')
    assert shown["weekday equals sunday"] == ("false", '"wednesday"')


def test_what_cannot_be_told_is_shown_with_the_reason():
    branch = tree(
        {"id": "R", "effect": "permit", "condition": {"msgFrom": {"moreThan": 5}}},
    )
    shown = {each.label: (each.result, each.note) for each in flat(branch)}
    assert shown["rule R (permit)"] == (
        "indeterminate",
        "'hyperty://a.com/1' is not a number",
    )
    assert shown["condition: msgFrom moreThan 5"][0] == "cannot be told"


def test_references_dates_and_patterns_are_in_words():
    branch = tree(
        {
            "effect": "deny",
            "condition": [
                {"srcSPDomain": {"equals": "<dstSPDomain>"}},
                {"date": {"lessThan": "2017-03-16"}},
                {"weekday": {"between": "friday monday"}},
                {"msgTo": {"like": "a*\\*"}},
            ],
        }
    )
    labels = {each.label for each in flat(branch)}
    assert "srcSPDomain equals <dstSPDomain>" in labels
    assert "date lessThan 2017-03-16" in labels
    assert "weekday between friday … monday" in labels
    assert "msgTo like a*\\*" in labels
