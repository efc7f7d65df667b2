"""What documents are read as, and every fault of those that cannot be, word for word.

faults.jsonl has documents with all that is told of them, readings.jsonl such that are sound, with
what they are read as (`repr`). Both were looked through by hand; whoever changes a line changes
what authors of policies are told, or how their documents decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policies.authoring.transfer import read_bundle
from policies.engine.documents import DocumentReader, read_document
from policies.engine.grammar import ConditionReader
from policies.engine.language import MAX_DEPTH, MAX_SETS, PolicyError, Problem

HERE = Path(__file__).parent
LISTS = {
    "friends": ("Alice@a.example", "bob@b.example"),
    "foes": ("eve@e.example",),
    "days": ("Monday",),
}


def rows(name: str) -> list[Any]:
    lines = (HERE / name).read_text().splitlines()
    return [pytest.param(row, id=row["name"]) for row in map(json.loads, lines)]


def told(problems: list[Problem]) -> list[str]:
    return [str(each) for each in problems]


@pytest.mark.parametrize("row", rows("faults.jsonl"))
def test_all_faults_of_a_document_are_told_with_their_places(row: Any) -> None:
    warnings: list[Problem] = []
    with pytest.raises(PolicyError) as caught:
        read_document(row["document"], LISTS, warnings=warnings)
    assert told(caught.value.problems) == row["faults"]
    assert told(warnings) == row.get("warnings", [])
    assert str(caught.value) == "; ".join(row["faults"])


@pytest.mark.parametrize("row", rows("readings.jsonl"))
def test_a_sound_document_is_read_as_it_is_meant(row: Any) -> None:
    warnings: list[Problem] = []
    read = read_document(row["document"], LISTS, warnings=warnings)
    assert [repr(each) for each in read] == row["read"]
    assert told(warnings) == row.get("warnings", [])


def test_a_list_that_is_not_there_is_told_also_where_none_is_kept() -> None:
    condition = {"srcUsername": {"in": "@nobody"}}
    document = {"policies": [{"rules": [{"effect": "permit", "condition": condition}]}]}
    with pytest.raises(PolicyError, match="no list named 'nobody'; none is kept yet$"):
        read_document(document)


@pytest.mark.parametrize(("forced", "faults"), [({}, 1), ({"forced": True}, 0)])
def test_what_is_no_attribute_is_let_in_only_by_force(forced: Any, faults: int) -> None:
    reader = ConditionReader(**forced)
    reader.read({"qqqq": {"equals": "a"}}, "$")
    assert len(reader.problems) == faults


@pytest.mark.parametrize(
    ("wrap", "step"),
    [
        (lambda inner: {"allOf": [inner]}, ".allOf[0]"),
        (lambda inner: {"not": inner}, ".not"),
        (lambda inner: [inner], "[0]"),
    ],
)
def test_conditions_and_expressions_may_have_so_many_layers_and_the_next_one_is_named(
    monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Any], Any], step: str
) -> None:
    monkeypatch.setattr("policies.engine.grammar.MAX_DEPTH", 10)

    def wrapped(inner: Any, number: int) -> Any:
        for _ in range(number):
            inner = wrap(inner)
        return inner

    test = {"equals": 1}
    for raw, fault in (
        (wrapped({"msgId": test}, 8), ""),
        (wrapped({"msgId": test}, 9), f"${step * 9}.msgId"),
        (wrapped({"msgId": test}, 10), f"${step * 10}"),
        ({"msgId": wrapped(test, 8)}, ""),
        ({"msgId": wrapped(test, 9)}, f"$.msgId{step * 9}"),
    ):
        reader = ConditionReader()
        reader.read(raw, "$")
        faults = [f"{fault}: nested deeper than 10 layers"] if fault else []
        assert told(reader.problems) == faults


def sets(layers: int) -> Any:
    document: Any = {"policies": []}
    for _ in range(layers - 1):
        document = {"policies": [document]}
    return document


def test_sets_may_have_so_many_layers_and_the_next_one_is_named() -> None:
    read_document(sets(MAX_SETS))
    with pytest.raises(PolicyError) as caught:
        read_document(sets(MAX_SETS + 1))
    place = "$[0]" + ".policies[0]" * MAX_SETS
    assert told(caught.value.problems) == [f"{place}: sets nested deeper than {MAX_SETS}"]


def test_a_set_that_is_read_alone_may_have_as_many_layers() -> None:
    reader = DocumentReader(ConditionReader())
    reader.policy_set(sets(MAX_SETS), "$", "set")
    assert reader.conditions.problems == []


@pytest.mark.parametrize("text", ["[" * 100_000, b'{"a":' * 100_000])
def test_a_text_that_is_too_deep_to_read_is_refused_as_such(text: Any) -> None:
    with pytest.raises(PolicyError) as caught:
        read_bundle(text)
    assert told(caught.value.problems) == ["$: nested too deeply"]


def test_a_value_that_is_too_deep_to_be_named_refuses_the_document() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(PolicyError) as caught:
        read_document({"policies": [{"rules": [{"effect": deep}]}]})
    assert told(caught.value.problems) == [f"$: nested deeper than {MAX_DEPTH} layers"]
