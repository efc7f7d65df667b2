"""The page /runtime and its panel: what there is in a runtime, why somebody is not reached."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.accessibility import axe_faults
from tests.node import Node

DESKTOP = {"viewport": {"width": 1440, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
HOSTILE = "<img src=x onerror=alert(1)>"
OTHERS = """async ([node, name]) => {
    const { Runtime } = await import(`${node}/static/msgnode/runtime/index.js`);
    window.runtime = new Runtime({ domain: "localhost", catalogues: { localhost: node } });
    await runtime.logIn();
    const handlers = { read: () => "I am Bob." };
    const { url } = await runtime.hyperty("bob", { register: name, handlers });
    return url;
}"""
STRANGE = """async (text) => {
    const { mountPanel } = await import("/static/msgnode/runtime/panel.js");
    const many = (one) => Array.from({ length: 60 }, () => one);
    const stub = { to: text, domain: text, stub: text, status: text, desc: text, version: text };
    const state = {
        runtime: text, domain: text, user: text, whyNoChannels: text,
        hyperties: many({ name: text, url: text, isRegistered: true }),
        routes: [{ ...stub, waiting: 1, unanswered: 2, claims: many(text) }],
        sandboxes: [{ name: text, components: [text] }],
        channels: [{ runtime: text, stub: text, state: text, way: text }],
        errors: [{ at: text, reason: text, text }],
        counters: { [text]: 1 },
    };
    const explain = () => ({ way: text, why: text, stub: { url: text }, isHere: true });
    const place = document.body.appendChild(document.createElement("div"));
    const panel = mountPanel({ state: () => Promise.resolve(state), explain }, place);
    await panel.refresh();
    await panel.explain(text);
    const root = place.shadowRoot;
    const isText = root.textContent.split(text).length > 20;
    const isCut = root.textContent.includes("and 10 more");
    const markup = root.querySelectorAll("img, script").length;
    panel.remove();
    return [markup, isText, isCut, root.textContent];
}"""
WRONG = """async () => {
    const { mountPanel } = await import("/static/msgnode/runtime/panel.js");
    const [runtime, place] = [{ state() {}, explain() {} }, document.createElement("div")];
    const attempt = (words) => {
        try { mountPanel(...words); } catch (error) { return String(error); }
    };
    return [[{}, place], [runtime, null], [runtime, place, { every: 1 }]].map(attempt);
}"""


@pytest.mark.parametrize(
    ("screen", "scheme"),
    [
        pytest.param(DESKTOP, "light", id="desktop-light", marks=pytest.mark.long),
        pytest.param(PHONE, "dark", id="phone-dark"),
        pytest.param(DESKTOP, "dark", id="desktop-dark", marks=pytest.mark.long),
        pytest.param(PHONE, "light", id="phone-light", marks=pytest.mark.long),
    ],
)
def test_the_page_finds_somebody_and_the_panel_says_how_he_is_reached(
    screen: dict[str, Any], scheme: str, browser: Any, node: Node
) -> None:
    from playwright.sync_api import expect

    context = browser.new_context(color_scheme=scheme, **screen)
    try:
        other, page = context.new_page(), context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        home = f"http://127.0.0.1:{node.port}"
        name = f"bob-{scheme}-{screen['viewport']['width']}"
        other.goto(f"{home}/static/msgnode/runtime/sandbox/frame.html")
        bob = other.evaluate(OTHERS, [home, name])
        page.goto(f"{home}/runtime")
        page.fill("#user:enabled", name)
        page.press("#user", "Enter")
        page.click("#found :text('Ask: read')")
        expect(page.locator("#says")).to_have_text('It answered "I am Bob.".')
        page.click("#found :text('Explain')")
        told = page.locator("#panel #told")
        expect(told).to_contain_text("Through the stub of localhost, which is live.")
        stubs = page.locator("#panel section", has_text="Stubs").last
        expect(stubs).to_contain_text("addresses at its node")
        expect(page.locator("#panel .grid")).to_contain_text("visitor")
        stubs.locator("summary").click()
        page.fill("#panel #address", f"hyperty://localhost/{HOSTILE}")
        page.press("#panel #address", "Enter")
        expect(told).to_contain_text("which is live")
        page.fill("#panel #address", "bob")
        page.press("#panel #address", "Enter")
        expect(told).to_contain_text(
            'address is an address, such as hyperty://example.org/1, not "bob".'
        )
        other.evaluate("runtime.close()")
        page.click("#found :text('Ask: read')")
        expect(page.locator("#says")).to_contain_text(f"404 from {bob}")
        expect(page.locator("#panel section", has_text="Last errors").last).to_contain_text(bob)
        if folder := os.environ.get("SCREENSHOTS"):
            where = f"{folder}/runtime-{scheme}-{screen['viewport']['width']}.png"
            page.screenshot(path=where, full_page=True)
        assert axe_faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= screen["viewport"]["width"]
        assert faults == []
    finally:
        context.close()


def test_the_panel_shows_what_strangers_say_as_text_and_refuses_what_it_cannot_show(
    browser: Any, node: Node
) -> None:
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{node.port}/runtime")
    assert page.evaluate(STRANGE, HOSTILE) == [0, True, True, ""]
    for said, word in zip(
        page.evaluate(WRONG), ("runtime is", "element is", "every is"), strict=True
    ):
        assert said.startswith(f"TypeError: {word}")
    page.close()
