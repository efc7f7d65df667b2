"""An access token does not leave its domain, unless it was issued for where it goes."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core import messages
from msgnode.core.token_scope import may_cross

HERE, THERE = "hyperty://a.example/1", "hyperty://b.example/2"


def token(aud: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"aud": aud}).encode()).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


@pytest.mark.parametrize(
    "aud",
    ["b.example", "https://b.example/o", ["else", "msg-node.B.example"]],
    ids=["name", "url", "list"],
)
def test_case_87_a_token_issued_for_the_other_domain_crosses(aud: object) -> None:
    assert may_cross(json.dumps(token(aud)).encode(), HERE, THERE)
    assert may_cross(json.dumps({"accessToken": token(aud)}).encode(), HERE, THERE)


@pytest.mark.parametrize(
    "said",
    [
        "opaque", "a.b.c", "a.é.c", "a.e30.c", 17, None, [], {}, {"accessToken": None},
        token("a.example"), token("https://[b.example"), token(None), token("xb.example"),
    ],
)  # fmt: skip
def test_case_87_every_other_token_stays(said: object) -> None:
    text = json.dumps(said).encode()
    assert not may_cross(text, HERE, THERE)
    assert may_cross(text, HERE, "runtime://msg-node.a.example/x")


def test_case_87_only_the_token_is_taken_from_the_message() -> None:
    body = '{"v":[1, 2.50],"access\\u0054oken":"t","identity":{"assertion":"x"}}'
    frame = f'{{"id":1,"type":"create","from":"{HERE}","to":"{THERE}","body":{body}}}'
    message = messages.parse(frame.encode())
    sent = json.loads(message.forwarded(THERE, auth=False))
    assert sent["body"] == {"auth": False, "v": [1, 2.5], "identity": {"assertion": "x"}}
    rewritten = json.loads(message.forwarded(THERE, auth=True, body=b'{"accessToken":1,"b":2}'))
    assert rewritten["body"] == {"auth": True, "b": 2}
    within = json.loads(message.forwarded("hyperty://a.example/2", auth=False))
    assert within["body"]["accessToken"] == "t"


@given(st.text() | st.dictionaries(st.text(), st.text()) | st.lists(st.text()))
def test_no_token_crosses_by_being_odd(said: object) -> None:
    assert not may_cross(json.dumps(said).encode(), HERE, THERE)


def test_a_visitor_at_an_address_of_this_domain_is_not_shown_a_token_of_it() -> None:
    text = json.dumps(token("a.example")).encode()
    home, visitor = "runtime://a.example/1", "runtime://b.example/1"
    assert may_cross(text, HERE, "hyperty://a.example/2", [home])
    assert not may_cross(text, HERE, "hyperty://a.example/2", [home, visitor])
    assert may_cross(text, HERE, "hyperty://a.example/2", ["runtime:/no-domain"])
    for_both = json.dumps(token(["a.example", "b.example"])).encode()
    assert may_cross(for_both, HERE, "hyperty://a.example/2", [home, visitor])
    assert not may_cross(for_both, HERE, "hyperty://a.example/2", ["runtime://c.example/1"])
