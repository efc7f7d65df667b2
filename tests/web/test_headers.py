"""The page of a sandbox, which is unlike all others: framed by anybody, and never of our origin."""

from __future__ import annotations

from django.test import Client

PAGE = "/static/msgnode/runtime/sandbox/frame.html"


def test_the_page_of_a_sandbox_has_no_origin_and_may_be_framed() -> None:
    response = Client().get(PAGE)
    assert response.status_code == 200
    assert response["Content-Security-Policy"] == "sandbox allow-scripts"
    assert response["Origin-Agent-Cluster"] == "?1"
    assert "X-Frame-Options" not in response


def test_its_script_and_every_other_page_keep_the_strict_policy() -> None:
    for path in (PAGE.replace("html", "js"), f"{PAGE}x", "/"):
        policy = Client().get(path)["Content-Security-Policy"]
        assert "script-src 'self'" in policy and "frame-ancestors 'none'" in policy
