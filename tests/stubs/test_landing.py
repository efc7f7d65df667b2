"""The newcomer's page in headless Chromium: the example, the broken line, every kind of visitor."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client

from tests.accessibility import axe_faults
from tests.node import Node
from tests.stubs.test_stubs import END_ALL

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
LIMIT = 60_000  # ms; a stub that finds no node tries again each half a minute
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.fixture
def visit(browser: Any, node: Node) -> Iterator[Callable[..., Any]]:
    """Opens a node's page and waits until the example runs; errors of the page fail the test."""
    faults: list[str] = []
    opened: list[Any] = []

    def open_page(at: Node = node, faults_expected: bool = False, **context: Any) -> Any:
        opened.append(browser.new_context(**context))
        page = opened[-1].new_page()
        page.set_default_timeout(LIMIT)
        page.on("pageerror", lambda error: faults.append(str(error)))
        if not faults_expected:  # a browser writes down each connection that fails
            page.on("console", lambda said: said.type == "error" and faults.append(said.text))
        page.goto(f"http://127.0.0.1:{at.port}/")
        page.wait_for_selector("#answer-text:enabled")
        return page

    yield open_page
    for each in opened:
        each.close()
    assert faults == []


def test_what_is_hidden_is_not_seen(visit: Callable[..., Any]) -> None:
    page = visit(**PHONE)
    assert page.locator("[hidden]").count() > 10
    assert page.locator("[hidden]:visible").count() == 0


HEAD = """
(domain) => {
  document.querySelector(".domain").textContent = domain;
  const box = (name) => document.querySelector(name).getBoundingClientRect().toJSON();
  return [box(".brand"), box(".account"), box(".top nav")];
}
"""


@pytest.mark.parametrize("domain", ["localhost", "messaging.a-rather-long-name.example.org"])
def test_name_and_log_in_are_one_line_and_cover_nothing_of_the_menu(
    browser: Any, node: Node, domain: str
) -> None:
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{node.port}/")
    page.wait_for_selector("#person-button:visible")
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 844})
        brand, account, menu = page.evaluate(HEAD, domain)
        assert brand["right"] <= account["left"] <= account["right"] <= width, width
        assert abs(brand["top"] + brand["bottom"] - account["top"] - account["bottom"]) < 12, width
        is_beside = brand["right"] <= menu["left"] and menu["right"] <= account["left"]
        assert is_beside or menu["top"] >= account["bottom"], width
        edge = page.evaluate("document.querySelector('.hero').getBoundingClientRect().right")
        assert account["right"] == pytest.approx(edge, abs=1), width
    page.close()


def bob_sees(page: Any, field: str, text: str) -> None:
    page.wait_for_selector(f"#copy [data-field={field}]:text-is({text!r})")


def test_it_names_the_addresses_it_was_asked_by(client: Client) -> None:
    answer = client.get("/", headers={"host": "node.example.org:8443"}, secure=True)
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "wss://node.example.org:8443/ws" in text
    assert "https://node.example.org:8443/.well-known/protocolstub/default.ps.js" in text


def test_what_it_offers_for_download_is_there(client: Client) -> None:
    links = re.findall(r'href="(/\.well-known/[^"]+)"', client.get("/").content.decode())
    assert any("whl" in each for each in links)
    assert [each for each in links if client.get(each).status_code != 200] == []


def test_it_forbids_itself_inline_scripts_and_styles(client: Client) -> None:
    answer = client.get("/")
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
    assert "unsafe" not in policy
    text = answer.content.decode()
    assert " style=" not in text
    assert "<style" not in text
    assert " onclick=" not in text
    assert "http" not in text.replace("http://testserver", "")


def test_case_54_what_alice_types_bob_sees_and_his_answer_reaches_her(
    visit: Callable[..., Any],
) -> None:
    page = visit(**DESKTOP)
    bob_sees(page, "title", "Picnic on Sunday")  # he asked for the note as it was
    page.press("#note-title", "End")
    page.keyboard.type("!")
    bob_sees(page, "title", "Picnic on Sunday!")
    page.locator("#note-guests").press("ArrowRight")
    bob_sees(page, "guests", "5")
    page.fill("#answer-text", "I bring the bread")
    page.press("#answer-text", "Enter")
    page.wait_for_selector(".alice [data-answers] :text('I bring the bread')")
    assert page.locator(".bob [data-answers] li").count() == 1  # his own echo is dropped


def test_the_pane_explains_each_message_and_shows_no_token(visit: Callable[..., Any]) -> None:
    page = visit(**DESKTOP)
    page.fill("#note-title", "Tea")
    bob_sees(page, "title", "Tea")
    lines = page.locator("#messages li")
    told = lines.all_inner_texts()
    assert any("Alice changes the title: “Tea”" in each for each in told)
    assert any("he receives “Tea”" in each for each in told)
    session = lines.filter(has_text="has a session").first
    session.locator("summary").press("Enter")
    assert '"runtimeToken": "•••"' in session.locator("pre").inner_text()
    page.click("#clear")
    assert lines.count() == 0


def test_a_broken_line_loses_nothing_for_who_listens_nor_for_who_speaks(
    visit: Callable[..., Any],
) -> None:
    page = visit(**DESKTOP)
    for name in ("bob", "alice"):
        page.click(f".{name} .line")
        page.wait_for_selector(f".{name} .state[data-state=disconnected]")
        page.press("#note-text", "Control+End")
        page.keyboard.type(f" {name} was away.")
        page.click(f".{name} .line")
        page.wait_for_selector(f".{name} .state[data-state=live]")
        bob_sees(page, "text", page.input_value("#note-text"))
    page.wait_for_selector("[data-step=return].done")
    assert page.locator(".steps .done").count() == 5


@pytest.mark.long
def test_the_page_goes_on_after_the_node_was_killed(
    start_node: Callable[..., Node], visit: Callable[..., Any]
) -> None:
    node = start_node()
    page = visit(node, faults_expected=True, **DESKTOP)
    node.kill()
    page.wait_for_selector(".alice .state[data-state=disconnected]")
    page.fill("#note-title", "Written while the node was away")
    node.start()
    bob_sees(page, "title", "Written while the node was away")


def test_a_session_that_the_operator_ends_is_reported(
    start_node: Callable[..., Node], visit: Callable[..., Any]
) -> None:
    node = start_node()
    page = visit(node, **DESKTOP)
    node.manage("shell", "-c", END_ALL)
    page.wait_for_selector(".bob .state[data-state=failed]")
    assert "ended by the operator. Load" in page.inner_text("#failure")


def test_everything_can_be_done_with_the_keyboard(visit: Callable[..., Any]) -> None:
    page = visit(**DESKTOP)
    name = "document.activeElement.id || document.activeElement.className"
    reached = [""]
    while reached[-1] != "messages" and len(reached) < 40:
        page.keyboard.press("Tab")
        reached.append(page.evaluate(name))
    named = [each for each in reached if each]  # links and the button `Send` have no name
    assert named == [
        *("skip", "person-button", "note-title", "note-text", "note-guests", "line"),
        *("answer-text", "line", "clear", "messages"),
    ]
    page.locator(".bob .line").press("Space")
    page.wait_for_selector(".bob .state[data-state=disconnected]")
    assert page.get_attribute(".bob .line", "aria-checked") == "false"


def test_a_screen_reader_is_told_once_the_typing_stops(visit: Callable[..., Any]) -> None:
    page = visit(**DESKTOP)
    page.fill("#note-title", "Tea")
    page.wait_for_selector("#live:has-text('Bob’s copy: Tea.')", state="attached")


@pytest.mark.parametrize(
    "context",
    [
        pytest.param(DESKTOP, id="desktop"),
        pytest.param(PHONE, id="phone", marks=pytest.mark.long),
        pytest.param(
            {**DESKTOP, "color_scheme": "dark"}, id="desktop-dark", marks=pytest.mark.long
        ),
        pytest.param({**PHONE, "color_scheme": "dark"}, id="phone-dark"),
    ],
)
def test_axe_finds_no_fault_and_nothing_is_cut_off(
    visit: Callable[..., Any], context: dict[str, Any]
) -> None:
    page = visit(**context)
    page.fill("#note-title", "x" * 60)
    bob_sees(page, "title", "x" * 60)
    page.click(".bob .line")
    page.wait_for_selector(".bob .state[data-state=disconnected]")
    page.locator("#messages summary").first.click()
    assert axe_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_reduced_motion_means_no_dots_on_the_line(visit: Callable[..., Any]) -> None:
    page = visit(**DESKTOP, reduced_motion="reduce")
    page.evaluate(
        """() => new MutationObserver(() => document.body.dataset.moved = "").observe(
            document.querySelector(".wire"), { childList: true, subtree: true })"""
    )
    page.fill("#note-title", "Tea")
    bob_sees(page, "title", "Tea")
    assert page.get_attribute("body", "data-moved") is None


def test_nothing_is_asked_of_anybody_but_the_node(visit: Callable[..., Any], node: Node) -> None:
    page = visit(**DESKTOP)
    asked = page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    assert asked
    assert {urlsplit(each).netloc for each in asked} == {f"127.0.0.1:{node.port}"}


def test_two_tabs_share_a_board(visit: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = visit(**PHONE)
    page.fill("#board-title", "Camping")
    page.click("#board-start")
    link = page.wait_for_selector("#board-link:visible").get_attribute("href")
    other = page.context.new_page()
    other.goto(link)
    other.wait_for_selector("#board-text:visible")
    # wait_for_function would evaluate text, which the page's policy forbids at each later look
    expect(other.locator("#board-title")).to_have_value("Camping")
    page.fill("#board-title", "Camping in May")
    expect(other.locator("#board-title")).to_have_value("Camping in May")
    other.fill("#board-text", "Two blankets")
    other.press("#board-text", "Enter")
    page.fill("#board-text", "A tent")
    page.press("#board-text", "Enter")
    for each in (page, other):
        each.wait_for_selector("#board-lines :text('observer: Two blankets')")
        each.wait_for_selector("#board-lines :text('reporter: A tent')")
    assert axe_faults(other) == []
    assert other.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    if folder := os.environ.get("SCREENSHOTS"):
        other.locator("#together").screenshot(path=f"{folder}/together-phone.png")
        page.locator("#together").screenshot(path=f"{folder}/together-reporter-phone.png")
    page.close()


def test_a_board_that_is_not_there_is_named(visit: Callable[..., Any], node: Node) -> None:
    page = visit(**DESKTOP)
    page.goto(f"http://127.0.0.1:{node.port}/?again#board=resource%3A%2F%2Flocalhost%2Fnone")
    page.wait_for_selector("#board-says:has-text('There is no such board')")
    page.wait_for_selector("#board-start:enabled")


def test_its_words_are_no_markup_and_it_leads_to_the_interfaces_and_their_pages(
    client: Client,
) -> None:
    page = client.get("/").content.decode()
    shown = re.sub(r"<(script|style|pre)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "`" not in shown
    for place in ("/api/docs", "/admin/"):
        assert f'href="{place}"' in page


def test_the_example_can_be_copied_and_its_first_line_is_seen(visit: Callable[..., Any]) -> None:
    page = visit(**DESKTOP)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = page.locator("#example-code")
    assert code.inner_text().startswith("const node = ")
    example = page.locator(".copied").filter(has=code)
    above = example.locator("pre").bounding_box()["y"] - code.bounding_box()["y"]
    assert above <= 0
    example.get_by_role("button", name="Copy").click()
    example.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == code.inner_text()
