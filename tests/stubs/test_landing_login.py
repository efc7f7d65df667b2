"""A person logs in from the newcomer's page, in headless Chromium, with the real provider.

Log in, connect, speak with `assertedIdentity`, log out: the OIDC round trip of a browser.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.accessibility import axe_faults
from tests.node import Node

pytestmark = pytest.mark.long

ALICE = """
from django.contrib.auth.models import User
User.objects.create_user("alice", "alice@example.org", "wonderland 7")
"""

LIMIT = 20_000  # ms
VOUCHED = "The node has verified the sender"
NOT_VOUCHED = "Alice is not logged in, so the sender is not verified"


@pytest.fixture
def page(browser: Any, start_node: Callable[..., Node]) -> Iterator[Any]:
    node = start_node()
    node.manage("shell", "-c", ALICE)
    context = browser.new_context(base_url=f"http://127.0.0.1:{node.port}")
    page = context.new_page()
    page.set_default_timeout(LIMIT)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: said.type == "error" and faults.append(said.text))
    page.faults = faults
    yield page
    context.close()
    assert [fault for fault in faults if "401" not in fault] == []


OUT_OF_LINE = """
(() => {
  const middles = [...document.querySelectorAll(".top > *")]
    .map((each) => each.getBoundingClientRect())
    .filter((box) => box.height)
    .map((box) => (box.top + box.bottom) / 2);
  return Math.max(...middles) - Math.min(...middles);
})()
"""
"""How far the middles of brand, menu and account are apart, in pixels."""


def says(page: Any, told: str) -> None:
    """Wait until Bob's card tells this of who said it, after Alice's next change."""
    from playwright.sync_api import expect

    page.press("#note-title", "End")
    page.keyboard.type("!")
    expect(page.locator("#vouched:visible")).to_have_text(told, timeout=LIMIT)


def ready(page: Any) -> None:
    page.wait_for_selector("#answer-text:enabled")


def test_log_in_connect_speak_with_an_asserted_identity_and_log_out(page: Any) -> None:
    page.goto("/")
    ready(page)
    says(page, NOT_VOUCHED)

    page.click("#person-button")
    page.wait_for_url("**/login/**")
    assert axe_faults(page, "serious", "critical") == []
    page.fill("[name=username]", "alice")
    page.fill("[name=password]", "not hers")
    page.press("[name=password]", "Enter")
    page.wait_for_selector(".fault")
    page.fill("[name=password]", "wonderland 7")
    page.press("[name=password]", "Enter")

    page.wait_for_selector("#person:text-is('alice@example.org')")
    assert "code=" not in page.url
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.evaluate(OUT_OF_LINE) < 12, "the header has wrapped"
    assert page.evaluate(
        "document.querySelector('#person').scrollWidth <= "
        "document.querySelector('#person').clientWidth"
    ), "the name is cut off"
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/landing-logged-in.png")
    ready(page)
    says(page, VOUCHED)
    delivered = page.locator("#messages .bob, #messages .alice", has_text="update").first
    delivered.locator("summary").click()

    page.reload()  # the tab stays logged in
    page.wait_for_selector("#person:text-is('alice@example.org')")
    ready(page)
    says(page, VOUCHED)

    page.click("#person-button")
    page.wait_for_selector("#person-button:text-is('Log in')")
    ready(page)
    says(page, NOT_VOUCHED)
    page.click("#person-button")
    page.wait_for_url("**/login/**")  # the provider's log-in has ended, too


def test_a_login_that_comes_back_with_another_state_is_nobodys(page: Any) -> None:
    page.goto("/?code=stolen&state=forged")
    ready(page)
    assert page.inner_text("#person-button") == "Log in"
    assert page.url.endswith("/")


def test_a_user_changes_the_password(page: Any) -> None:
    page.goto("/login/")
    page.fill("[name=username]", "alice")
    page.fill("[name=password]", "wonderland 7")
    page.press("[name=password]", "Enter")
    page.click("text=Change password")
    page.wait_for_selector("[name=old_password]:focus")
    assert axe_faults(page) == []
    form = {"old_password": "not hers", "new_password1": "looking glass 8"}
    for name, value in {**form, "new_password2": "looking glass 8"}.items():
        page.fill(f"[name={name}]", value)
    page.press("[name=new_password2]", "Enter")
    page.wait_for_selector(".fault")
    assert axe_faults(page) == []
    for name, value in {**form, "old_password": "wonderland 7"}.items():
        page.fill(f"[name={name}]", value)
    page.fill("[name=new_password2]", "looking glass 8")
    page.click("text='Change'")
    page.wait_for_url("**/changed/")
    assert axe_faults(page) == []
    page.goto("/login/password/")
    assert page.is_visible("[name=old_password]")  # still logged in
