"""What a request to the subscription manager asks for, and who may have it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core.errors import BadMessage, Forbidden
from msgnode.subscriptions import rules
from msgnode.subscriptions.rules import Access

O = "comm://d/1"  # noqa: E741 (an object, as in the reference)
MINE = "runtime://d/me"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = ["resources", "subscribe", "unsubscribe", "resource", "childrenResources", "children"]


@pytest.mark.parametrize(
    ("body", "exact", "optional"),
    [
        ({"resources": [O]}, (O,), ()),
        ({"resources": O}, (O,), ()),
        ({"subscribe": [O, O]}, (O,), ()),
        ({"unsubscribe": [[O], ["x:y"]]}, (O, "x:y"), ()),
        ({"resources": ["a:1"], "subscribe": ["b:2"]}, ("a:1", "b:2"), ()),
        ({"resource": O}, (f"{O}/changes",), (O,)),
        ({"resource": O, "resources": ["a:1"]}, ("a:1",), ()),
        (
            {"resource": O, "childrenResources": ["c"]},
            (f"{O}/changes", f"{O}/children/c", f"{O}/c"), (O,),
        ),
        (
            {"resource": O, "children": [{"name": "c"}]},
            (f"{O}/changes", f"{O}/children/c", f"{O}/c"), (O,),
        ),
    ],
)  # fmt: skip
def test_every_form_of_the_body_names_its_addresses(
    body: dict[str, Any], exact: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    assert rules.wanted(body, 10) == (exact, optional)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_body_names_addresses_or_is_refused(body: dict[str, Any]) -> None:
    try:
        asked = rules.wanted(body, 10)
    except BadMessage:
        return
    assert all(isinstance(each, str) and each for each in (*asked.exact, *asked.optional))
    assert len(set(asked.exact)) == len(asked.exact) <= 10


def test_a_list_nested_without_end_is_read_or_refused() -> None:
    deep: Any = "a:1"
    for _ in range(100_000):
        deep = [deep]
    assert rules.wanted({"resources": deep}, 10).exact == ("a:1",)


@pytest.mark.parametrize(
    ("address", "access"),
    [
        (f"{O}/changes", Access.EVERYBODY), (f"{O}/children/", Access.EVERYBODY),
        (f"{O}/children/c", Access.EVERYBODY), (f"{O}/registration", Access.EVERYBODY),
        ("runtime://d/other/status", Access.EVERYBODY), (f"{O}/chat", Access.EVERYBODY),
        (O, Access.CLAIM), ("hyperty://d/1", Access.CLAIM),
        ("runtime://d/p2prequester/1", Access.CLAIM),
        (f"{O}/subscription", Access.OWNER), ("hyperty://d/1/x", Access.OWNER),
        (MINE, Access.RUNTIME), (f"{MINE}/sm", Access.RUNTIME),
        ("hyperty-runtime://d/me/sm", Access.RUNTIME),
        ("runtime://d/meme", Access.NOBODY), ("runtime://d/other/sm", Access.NOBODY),
        ("mn:/session", Access.NOBODY), ("domain://msg-node.d/sm", Access.NOBODY),
        ("domain://msg-node.d/sm/changes", Access.NOBODY), ("global://registry", Access.NOBODY),
    ],
)  # fmt: skip
def test_what_it_takes_to_subscribe_an_address(address: str, access: Access) -> None:
    assert rules.access(address, MINE, "d") is access


def test_a_peers_manager_is_asked_for_addresses_of_the_peer_alone() -> None:
    asked = rules.wanted({"resources": ["comm://peer.example/1/changes"]}, 10)
    rules.check_homes(asked, "peer.example")
    for other in ("comm://d/1/changes", "comm://third.example/1", "x:nobody"):
        mixed = rules.wanted({"resources": ["comm://peer.example/1", other]}, 10)
        with pytest.raises(Forbidden, match="is not of the domain"):
            rules.check_homes(mixed, "peer.example")


def test_children_are_counted_before_their_addresses_are_put_together() -> None:
    body = {"resource": ["comm://d/1", "comm://d/2"], "children": ["a", "b"]}
    assert len(rules.wanted(body, 10).exact) == 10
    with pytest.raises(BadMessage, match="at most 9 addresses"):
        rules.wanted(body, 9)
    with pytest.raises(BadMessage, match="at most 1000 addresses"):
        rules.wanted({"resource": ["a:1"] * 100_000, "children": ["b"] * 100_000}, 1_000)


def test_addresses_have_so_many_parts_each_and_together() -> None:
    deep = [f"comm://d/{number}" + "/b" * 31 for number in range(125)]
    assert rules.wanted({"resources": deep}, 1_000).exact == tuple(deep)
    with pytest.raises(BadMessage, match="4000 parts together"):
        rules.wanted({"resources": [*deep, "comm://d/1"]}, 1_000)
    with pytest.raises(BadMessage, match="32 parts"):
        rules.wanted({"resources": [f"{deep[0]}/b"]}, 1_000)
