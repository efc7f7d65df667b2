"""The main tasks of an operator by the keyboard alone, with the keys counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.client import runtime
from tests.node import Node

from . import window
from .browser import PASSWORD, Browser, operated_node
from .traffic import Traffic

pytestmark = pytest.mark.long

MOST = 60
"""Tabs until something must be reached."""
FOCUSED = """
() => {
  const { tagName, ariaLabel, innerText, labels, value } = document.activeElement;
  if (!["A", "BUTTON", "INPUT"].includes(tagName)) return "";
  const words = [ariaLabel, innerText, labels?.[0]?.innerText, value];
  return words.filter(Boolean).join(" ").trim();
}
"""
OUTLINE = "getComputedStyle(document.activeElement).outlineStyle"


class Keyboard:
    """A page that is used by keys only. Text that is typed counts as one."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.keys = 0

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.keys += 1

    def skip(self) -> None:
        """Past the menu."""
        self.press("Tab")
        assert self.page.evaluate(FOCUSED) == "Skip to the content"
        self.press("Enter")
        assert self.page.evaluate("document.activeElement.id") == "main"

    def is_in_form(self) -> bool:
        """Django's script takes the focus to the first field, unless it comes before the form."""
        return not self.page.evaluate("document.activeElement === document.body")

    def tab_to(self, text: str) -> None:
        passed = []
        for _ in range(MOST):
            self.press("Tab")
            passed.append(self.page.evaluate(FOCUSED))
            if text in passed[-1]:
                assert self.page.evaluate(OUTLINE) != "none", f"the focus on {text} is not seen"
                return
        pytest.fail(f"{text} is not reached: {passed}")

    def follow(self, text: str) -> None:
        self.tab_to(text)
        with self.page.expect_navigation():
            self.press("Enter")
        self.page.wait_for_load_state("load")

    def search(self, term: str) -> None:
        """Open the first hit, without waiting for it."""
        self.press("/")
        box = self.page.locator("#search-input-command")
        waiting.in_page(self.page, "document.activeElement.id === 'search-input-command'")
        assert box.evaluate("each => getComputedStyle(each).outlineStyle") != "none"
        self.page.keyboard.type(term)
        self.keys += 1
        with self.page.expect_navigation():
            self.press("Enter")
        self.page.wait_for_load_state("load")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    with operated_node(tmp_path_factory.mktemp("keys"), template) as node:
        yield node


@pytest.fixture
def keyboard(node: Node, chromium_window: Any) -> Iterator[Keyboard]:
    page = window.operator_page(chromium_window, node.port)
    page.goto("/admin/")
    yield Keyboard(page)
    assert page.faults == []
    page.close()


def test_a_session_is_found_and_ended(traffic: Traffic, keyboard: Keyboard) -> None:
    session = traffic.runtime()
    keyboard.search(session.runtime_url)
    assert session.runtime_url in keyboard.page.content()
    keyboard.skip()
    keyboard.follow("End session")
    keyboard.skip()
    keyboard.follow("End sessions")
    assert "is ended" in keyboard.page.content()
    assert keyboard.keys <= 35, keyboard.keys


def test_a_runtime_is_banned_for_an_hour(traffic: Traffic, keyboard: Keyboard) -> None:
    session = traffic.runtime()
    keyboard.search(session.runtime_url)
    keyboard.skip()
    keyboard.follow("Ban for an hour")
    if not keyboard.is_in_form():
        keyboard.skip()
    keyboard.follow("for an hour, from the page of its session")  # Enter in a field saves
    assert "was added successfully" in keyboard.page.content()
    assert keyboard.keys <= 40, keyboard.keys
    assert traffic.do(session.close_code()) == 4403


def test_a_change_is_undone(node: Node, keyboard: Keyboard) -> None:
    browser, banned = Browser(node), runtime()
    browser.fill_in("login/", username="operator", password=PASSWORD)
    browser.fill_in(
        "msgnode/ban/add/", kind="runtime", value=banned, reason="spam",
        expires_at_0="", expires_at_1="",
    )  # fmt: skip
    keyboard.search("Audit log")
    keyboard.skip()
    keyboard.follow("UTC")
    keyboard.skip()
    keyboard.follow("Undo the change")
    keyboard.skip()
    keyboard.follow("Undo the change")
    assert "has its previous values again" in keyboard.page.content()
    assert keyboard.keys <= 50, keyboard.keys


def test_a_message_is_followed(traffic: Traffic, keyboard: Keyboard) -> None:
    _, heard = traffic.pair(5)
    keyboard.search("Traces")
    keyboard.page.wait_for_selector("#traces-rows button")
    keyboard.skip()
    keyboard.tab_to(f"to {heard}")
    keyboard.press("Enter")
    waiting.in_page(keyboard.page, "document.activeElement.id === 'trace-title'")
    steps = keyboard.page.inner_text("#trace-steps")
    assert "admission" in steps and "written" in steps
    assert keyboard.keys <= 25, keyboard.keys


def test_a_key_for_devices_is_made(node: Node, keyboard: Keyboard) -> None:
    keyboard.search("API keys")
    keyboard.skip()
    keyboard.follow("Add")
    if not keyboard.is_in_form():
        keyboard.skip()
        keyboard.tab_to("Name")
    keyboard.page.keyboard.type("sensors")
    keyboard.tab_to("device:connect")
    keyboard.press("Space")
    keyboard.press("Enter")
    keyboard.page.wait_for_load_state("load")
    assert re.search(r"mnk?_\S+", keyboard.page.inner_text("#main"))
    assert keyboard.keys <= 40, keyboard.keys
