"""What the field published and its runtimes write: read, with a warning that shows our form."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from policies.authoring import pap
from policies.authoring.drafts import add_bundle, warnings_of
from policies.authoring.forms import review
from policies.authoring.transfer import read_bundle
from policies.engine.documents import read_document

PUBLISHED = {
    "id": 1,
    "version": 1,
    "update": "2017-03-14 17:18:31",
    "policyCombiningAlgorithm": "firstApplicable",
    "policies": [
        {
            "id": 1,
            "rules": [
                {
                    "id": 1,
                    "target": [
                        {"srcDomain": {"equals": "mail.example"}},
                        {"msgType": {"equals": ["create", "open", "handshake"]}},
                    ],
                    "condition": {"or": [{"weekday": {"not": {"equals": "sunday"}}},
                                         {"and": [{"weekday": {"equals": "sunday"}},
                                                  {"time": {"between": "07:00:00 12:00:00"}}]}]},
                    "effect": "permit",
                }
            ],
        }
    ],
}  # fmt: skip
WORDS = [
    '.target[0].srcDomain: "srcDomain" is written "srcIDPDomain"',
    ".target[1].msgType.equals: a type of message is written "
    '{"actionType": {"equals": ["create","open","handshake"]}}',
    '.condition.or: "or" is written "anyOf"',
    '.condition.or[1].and: "and" is written "allOf"',
]
RUNTIME = {
    "key": "my policy",
    "combiningAlgorithm": "denyOverrides",
    "rules": [
        {
            "operators": {},
            "authorise": False,
            "priority": 0,
            "scope": "global",
            "condition": {
                "operators": {},
                "condition": [
                    "and",
                    {"attribute": "date", "operator": "equals", "params": "13/02/2017"},
                    ["not", {"attribute": "domain", "operator": "equals", "params": "a.example"}],
                ],
            },
        }
    ],
}


def test_the_published_example_is_read_with_a_warning_for_each_form() -> None:
    warnings: list[Any] = []
    read_document(PUBLISHED, warnings=warnings)
    assert [str(each) for each in warnings] == [
        f"$[0].policies[0].rules[0]{words}" for words in WORDS
    ]


def test_what_is_written_in_our_form_has_no_warning() -> None:
    ours = {"condition": {"anyOf": [{"actionType": {"equals": "create"}}]}, "effect": "deny"}
    warnings: list[Any] = []
    read_document({"policies": [{"rules": [ours]}]}, warnings=warnings)
    assert warnings == []


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_runtimes_serialised_policy_is_read_with_the_rule_it_becomes(wrapped: bool) -> None:
    raw = {"my policy": RUNTIME} if wrapped else RUNTIME
    bundle = read_bundle(json.dumps(raw))
    (policy,) = bundle.document[0]["policies"]
    (rule,) = policy["rules"]
    assert rule["effect"] == "deny"
    assert rule["condition"] == {
        "allOf": [
            {"date": {"equals": "2017-02-13"}},
            {"not": [{"srcIDPDomain": {"equals": "a.example"}}]},
        ]
    }
    (warning,) = bundle.warnings
    assert json.dumps(rule["condition"], separators=(",", ":")) in warning.text
    read_document(bundle.document)


@pytest.mark.django_db
def test_the_commands_show_the_warnings(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps([PUBLISHED]))
    said = io.StringIO()
    call_command("policy_import", str(file), mode="shadow", stderr=said, stdout=io.StringIO())
    assert all(words in said.getvalue() for words in WORDS)
    said = io.StringIO()
    call_command("policy_check", str(file), stderr=said, stdout=io.StringIO())
    assert all(words in said.getvalue() for words in WORDS)
    told = io.StringIO()
    call_command("policy_check", "--json", stdout=told)
    assert len(json.loads(told.getvalue())["warnings"]) == len(WORDS)


@pytest.mark.django_db
def test_the_draft_keeps_its_warnings_and_the_editor_shows_them() -> None:
    bundle = read_bundle(json.dumps([PUBLISHED]))
    add_bundle(bundle, "enforce")
    assert len(warnings_of(bundle)) == len(WORDS)
    report = pap.check_draft()
    assert (report.is_fit, len(report.warnings)) == (True, len(WORDS))
    wrong, otherwise = review("rule", {"effect": "deny", "condition": {"srcDomain": {"like": "a"}}})
    assert (wrong, otherwise) == (
        [],
        [("condition.srcDomain", '"srcDomain" is written "srcIDPDomain"')],
    )


def test_an_address_in_a_list_that_no_message_has_is_warned_of_with_the_one_they_have() -> None:
    warnings: list[Any] = []
    lists = {"msgTo": {"in": ["hyperty://d/1", "HYPERTY://D//1"]}}
    rule = {"id": "r", "effect": "deny", "condition": lists}
    read_document({"policies": [{"id": "p", "rules": [rule]}]}, warnings=warnings)
    assert len(warnings) == 1
    assert "its canonical form is hyperty://d/1" in str(warnings[0])
