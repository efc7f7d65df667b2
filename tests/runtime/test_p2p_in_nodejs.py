"""Direct connections of Node.js: through the package werift where `WERIFT` names its folder, and
through the node where there is none."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.node import Node

from .p2p_pages import ask, browser, connect, talker, ways

__all__ = ["browser"]
pytest.importorskip("aiortc")
pytestmark = [pytest.mark.any_server, pytest.mark.xdist_group("p2p")]

PAIRS = [
    ("nodejs", "python"),
    ("python", "nodejs"),
    ("nodejs", "chromium"),
    ("chromium", "nodejs"),
]


@pytest.mark.long
def test_case_p2_node_js_without_a_package_goes_on_through_the_node(
    browser: Any, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WERIFT", raising=False)
    with talker("nodejs", browser, node) as one, talker("chromium", browser, node) as other:
        assert one.named["handler"] == "" and one.named["registration"] is None
        for here, there in ((one, other), (other, one)):
            answer = ask(here, there, 1, p2p=True)
            assert answer["value"] == 1 and "/protostub/" in answer["cameBy"]
        assert ways(one, other) == ["node", "node"] and one.do("states") == []


@pytest.mark.long
@pytest.mark.skipif("WERIFT" not in os.environ, reason="WERIFT names no folder of the package")
@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_case_p60_node_js_with_werift_has_a_channel(
    kinds: tuple[str, str], browser: Any, node: Node
) -> None:
    with talker(kinds[0], browser, node) as one, talker(kinds[1], browser, node) as other:
        took = connect(one, other)
        print(f"live after {took:.0f} ms")
        for number in range(50):
            for here, there in ((one, other), (other, one)):
                answer = ask(here, there, number)
                assert answer["value"] == number and "/p2prequester/" in answer["cameBy"]
        assert one.do("states")[-1][1] == "live"
