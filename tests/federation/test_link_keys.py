"""The keys of nodes: what is published, by whom it is signed, and which of a peer's count. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.federation import link_keys
from msgnode.federation.link_keys import BadNode, FoundNode, Keys, counting, own_keys

B = "b.example"
NOW = 1_000_000.0


def published(*secrets: str, domain: str = B, **other: Any) -> bytes:
    return msgspec.json.encode(
        {**link_keys.document(own_keys(secrets, domain), domain, NOW), **other}
    )


def found(*secrets: str) -> FoundNode:
    return link_keys.read_document(published(*secrets), B, NOW)


def trusted(*secrets: str) -> Keys:
    return counting({}, found(*secrets), NOW, is_trusted=True)


def kids(*secrets: str) -> set[str]:
    return {each.kid for each in own_keys(secrets, B)}


def test_each_domain_and_each_secret_has_a_key_of_its_own() -> None:
    [one], [other] = own_keys(["secret"], B), own_keys(["secret"], "c.example")
    assert one.kid != other.kid
    assert kids("secret") == {one.kid} != kids("another")


def test_what_a_node_publishes_is_read_with_all_who_have_signed_it() -> None:
    node = found("new", "old")
    assert set(node.keys) == set(node.signers) == kids("new", "old")


def test_keys_that_nobody_here_has_trusted_do_not_count() -> None:
    assert counting({}, found("first"), NOW) == {}
    assert set(trusted("first")) == kids("first")


def test_case_65_a_new_key_counts_if_one_that_counts_has_signed_it() -> None:
    both = counting(trusted("old"), found("new", "old"), NOW + 60)
    assert set(both) == kids("new", "old")
    assert {key["since"] for key in both.values()} == {NOW, NOW + 60}
    assert set(counting(both, found("new"), NOW)) == kids("new")


def test_case_65_a_key_that_none_that_counts_has_signed_waits_for_an_operator() -> None:
    assert counting(trusted("old"), found("new"), NOW) == {}
    assert set(counting(trusted("old"), found("new"), NOW, is_trusted=True)) == kids("new")


def test_case_l69_a_key_that_is_not_published_any_more_does_not_count() -> None:
    assert set(counting(trusted("new", "leaked"), found("new"), NOW)) == kids("new")


@pytest.mark.parametrize(
    "content",
    [
        published("s", domain="c.example"),
        published("s", valid_until=NOW - 1),
        published("s", versions=[2]),
        published("s", versions=[2, "a", None, [1]]),
        published("s", valid_until="nan"),
        published("s", valid_until=0).replace(b":0", b":1" + b"0" * 400, 1),
        published("s", keys=[]),
        published("s", keys=[{"kid": "k", "x": own_keys(["s"], B)[0].x}]),
        published("s", signatures={}),
        published("s", signatures={own_keys(["s"], B)[0].kid: "AAAA"}),
        published("s", contact="added later"),
        b"[]",
        b"{}",
        b"",
        b"[" * 100_000,
    ],
)
def test_what_is_not_as_it_should_be_is_not_used(content: bytes) -> None:
    with pytest.raises(BadNode, match=r"\w"):
        link_keys.read_document(content, B, NOW)


@given(st.binary() | st.dictionaries(st.sampled_from(
    ["domain", "keys", "valid_until", "versions", "signatures"]),
    st.none() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2),
).map(msgspec.json.encode))  # fmt: skip
def test_no_document_does_more_than_be_refused(content: bytes) -> None:
    with pytest.raises(BadNode):
        link_keys.read_document(content, B, NOW)


def test_a_signature_is_by_one_key_over_one_text() -> None:
    [key], [other] = own_keys(["s"], B), own_keys(["t"], B)
    signature = key.sign(b"text")
    assert link_keys.is_by(key.x, b"text", signature)
    assert not link_keys.is_by(key.x, b"another", signature)
    assert not link_keys.is_by(other.x, b"text", signature)
    assert not link_keys.is_by(key.x, b"text", None)
