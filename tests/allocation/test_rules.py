"""What a request to address allocation asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.allocation import rules
from msgnode.core.errors import BadMessage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = ["value", "scheme", "number", "allocationKey", "resource", "childrenResources"]
BODIES = st.dictionaries(st.sampled_from(FIELDS), JSON | st.dictionaries(
    st.sampled_from(FIELDS), JSON
))  # fmt: skip


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ({}, (1, "hyperty", "")),
        ({"value": {"number": 3, "allocationKey": "k"}, "scheme": "COMM"}, (3, "comm", "k")),
        ({"number": 3, "allocationKey": "k"}, (3, "hyperty", "k")),
        ({"value": '{"number": 2}'}, (2, "hyperty", "")),
        ({"value": {"scheme": "comm"}, "scheme": "context"}, (1, "context", "")),
        ({"value": {"number": 0}}, (0, "hyperty", "")),
        ({"value": {"allocationKey": None}}, (1, "hyperty", "")),
    ],
)
def test_a_block_is_read_from_the_body_or_its_value(
    body: dict[str, Any], block: tuple[int, str, str]
) -> None:
    assert rules.requested_block(body, 10) == block


@given(BODIES)
def test_any_create_is_a_block_within_bounds_or_refused(body: dict[str, Any]) -> None:
    try:
        number, scheme, key = rules.requested_block(body, 10)
    except BadMessage:
        return
    assert 0 <= number <= 10
    assert scheme == scheme.lower() != ""
    assert len(key) <= rules.MAX_KEY


def test_a_delete_names_so_many_items_each_repeat_counted() -> None:
    assert rules.released_items({"childrenResources": ["a"] * 10}, 10) == ("a",)
    with pytest.raises(BadMessage, match="at most 10"):
        rules.released_items({"resource": "a", "childrenResources": ["a"] * 10}, 10)


@given(BODIES)
def test_any_delete_names_texts_or_is_refused(body: dict[str, Any]) -> None:
    try:
        items = rules.released_items(body, 10)
    except BadMessage:
        return
    assert all(isinstance(each, str) for each in items)
    assert len(set(items)) == len(items)


@pytest.mark.parametrize(
    ("body", "items"),
    [
        ({"resource": "k"}, ("k",)),
        ({"resource": ["k", "l"]}, ("k", "l")),
        ({"childrenResources": [["a", ["b"]], "a"]}, ("a", "b")),
        ({"resource": "k", "childrenResources": ["a"]}, ("k", "a")),
        ({"value": {"resource": "k"}}, ("k",)),
        ({"childrenResources": []}, ()),
    ],
)
def test_every_form_of_delete_names_its_items(body: dict[str, Any], items: tuple[str, ...]) -> None:
    assert rules.released_items(body, 10) == items


def test_a_list_nested_without_end_is_read() -> None:
    deep: Any = "a"
    for _ in range(100_000):
        deep = [deep]
    assert rules.released_items({"resource": deep}, 10) == ("a",)
