"""Attacks by way of the browser: forms without a token, and messages that are markup."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

from tests.console.browser import Browser
from tests.node import Node

from .conftest import Bystanders

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("adversary")]

MARKUP = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
IN_A_URL = "%3Cscript%3E<script>alert(1)</script>\"'><img/src=x/onerror=alert(2)>"

FORMS = (
    "login/", "msgnode/ban/add/", "msgnode/session/", "msgnode/apikey/add/", "auth/user/add/",
    "policies/policyset/import-file/", "policies/version/publish-draft/", "spark/reportrun/add/",
    "policies/policyset/playground/", "oauth2_provider/application/add/",
)  # fmt: skip


def post(node: Node, path: str, opener: Any = None, **headers: str) -> int:
    """The status of a form that another site's page sends, with the operator's cookies."""
    request = urllib.request.Request(  # noqa: S310 (http:, below)
        f"http://127.0.0.1:{node.port}{path}", urllib.parse.urlencode({"a": "b"}).encode(), headers
    )
    try:
        with (opener or urllib.request.build_opener()).open(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return int(refusal.code)


@pytest.mark.parametrize("path", FORMS)
async def test_a_form_of_another_site_is_refused(
    served: Bystanders, target: Node, browser_of_operator: Browser, path: str
) -> None:
    opener = browser_of_operator._opener
    for headers in ({"Origin": "https://evil.example"}, {"Referer": "https://evil.example/"}, {}):
        code = await asyncio.to_thread(post, target, f"/admin/{path}", opener, **headers)
        assert code == 403, headers


@pytest.mark.parametrize("path", ["/login/", "/logout/", "/o/authorize/", "/o/logout/"])
async def test_a_users_form_of_another_site_is_refused(
    served: Bystanders, target: Node, path: str
) -> None:
    assert await asyncio.to_thread(post, target, path, Origin="https://evil.example") == 403


async def test_guessing_a_password_shuts_the_name_for_the_guesser(
    served: Bystanders, target: Node
) -> None:
    def guess() -> str:
        guesser = Browser(target)
        for _ in range(5):
            try:
                guesser.fill_in("login/", username="nobody-there", password="wrong")
            except urllib.error.HTTPError as refusal:
                assert int(refusal.headers["Retry-After"]) > 0
                return str(refusal.code)
        return "never"

    assert await asyncio.to_thread(guess) == "429"
    assert "Sessions" in await asyncio.to_thread(lambda: _log_in_as_operator(target))


def _log_in_as_operator(node: Node) -> str:
    from tests.console.browser import PASSWORD

    browser = Browser(node)
    browser.fill_in("login/", username="operator", password=PASSWORD)
    return browser._ask("")


@pytest.fixture
async def marked(target: Node, come_in: Any) -> str:
    """A runtime all of whose texts are markup, where the node takes them. Its runtime URL."""
    client = await come_in()
    name = f"{client.runtime_url}/{IN_A_URL}"
    for type_, to, body in (
        ("execute", client.runtime_url, {"value": MARKUP, "resource": MARKUP}),
        ("create", "domain://registry.localhost", {"value": {
            "user": f"user://localhost/{MARKUP}", "url": f"hyperty://localhost/{IN_A_URL}",
            "descriptor": MARKUP, "resources": [MARKUP], "dataSchemes": [MARKUP],
            "expires": 600, "status": "live", "runtime": name}}),
        ("subscribe", "domain://msg-node.localhost/sm",
         {"resources": [f"comm://localhost/{IN_A_URL}/changes"]}),
        ("create", "domain://msg-node.localhost/address-allocation",
         {"scheme": "hyperty", "allocationKey": MARKUP, "value": {"number": 1}}),
        ("read", f"comm://localhost/{IN_A_URL}", {}),
    ):  # fmt: skip
        await client.send(type_, to, body)
    other = target.ws()
    await other.connect()
    runtime_url = f"runtime://localhost/{IN_A_URL}"
    frame = {"id": 1, "type": "open", "from": runtime_url, "to": "mn:/session"}
    await other.send_raw(json.dumps(frame))
    await other.receive()
    await other.hang_up()
    await client.settled()
    return str(client.runtime_url)


LISTS = (
    *(f"msgnode/{m}/" for m in ("session", "allocation", "subscription", "controlmessage",
                                "componentstatus", "auditentry", "alarm", "addressowner")),
    *(f"registry/{m}/" for m in ("hyperty", "dataobject", "user", "runtime", "statuschange",
                                 "globalrecord")),
    *(f"policies/{m}/" for m in ("decisionentry", "rulehits")),
    "", "policies/policyset/shadow/", "policies/policyset/playground/", "spark/report/last-day/",
)  # fmt: skip


async def test_what_messages_say_is_shown_as_text_on_every_page(
    served: Bystanders, marked: str, browser_of_operator: Browser
) -> None:
    seen = 0
    for path in LISTS:
        page = await browser_of_operator.get(path)
        assert "<script>alert" not in page, path
        assert "<img src=x" not in page, path
        assert "<img/src=x" not in page, path
        seen += "&lt;script&gt;alert" in page
        for row in _rows(page, path)[:10]:
            detail = await browser_of_operator.get(row)
            assert "<script>alert" not in detail, row
            assert "<img src=x" not in detail, row
            assert "<img/src=x" not in detail, row
            seen += "&lt;script&gt;alert" in detail
    assert seen > 3  # the markup is there, and harmless


def _rows(page: str, path: str) -> list[str]:
    import re

    return sorted(set(re.findall(rf"/admin/({re.escape(path)}[\w-]+/change/)", page)))


async def test_a_search_is_shown_as_text(served: Bystanders, browser_of_operator: Browser) -> None:
    query = urllib.parse.urlencode({"q": MARKUP})
    for path in LISTS:
        if path.count("/") == 2:
            page = await browser_of_operator.get(f"{path}?{query}")
            assert "<script>alert" not in page, path
            assert "<img src=x" not in page, path
