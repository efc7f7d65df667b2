"""What of a body may be shown to people."""

from __future__ import annotations

from typing import Any

import pytest

from msgnode.core.redaction import without_tokens

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
