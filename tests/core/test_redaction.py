"""What of a body may be shown to people."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

import pytest

from msgnode.core.digest import digest
from msgnode.core.redaction import cut, holds_token, remember, without_tokens

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmVkLWJ5LXNvbWVib2R5"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"accessToken": "s3"}, {"accessToken": "…"}),
        (
            {"accessToken": {"accessToken": "s3", "expires": 7}},
            {"accessToken": {"accessToken": "…", "expires": 7}},
        ),
        ({"idToken": JWT}, {"idToken": "…"}),
        (
            {"identity": {"assertion": "ZXlK", "userProfile": {"userURL": "user://d/a"}}},
            {"identity": {"assertion": "…", "userProfile": {"userURL": "user://d/a"}}},
        ),
        ({"identity": JWT}, {"identity": "…"}),
        ({"identity": "ZXlK"}, {"identity": "…"}),
        ({"params": [["token", "s3"], {"token": 7}]}, {"params": [["token", "…"], {"token": "…"}]}),
        ({"login": f"https://d/cb#id_token={JWT}&st=1"}, {"login": "https://d/cb#id_token=…&st=1"}),
        ({"login": "https://d/cb?code=s3&st=1"}, {"login": "https://d/cb?code=…&st=1"}),
        ({"value": f"look: {JWT}!"}, {"value": "look: …!"}),
        ({"refresh_token": "s3", "client-secret": 1}, {"refresh_token": "…", "client-secret": "…"}),
        ({"token": ["s3", "s4"]}, {"token": "…"}),
    ],
)
def test_tokens_are_cut_out(body: Any, shown: Any) -> None:
    assert without_tokens(body) == shown
    assert "s3" not in str(without_tokens(body))


def test_the_rest_stays_as_it_was_said() -> None:
    body = {
        "code": 200, "desc": "no token at all", "value": {"a": [1, 2.5, None, True, "text"]},
        "assertedIdentity": True, "token": None, "resource": "/identity/alice@example.org",
    }  # fmt: skip
    assert without_tokens(body) == body
    assert without_tokens("text") == "text"
    assert without_tokens(None) is None


class Session:
    """Somebody whose token is known."""


TOKEN, OTHER = "2f4e2b06-3c0c-4b57-9d7a-0f4f6e0f6a11", "7c1d9a52-08f3-4e6b-8a55-c3f2d6b1e902"


@pytest.fixture
def session() -> Session:
    session = Session()
    remember(digest(TOKEN), session)
    return session


@pytest.mark.parametrize("token", [TOKEN, TOKEN.upper(), TOKEN.replace("-", "%2D")])
@pytest.mark.parametrize(
    "text",
    [
        "runtime://d/alice/{}", "hyperty-runtime://d/alice/{}", "runtime://d/alice/{}/sm",
        "runtime://d/a/b/{}", "runtime:/alice/{}", "hyperty://d/{}", "comm://d/1/{}/changes", "{}",
        "runtime://d/alice?runtimeToken={}", "domain://registry.d/{}/x", "a b {} c",
    ],
)  # fmt: skip
def test_the_token_of_a_session_is_cut_out_wherever_it_stands(
    session: Session, text: str, token: str
) -> None:
    for form in (text.format(token), quote(text.format(token), safe="")):
        assert token.lower() not in cut(form).lower()
        assert TOKEN not in cut(form).lower()
        assert holds_token(form)


def test_what_is_left_of_an_address_is_the_runtime(session: Session) -> None:
    assert cut(f"hyperty-runtime://d/alice/{TOKEN}") == "hyperty-runtime://d/alice"
    assert cut(f"runtime://d/alice/{TOKEN}/sm") == "runtime://d/alice/sm"
    assert cut(f"runtime://d/alice/{OTHER}") == "runtime://d/alice"  # perhaps of another worker


@pytest.mark.parametrize(
    "text",
    [
        f"hyperty://d/{OTHER}", f"runtime://d/{OTHER}", f"runtime://d/{OTHER}/p2phandler/{OTHER}",
        f"runtime://d/p2prequester/{OTHER}", f"comm://d/{OTHER}/changes", "runtime://d/100%25",
        f"runtime://d/alice/p2phandler/{OTHER}", "hyperty://d/mna_short", "", "x?n=1",
    ],
)  # fmt: skip
def test_an_address_without_a_token_stays_as_it_is(session: Session, text: str) -> None:
    assert cut(text) == text
    assert not holds_token(text)


@pytest.mark.parametrize(
    "token", [JWT, "mna_" + "x" * 43, "mnk_0123abcd_" + "x" * 43, "eyJ" + "Ab0" * 30]
)
def test_tokens_that_are_known_by_their_form_are_cut_out_of_addresses(token: str) -> None:
    for text in (f"hyperty://d/{token}", f"comm://d/{token}/changes", f"x/{token.upper()}"):
        assert token.lower() not in cut(text).lower()
        assert holds_token(text)


def test_a_session_that_is_gone_is_not_remembered() -> None:
    gone, token = Session(), str(uuid.uuid4())
    remember(digest(token), gone)
    assert holds_token(f"x/{token}")
    del gone
    assert not holds_token(f"x/{token}")
