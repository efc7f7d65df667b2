"""What an operator comes for, done in a real browser and counted in clicks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.accessibility import axe_faults
from tests.client import LIMIT, address, runtime
from tests.node import Node
from tests.services import redis_server

from . import window
from .browser import log_in, operated_node
from .traffic import Traffic

pytestmark = pytest.mark.long

COUNTS = """
  document.addEventListener("click", (event) => {
    if (event.isTrusted) sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1;
  }, true);
"""
SEEN_WITHIN = 20_000  # ms, on a machine that has other things to do


class Console:
    """An operator's page that counts clicks."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.add_init_script(COUNTS)
        page.goto("/admin/")
        page.evaluate("sessionStorage.clicks = 0")

    @property
    def clicks(self) -> int:
        return int(self.page.evaluate("Number(sessionStorage.clicks ?? 0)"))

    def click(self, selector: str, **options: Any) -> None:
        self.page.locator(selector, **options).first.click()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    # so little is left free that the record is not written: the disk "fills"
    settings = {"RECORD_MIN_FREE_BYTES": 10**16, "RECORD_FLUSH_SECONDS": 1}
    with operated_node(tmp_path_factory.mktemp("tasks"), template, **settings) as node:
        yield node


@pytest.fixture
def console(node: Node, chromium_window: Any) -> Iterator[Console]:
    page = window.operator_page(chromium_window, node.port)
    yield Console(page)
    assert page.faults == []
    page.close()


def test_who_floods_is_found_and_banned_with_three_clicks(
    traffic: Traffic, console: Console
) -> None:
    from playwright.sync_api import expect

    traffic.pair(5)
    flooder, _ = traffic.pair(100)
    page = console.page
    first = page.locator("[data-top=talkers] a").first
    expect(first).to_have_text(flooder.runtime_url, timeout=SEEN_WITHIN)
    first.click()
    page.wait_for_selector("#session-live[data-state=live]")
    waiting.in_page(
        page, "parseFloat(document.querySelector('[data-figure=messages]').textContent) > 20"
    )
    page.wait_for_selector("canvas[data-chart=session][data-points]")
    assert axe_faults(page, "serious", "critical") == []
    console.click("a", has_text="Ban for an hour")
    page.wait_for_selector("[name=reason]")
    console.click("button[name=_save], input[name=_save]")
    page.get_by_text("was added successfully").first.wait_for()
    assert console.clicks <= 3
    assert traffic.do(flooder.close_code()) == 4403


def test_why_it_was_refused_is_seen_and_it_is_allowed_and_passes(
    node: Node, traffic: Traffic, console: Console, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    to = address("comm")
    rules = [{"id": "no-notes", "effect": "deny", "condition": {"msgTo": {"equals": to}}}]
    document = {
        "sets": [{"id": "House", "mode": "enforce", "policies": [{"id": "P", "rules": rules}]}]
    }
    file = tmp_path / "policies.json"
    file.write_text(json.dumps(document))
    node.publish(file, "--replace")
    sender, reader = traffic.runtime(), traffic.runtime()
    traffic.do(reader.subscribe(to))
    answer = traffic.do(sender.ask("read", to))
    assert answer["body"]["code"] == 403
    page = console.page
    page.keyboard.press("/")
    # The box opens with an animation and takes the keyboard after that.
    expect(page.locator("#search-input-command")).to_be_focused()
    page.keyboard.type(sender.runtime_url)
    # The overview behind the search names the session as well.
    results = page.locator("[x-data^=searchCommand] a")
    results.filter(has_text=sender.runtime_url).first.click()
    page.locator("a", has_text="House/P/no-notes").first.wait_for(timeout=SEEN_WITHIN)
    console.click("a", has_text="House/P/no-notes")
    page.select_option("select[name=effect]", "permit")
    console.click("button[name=_save], input[name=_save]")
    console.click("a", has_text="Check and publish")
    console.click("form button[type=submit]", has_text="Publish")
    page.get_by_text("in force").first.wait_for()
    assert console.clicks <= 6
    answer = traffic.do(passed(sender, reader, to))
    assert answer["body"]["code"] == 200


def test_who_is_stuck_is_found_and_ended_with_three_clicks(
    traffic: Traffic, console: Console
) -> None:
    """It has gone away without a word, and what it is sent waits for it."""
    from playwright.sync_api import expect

    _, heard = traffic.pair(20, size=1_000)
    stuck = traffic.runtime()
    traffic.do(stuck.subscribe(heard))
    stuck.cut()
    page = console.page
    slowest = page.locator("[data-top=readers] a").first
    expect(slowest).to_have_text(stuck.runtime_url, timeout=SEEN_WITHIN)
    slowest.click()
    page.wait_for_selector("#session-live[data-state=live]")
    page.get_by_text("detached").first.wait_for()
    console.click("a", has_text="End session")
    page.get_by_text("Their sockets are closed").first.wait_for()
    page.get_by_role("button", name="End sessions", exact=True).click()
    page.wait_for_url(lambda url: not url.rstrip("/").endswith("/end"))
    assert console.clicks <= 3

    def is_closed() -> bool:
        page.goto(f"/admin/msgnode/session/?state__exact=closed&q={stuck.runtime_url}")
        return bool(page.locator("#result_list a", has_text=stuck.runtime_url).count())

    waiting.until(is_closed, LIMIT)


def test_what_changed_since_yesterday_is_seen_and_taken_back_with_four_clicks(
    node: Node, console: Console
) -> None:
    banned = runtime()
    browser = log_in_again(node)
    browser.fill_in(
        "msgnode/ban/add/", kind="runtime", value=banned, reason="spam",
        expires_at_0="", expires_at_1="",
    )  # fmt: skip
    page = console.page
    page.goto("/admin/")
    console.click("a", has_text="Changes in 24 hours")
    page.wait_for_selector("#result_list")
    row = page.locator("#result_list tbody", has_text=banned).first
    row.locator("a").first.click()
    console.click("a", has_text="Undo the change")
    page.wait_for_selector("form.console-actions")
    console.click("button", has_text="Undo the change")
    page.get_by_text("has its previous values again").first.wait_for()
    assert console.clicks <= 4
    page.goto(f"/admin/msgnode/ban/?q={banned}")
    assert page.locator("#result_list a", has_text=banned).count() == 0


def test_a_disk_that_fills_is_on_the_first_page_and_what_to_do_one_click_away(
    traffic: Traffic, console: Console
) -> None:
    traffic.pair(20)
    page = console.page
    page.wait_for_selector("#alarms a:has-text('record-not-written')", timeout=SEEN_WITHIN)
    console.click("#alarms a", has_text="record-not-written")
    page.get_by_text("Make room").first.wait_for()
    assert console.clicks == 1


def test_a_worker_that_died_is_said_on_the_first_page_without_a_click(
    start_node: Any, chromium_window: Any
) -> None:
    with redis_server() as url:
        first = start_node(REDIS_URL=url, WORKER_TIMEOUT=3)
        database = f"sqlite:///{first.data_dir}/node.sqlite3"
        second = start_node(DATABASE_URL=database, REDIS_URL=url, WORKER_TIMEOUT=3)
        log_in(first)
        page = window.operator_page(chromium_window, first.port)
        console = Console(page)
        waiting.in_page(page, "document.querySelectorAll('#live-workers tr').length === 2")
        second.kill()
        page.wait_for_selector("#live-workers .console-silent", timeout=SEEN_WITHIN)
        page.wait_for_selector("#lights li[data-state=fault]", timeout=SEEN_WITHIN)
        page.wait_for_selector("#alarms a:has-text('unclean-stop')", timeout=SEEN_WITHIN)
        assert console.clicks == 0
        page.close()


async def passed(sender: Any, reader: Any, to: str) -> Any:
    """A question that is asked until it is no longer refused, heard and answered."""
    async with asyncio.timeout(LIMIT):
        while True:
            id_ = await sender.send("read", to)
            hearing = asyncio.ensure_future(reader.expect(type="read"))
            answering = asyncio.ensure_future(sender.answer(id_))
            await asyncio.wait({hearing, answering}, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                break
            hearing.cancel()
            await asyncio.wait({hearing})
    id_ = hearing.result()["id"]
    await reader.send("response", sender.runtime_url, {"code": 200}, sender=to, id=id_)
    return await answering


def log_in_again(node: Node) -> Any:
    from .browser import PASSWORD, Browser

    browser = Browser(node)
    browser.fill_in("login/", username="operator", password=PASSWORD)
    return browser
