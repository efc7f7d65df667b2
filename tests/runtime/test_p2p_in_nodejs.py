"""A runtime in Node.js, which has no WebRTC of its own: everything goes through the node.

With WERIFT, the folder of that npm package, it is tried with the package, too; nothing else needs
it.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.node import Node

from .p2p_pages import ask, browser, connect, talker, until, ways

__all__ = ["browser"]
pytest.importorskip("aiortc")
pytestmark = pytest.mark.xdist_group("p2p")


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


if "WERIFT" in os.environ:

    @pytest.mark.long
    @pytest.mark.parametrize(
        "kinds",
        [pair for each in ("chromium", "python") for pair in ((each, "nodejs"), ("nodejs", each))],
        ids="-".join,
    )
    def test_with_the_package_it_talks_directly(
        kinds: tuple[str, str], browser: Any, node: Node
    ) -> None:
        with talker(kinds[0], browser, node) as one, talker(kinds[1], browser, node) as other:
            print(f"live after {connect(one, other):.0f} ms")
            for number in range(100):
                for here, there in ((one, other), (other, one)):
                    answer = ask(here, there, number)
                    assert answer["value"] == number and "/p2prequester/" in answer["cameBy"]
            for size in (16_385, 1_000_000):
                for here, there in ((one, other), (other, one)):
                    assert ask(here, there, "x" * size)["value"] == "x" * size
            for here, there in ((one, other), (other, one)):
                here.do("start", there.named["url"])
            until(lambda: all(each.do("heard")["byChannel"] > 300 for each in (one, other)))
            for here, there in ((one, other), (other, one)):
                said = here.do("stop")
                until(lambda: there.do("heard")["count"] >= said)  # noqa: B023
                heard = there.do("heard")
                assert heard["count"] == said and heard["isInOrder"]
            other.do("bye", one.named["runtimeURL"], "closing")
            until(lambda: ways(one, other) == ["node", "node"], one, other)
            assert ask(one, other, 1)["value"] == 1
