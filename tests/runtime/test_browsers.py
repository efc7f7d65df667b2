"""The runtime in the engines of other browsers than Chromium, and what each of them lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browsers import ENGINES
from tests.node import ROOT, Node
from tests.runtime.pages import served
from tests.runtime.test_javascript import ANYWHERE, TESTS, run_in_page
from tests.stubs.conftest import launched

STEPS = """async ([home, name]) => {
    const { steps } = await import("/tests/runtime/browsers.mjs");
    return steps(home, name);
}"""
WITHOUT_WEBRTC = ["webkit"]


@pytest.fixture(scope="module", params=["chromium", "firefox", "webkit"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """A browser and its name."""
    name = request.param
    if name == "chromium":
        path = request.getfixturevalue("chromium")
        with launched(path, "--allow-loopback-in-peer-connection") as opened:
            yield name, opened
    else:
        with ENGINES[name]() as opened:
            yield name, opened


@pytest.mark.long
def test_two_runtimes_of_an_engine_find_ask_share_and_connect(
    engine: tuple[str, Any], node: Node
) -> None:
    name, browser = engine
    page = browser.new_page()
    try:
        with served(ROOT) as url:
            page.goto(f"{url}/msgnode/runtime/js/tests/browser/index.html")
            found = page.evaluate(STEPS, [f"http://127.0.0.1:{node.port}", f"bob-{name}"])
    finally:
        page.close()
    direct = found.pop("direct")
    assert found == {
        "request": [True, "hello"],
        "object": [["one", "two"], ["three"]],
        "sandbox": [7, "null"],
        "unregistered": "through the node, beside a channel",
        "panel": ["registered", "inline-block"],
    }
    assert direct[0] == "directly"
    if name in WITHOUT_WEBRTC:
        assert direct[1] == "node"
        assert direct[2].endswith("this platform has no WebRTC: RTCPeerConnection gives it one.")
    else:
        assert direct[1] == "channel"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["firefox", "webkit"], indirect=True)
def test_the_runtimes_own_tests_pass_in_an_engine(engine: tuple[str, Any]) -> None:
    _, browser = engine
    for path in [*ANYWHERE, TESTS / "sandbox.browser.mjs"]:
        run_in_page(browser, path)
