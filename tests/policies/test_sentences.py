"""A sentence says what a rule does, however its condition was written."""

from __future__ import annotations

from typing import Any

import pytest

from policies.authoring import language_reference, sentences
from policies.engine.documents import DocumentReader
from policies.engine.grammar import ConditionReader
from policies.engine.vocabulary import ATTRIBUTES, OPERATORS


def said(condition: Any, effect: str = "deny", **more: Any) -> str:
    reader = ConditionReader({"bad": ("eve@a.org",)})
    raw = {"effect": effect, "condition": condition, **more}
    rule = DocumentReader(reader).rule(raw, "$", "r")
    assert reader.problems == []
    return sentences.of_rule(rule)


def test_every_attribute_has_its_words_and_every_operator_can_be_said() -> None:
    assert sorted(sentences.PHRASES) == sorted(ATTRIBUTES)
    assert sorted(language_reference.OPERATOR_WORDS) == sorted(OPERATORS)
    for name in (*("equals", "in", "contains", "like"),):
        assert "x" in said({"srcUsername": {name: "x" if name != "in" else ["x"]}})


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({}, "Refuses every message."),
        (
            {"actionType": {"equals": "create"}, "srcUsername": {"not": {"in": ["a@b", "c@d"]}}},
            "Refuses a message if its type is create and the sender's user is not a@b or c@d.",
        ),
        (
            [{"msgTo": {"like": "comm://*/x"}}, {"time": {"between": "22:00 06:00"}}],
            "Refuses a message if the recipient's address is like comm://*/x or "
            "the time is between 22:00:00 and 06:00:00.",
        ),
        (
            {"allOf": [{"bytes": {"moreThan": 10}}, {"anyOf": [
                {"weekday": {"lessThan": "friday"}}, {"srcGroups": {"contains": "staff"}}]}]},
            "Refuses a message if its length in bytes is more than 10 and (the weekday is before "
            "friday or the list of the sender's groups contains staff).",
        ),
        (
            {"not": [{"srcIDP": {"exists": True}}, {"direction": {"equals": "in"}}]},
            "Refuses a message if it is not so that (the issuer of the sender's identity is known "
            "or its direction is in).",
        ),
        ({"srcIDP": {"exists": False}},
         "Refuses a message if the issuer of the sender's identity is not known."),
        ({"srcUsername": {"in": "@bad"}}, "Refuses a message if the sender's user is eve@a.org."),
        (
            {"dstUsername": {"equals": "<srcUsername>"}},
            "Refuses a message if the recipient's user is the sender's user.",
        ),
        (
            {"rate.srcUsername.day": {"moreThan": 100}},
            "Refuses a message if the number of messages of the sender's user within a day is "
            "more than 100.",
        ),
        ({"body.value.name": {"equals": "x"}}, "Refuses a message if value.name in its body is x."),
    ],
)  # fmt: skip
def test_a_condition_in_words(condition: Any, words: str) -> None:
    assert said(condition) == words


def test_obligations_and_target_are_part_of_it() -> None:
    text = said(
        {}, "permit", target={"actionType": {"equals": "read"}},
        obligations={"rateLimit": {"rate.srcSession.minute": 60}, "inform": "Slower."},
    )  # fmt: skip
    assert text == (
        "Permits a message if its type is read, and lets no more pass than 60 messages a minute of "
        "the sender's session, and tells its sender “Slower.”."
    )


def test_long_lists_and_deep_conditions_are_cut() -> None:
    text = said({"srcUsername": {"in": [f"user{n}@a.org" for n in range(1000)]}})
    assert "or 995 more" in text
    deep: Any = {"actionType": {"equals": "read"}}
    for _ in range(150):
        deep = {"not": [deep, {"bytes": {"moreThan": 1}}]}
    assert len(said(deep)) < 2100


@pytest.mark.parametrize("example", language_reference.EXAMPLES, ids=lambda each: each.title)
def test_every_example_can_be_said(example: language_reference.Example) -> None:
    assert said(example.condition, example.effect, obligations=example.obligations).endswith(".")
