"""The examples that are pages, and the sensor, run as their pages say, in Chromium."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.node import ROOT, Node
from tests.runtime.pages import served
from tests.runtime.test_programs import Place
from tests.stubs.conftest import launched
from tests.waiting import in_page

EXAMPLES = ROOT / "examples"
MEDIA = [
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
    *("--allow-loopback-in-peer-connection", "--auto-accept-this-tab-capture"),
]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """With a microphone that beeps, and a screen."""
    with launched(chromium, *MEDIA) as opened:
        yield opened


def opened(stack: ExitStack, browser: Any, example: str, node: Node, **words: str) -> Any:
    """A page of an example in a browser of its own; its errors fail the test."""
    from urllib.parse import urlencode

    home = stack.enter_context(served(EXAMPLES))
    faults: list[str] = []
    stack.callback(lambda: assert_none(faults))
    context = browser.new_context(viewport={"width": 390, "height": 844})
    stack.callback(context.close)
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{home}/{example}/?{urlencode({'node': f'http://127.0.0.1:{node.port}', **words})}")
    return page


def assert_none(faults: list[str]) -> None:
    assert faults == []


def seen(page: Any, name: str) -> None:
    """Keep a picture where somebody wants to see it."""
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png")


def test_each_has_a_page_and_at_most_120_lines_a_connector_160() -> None:
    for folder in filter(Path.is_dir, EXAMPLES.iterdir()):
        texts = {each.name: each.read_text() for each in folder.iterdir() if each.is_file()}
        page = texts.pop("README.md")
        assert page.count("\n") <= 40
        if folder.name == "connectors":
            assert all(text.count("\n") <= 160 for text in texts.values())
        else:
            assert "".join(texts.values()).count("\n") <= 120, folder


INK = """() => {
    const paper = document.querySelector("canvas").getContext("2d");
    const { data } = paper.getImageData(0, 0, 1200, 800);
    return data.reduce((sum, each) => sum + (each > 0), 0);
}"""


@pytest.mark.long
def test_two_draw_on_one_whiteboard(browser: Any, node: Node) -> None:
    from playwright.sync_api import expect

    with ExitStack() as stack:
        one = opened(stack, browser, "whiteboard", node)
        expect(one.locator("#says")).to_contain_text("You keep the board.")
        draw(one, 100)
        other = opened(stack, browser, "whiteboard", node)
        expect(other.locator("#says")).to_have_text("You draw, too.")
        assert other.evaluate(INK) > 1_000
        before = one.evaluate(INK)
        draw(other, 200)
        in_page(one, f"({INK})() > {before}")
        seen(other, "whiteboard")
        other.click("#clear")
        for page in (one, other):
            in_page(page, f"({INK})() === 0")


def draw(page: Any, y: int) -> None:
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 30, box["y"] + y)
    page.mouse.down()
    page.mouse.move(box["x"] + 250, box["y"] + y + 10, steps=30)
    page.mouse.up()


@pytest.mark.long
def test_a_call_shares_a_screen_and_says_within_three_seconds_that_the_other_is_gone(
    browser: Any, node: Node
) -> None:
    from playwright.sync_api import Error, expect

    with ExitStack() as stack:
        bob, alice = (opened(stack, browser, "call", node) for _ in range(2))
        for page, name in ((bob, "bob-calls"), (alice, "alice-calls")):
            page.fill("#name:enabled", name)
            page.press("#name", "Enter")
            expect(page.locator("#says")).to_have_text(f"Others call {name}.")
        for answer in ("#no", "#yes"):
            alice.fill("#whom", "bob-calls")
            alice.press("#whom", "Enter")
            bob.click(answer)
            said = "The call was declined." if answer == "#no" else "You are talking with"
            expect(alice.locator("#says")).to_contain_text(said)
        expect(bob.locator("#says")).to_contain_text("You are talking with")
        assert bob.evaluate("document.querySelector('video').videoWidth") == 0
        alice.click("#share")
        in_page(bob, "document.querySelector('video').videoWidth > 0")
        seen(bob, "call")
        with suppress(Error):  # nobody answers that
            bob.context.new_cdp_session(bob).send("Page.crash", timeout=500)
        gone = time.monotonic()
        alice.wait_for_selector("#says:has-text('is gone')", timeout=4_000)
        print(f"noticed after {time.monotonic() - gone:.1f} s")


@pytest.mark.long
def test_a_sensor_in_python_is_watched_and_set_from_a_page(
    browser: Any, node: Node, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    program = (EXAMPLES / "sensors" / "sensor.py").read_text()
    place = Place(tmp_path, node.port)
    with (
        ExitStack() as stack,
        place.started("sensor.py", program, "attic", f"http://127.0.0.1:{node.port}") as sensor,
    ):
        assert sensor.stdout
        assert sensor.stdout.readline().startswith("attic measures: ")
        page = opened(stack, browser, "sensors", node)
        page.fill("#name:enabled", "cellar")
        page.press("#name", "Enter")
        expect(page.locator("#says")).to_have_text("There is no sensor cellar: start sensor.py.")
        page.fill("#name", "attic")
        page.press("#name", "Enter")
        expect(page.locator("strong")).to_contain_text("°C")
        page.select_option("select", "0.2")
        in_page(page, "document.querySelector('polyline').points.length > 8")
        seen(page, "sensors")
