"""A policy built in a browser without typing JSON: said, tried on the record, published, undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.accessibility import axe_faults
from tests.client import address
from tests.node import Node

from . import window
from .browser import operated_node
from .test_every_page import WIDER
from .traffic import Traffic

pytestmark = pytest.mark.long

LIMIT = 40_000  # ms, on a machine that has other things to do


@pytest.fixture
def node(tmp_path: Path, template: Path) -> Iterator[Node]:
    """A node that has no policies yet: versions are counted."""
    with operated_node(tmp_path, template, RECORD_FLUSH_SECONDS=1) as node:
        yield node


@pytest.fixture
def page(node: Node, chromium_window: Any) -> Iterator[Any]:
    page = window.operator_page(chromium_window, node.port)
    page.set_default_timeout(LIMIT)
    yield page
    assert page.faults == []
    page.close()


def test_a_rule_is_built_tried_published_and_rolled_back_without_typing_json(
    node: Node, traffic: Traffic, page: Any
) -> None:
    from playwright.sync_api import expect

    to = address("comm")
    sender, reader = traffic.runtime(), traffic.runtime()
    traffic.do(reader.subscribe(to))
    for _ in range(5):
        traffic.do(sender.send("update", to, {"value": 1}))
        traffic.do(reader.expect(type="update"))

    page.goto("/admin/policies/rule/add/")
    page.fill("[name=key]", "no-updates")
    sentence = page.locator("#policy-sentence")
    expect(sentence).to_have_text("Refuses every message.", timeout=LIMIT)
    page.get_by_role("button", name="Add a test", exact=True).click()
    expect(sentence).to_contain_text("Not complete", timeout=LIMIT)
    first = page.get_by_role("group", name="Test 1", exact=True)
    offered = first.locator("datalist option").evaluate_all("all => all.map((one) => one.value)")
    assert "update" in offered and "subscribe" in offered
    first.get_by_label("Value", exact=True).fill("update")
    page.get_by_role("button", name="Add a test", exact=True).click()
    second = page.get_by_role("group", name="Test 2", exact=True)
    second.get_by_label("Attribute", exact=True).select_option("msgTo")
    second.get_by_label("Value", exact=True).fill(to)
    page.get_by_role("button", name="It tells the sender…").click()
    page.get_by_label("It tells the sender", exact=True).fill("Not here.")
    said = f"Refuses a message if its type is update and the recipient's address is {to}"
    expect(sentence).to_have_text(f"{said}, and tells its sender “Not here.”.", timeout=LIMIT)
    assert axe_faults(page, "serious", "critical") == []

    page.get_by_role("button", name="Save and continue editing").click()
    page.get_by_text("no message is decided by this rule").first.wait_for()
    expect(sentence).to_contain_text(said, timeout=LIMIT)
    assert page.get_by_label("It tells the sender", exact=True).input_value() == "Not here."
    tried = page.locator("#policy-tried")

    def is_counted() -> bool:  # the record is written each second
        page.get_by_role("button", name="Try it on recorded messages of").click()
        expect(page.get_by_role("button", name="Try it on recorded messages of")).to_be_enabled(
            timeout=LIMIT
        )
        return "with this rule 5 more would be refused" in tried.inner_text()

    waiting.until(is_counted, LIMIT / 1000, tried.inner_text)
    assert sender.runtime_url in tried.inner_text()

    standing = page.locator("#policy-standing")
    effects = page.locator("#policy-standing-effects")
    expect(standing).to_contain_text("Not in force yet", timeout=LIMIT)
    page.reload()
    expect(effects).to_contain_text("it would have refused 5 more", timeout=LIMIT)
    page.get_by_role("button", name="Enforce this rule").click()
    page.get_by_text("is published: this rule is enforced from now on").first.wait_for()
    expect(standing).to_contain_text("Enforced, in version 1", timeout=LIMIT)
    waiting.until(lambda: is_refused(traffic, sender, to), LIMIT / 1000)
    page.get_by_role("button", name="Take it back").click()
    page.get_by_text("this rule is only counted from now on").first.wait_for()
    expect(standing).to_contain_text("Published in shadow, in version 2", timeout=LIMIT)
    waiting.until(lambda: not is_refused(traffic, sender, to), LIMIT / 1000)
    page.get_by_role("button", name="Enforce this rule").click()
    expect(standing).to_contain_text("Enforced, in version 3", timeout=LIMIT)

    page.goto("/admin/policies/rule/")
    page.locator("#result_list a", has_text="no-updates").first.click()
    for theme, width in (("light", 1440), ("dark", 390)):
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        assert axe_faults(page, "serious", "critical") == []
        assert page.evaluate(WIDER) == ""
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("group", name="Test 2", exact=True).get_by_label(
        "Remove test 2", exact=True
    ).click()
    page.get_by_role("button", name="Save", exact=True).first.click()
    page.wait_for_url("**/admin/policies/rule/")
    publish(page)

    page.goto("/admin/policies/version/")
    page.get_by_role("link", name="Roll back to this").last.click()
    page.get_by_role("button", name="Publish version 1 again").click()
    page.get_by_text("The draft is as it was before").first.wait_for()
    page.goto("/admin/policies/rule/")
    page.locator("#result_list a", has_text="no-updates").first.click()
    expect(sentence).to_contain_text("if its type is update, and tells", timeout=LIMIT)


def test_groups_open_names_and_what_rows_cannot_show(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto("/admin/policies/rule/add/")
    json = page.locator("textarea[name=condition]")
    sentence = page.locator("#policy-sentence")
    page.get_by_role("button", name="Add a group").click()
    first = page.get_by_role("group", name="Test 1.1", exact=True)
    first.get_by_label("Attribute", exact=True).select_option("rate.")
    first.get_by_label("Counted by", exact=True).select_option("srcUsername")
    first.get_by_label("Within", exact=True).select_option("day")
    first.get_by_label("Value", exact=True).fill("100")
    page.get_by_role("button", name="Add a test", exact=True).first.click()
    second = page.get_by_role("group", name="Test 1.2", exact=True)
    second.get_by_label("Attribute", exact=True).select_option("time")
    second.get_by_label("From", exact=True).fill("22:00")
    second.get_by_label("To", exact=True).fill("06:00")
    expect(sentence).to_contain_text(
        "within a day is more than 100 or the time is between", timeout=LIMIT
    )
    assert page.evaluate("JSON.parse(document.querySelector('[name=condition]').value)") == {
        "anyOf": [
            {"rate.srcUsername.day": {"moreThan": 100}},
            {"time": {"between": "22:00 06:00"}},
        ]
    }
    page.locator("#policy-builder summary", has_text="As JSON").click()
    json.fill('{"and": [{"msgTo": {"equals": "x"}}]}')
    page.get_by_text("Rows cannot show this condition").wait_for()
    assert json.input_value() == '{"and": [{"msgTo": {"equals": "x"}}]}'
    json.fill('{"msgTo": {"equals": ["x", "y"]}}')
    test = page.get_by_role("group", name="Test 1", exact=True)
    expect(test.get_by_label("Value 2", exact=True)).to_have_value("y", timeout=LIMIT)
    expect(sentence).to_contain_text("address is x or y", timeout=LIMIT)
    page.select_option("#guide-example", label="Closed at night")
    expect(sentence).to_contain_text("the time is between 22:00:00 and 06:00:00", timeout=LIMIT)
    expect(page.get_by_label("From", exact=True)).to_have_value("22:00", timeout=LIMIT)


def publish(page: Any) -> None:
    page.goto("/admin/policies/version/publish-draft/")
    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_text("is published.").first.wait_for()


def is_refused(traffic: Traffic, sender: Any, to: str) -> bool:
    async def ask() -> bool:
        id_ = await sender.send("update", to, {"value": 2})
        heard = await sender.settled()
        return any(each["id"] == id_ and each["body"]["code"] == 403 for each in heard)

    return traffic.do(ask())
