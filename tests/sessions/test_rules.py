"""The words of a session's handshake: its URL, its token, its close codes."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core.digest import digest
from msgnode.sessions import rules
from msgnode.sessions.rules import CloseCode


def test_every_close_code_is_one_that_the_server_can_send() -> None:
    codes = [value for name, value in vars(CloseCode).items() if name.isupper()]
    assert len(codes) == len(set(codes))
    assert all(code == 1000 or 3000 <= code <= 4999 for code in codes)


@pytest.mark.parametrize(
    ("text", "runtime_url", "token"),
    [
        ("runtime://d/1/t", "runtime://d/1", "t"),
        ("runtime://d/1/t/", "runtime://d/1", "t"),
        ("runtime://d/1", "runtime://d/1", ""),
        ("runtime://d/1/", "runtime://d/1", ""),
        ("runtime:/alice/t", "runtime:/alice", "t"),
        ("runtime:/alice", "runtime:/alice", ""),
        ("runtime://d/a/b/t", "runtime://d/a/b", "t"),
        ("runtime://d/X/t", "runtime://d/X", "t"),
        ("", "", ""),
    ],
)
def test_a_session_url_is_a_runtime_url_and_a_token(
    text: str, runtime_url: str, token: str
) -> None:
    assert rules.session_url(text) == (runtime_url, token)


@given(st.text(max_size=40))
def test_any_text_can_be_read_as_a_session_url(text: str) -> None:
    runtime_url, token = rules.session_url(text)
    assert text.startswith(runtime_url)
    assert "/" not in token


def test_tokens_are_random_and_open_only_their_own_session() -> None:
    tokens = {rules.new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    one, other, *_ = tokens
    assert uuid.UUID(one).version == 4
    assert one not in digest(one)
    assert rules.opens(one, digest(one))
    assert not rules.opens(other, digest(one))
    assert not rules.opens("", digest(one))


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("runtime://d/1", True), ("hyperty-runtime://d/1", True), ("runtime:/alice", True),
        ("RUNTIME://d/1", False), ("runtime://d/a/b", True), ("runtime://d/" + "x" * 588, True),
        ("runtime://d/" + "x" * 589, False), ("runtime://d", False), ("runtime://d/", False),
        ("hyperty://d/1", False), ("mn:/session", False), ("", False), ("runtime", False),
        ("runtime:", False), ("runtime://d/\x00", False), ("runtime://d/a\n", False),
        ("runtime://d/status", False), ("runtime://d/a/status", False),
        ("runtime://d/astatus", True), ("runtime:/d/status", False),
        ("runtime://d" + "/x" * 16, True), ("runtime://d" + "/x" * 17, False),
        ("runtime:x" + "/x" * 15, True), ("runtime:x" + "/x" * 16, False),
        ("runtime://d" + "/" * 20 + "x", False), ("runtime://d" + "/x" * 16, True),
        ("runtime://d/a/children/", False), ("hyperty-runtime:/a/changes", False),
    ],
)  # fmt: skip
def test_a_runtime_url_names_a_runtime(text: str, is_good: bool) -> None:
    assert (rules.runtime_url_fault(text) == "") is is_good


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("runtime://d/X", ""),
        ("hyperty://d/1", "is not the address of a runtime (runtime://<domain>/<id>)"),
        ("runtime://d", "names no runtime: nothing follows its domain"),
        ("runtime://d/", "names no runtime: nothing follows its domain"),
        ("runtime://d/1/status", "is the address of a part of a runtime"),
        ("runtime://d" + "/x" * 17, "has more than 16 parts"),
    ],
)
def test_a_runtime_url_that_will_not_do_is_refused_with_the_reason(text: str, why: str) -> None:
    assert rules.runtime_url_fault(text) == why


def test_a_runtime_url_that_holds_a_token_is_refused_as_such() -> None:
    url = "runtime://localhost/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
    assert rules.runtime_url_fault(url) == "holds a token"
