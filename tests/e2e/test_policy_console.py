"""An operator's round in a real browser: a rule written, tried, published, taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.policed import PolicedNode, Runtime, policed_node

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("policy console")]

playwright = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def node(template: Path) -> Iterator[PolicedNode]:
    with policed_node(template, DJANGO_SUPERUSER_PASSWORD="hunter2-hunter2") as running:
        running.manage(
            *("createsuperuser", "--noinput", "--username", "op", "--email", "op@example.com")
        )
        yield running


@pytest.fixture
def page(node: PolicedNode, chromium: str) -> Iterator[playwright.Page]:
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(base_url=f"http://127.0.0.1:{node.process.port}")
        page.set_default_timeout(30_000)
        page.goto("/admin/")
        page.fill("[name=username]", "op")
        page.fill("[name=password]", "hunter2-hunter2")
        page.press("[name=password]", "Enter")
        page.wait_for_url("**/admin/")
        yield page
        browser.close()


def save(page: playwright.Page) -> None:
    page.locator("[name=_save]").first.click()


def publish(page: playwright.Page, node: PolicedNode, number: int) -> None:
    page.goto("/admin/policies/version/publish-draft/")
    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_text(f"Version {number} is published.").wait_for()
    node.process.line_with(f"Policies of version {number} are in force")


def test_an_operators_round(node: PolicedNode, page: playwright.Page) -> None:
    alice, bob = Runtime(node, "alice"), Runtime(node, "bob")
    node.manage(
        *("policy_import", "-", "--mode", "enforce"),
        text='[{"id": "S", "policies": [{"id": "P", "rules": []}]}]',
    )
    publish(page, node, 1)

    page.goto("/admin/policies/rule/add/")
    page.fill("[name=key]", "no-secrets")
    page.select_option("[name=effect]", "deny")
    page.evaluate(
        """() => { const s = document.querySelector('[name=policy]');
                   s.append(new Option('P', '1', true, true)); }"""
    )
    page.locator("#policy-builder summary", has_text="As JSON").click()
    page.fill("[name=condition]", '{"msgTo": {"lik": "*/secret"}}')
    page.get_by_text("there is no operator 'lik'").first.wait_for()  # while it is typed
    save(page)
    page.get_by_text("condition.msgTo.lik: there is no operator 'lik'").first.wait_for()
    page.locator("#policy-builder summary", has_text="As JSON").click()
    page.fill("[name=condition]", '{"msgTo": {"like": "*/secret"}}')
    page.get_by_text("No problems.").first.wait_for()
    save(page)
    page.wait_for_url("**/admin/policies/rule/*/change/")

    page.goto("/admin/policies/policyset/playground/")
    page.fill("[name=message]", '{"type": "read", "to": "hyperty://b.com/secret"}')
    page.get_by_role("button", name="Decide", exact=True).click()
    page.locator("#decision").get_by_text("deny by S / P / no-secrets").wait_for()
    page.locator("#decision").get_by_text("msgTo like */secret").wait_for()

    secret = f"{bob.url}/secret"
    alice.send("create", secret)
    assert bob.receive()["to"] == secret  # the draft does not act
    publish(page, node, 2)
    assert alice.ask("create", secret)["body"]["code"] == 403

    page.goto("/admin/policies/version/")
    page.get_by_role("link", name="Roll back to this").last.click()
    page.get_by_text("no-secrets").first.wait_for()  # what changes, before anything does
    page.get_by_role("button", name="Publish version 1 again").click()
    page.get_by_text("Version 3 is published").wait_for()
    node.process.line_with("Policies of version 3 are in force")
    alice.send("create", secret)
    assert bob.receive()["to"] == secret
