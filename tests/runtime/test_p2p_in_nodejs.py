"""A runtime in Node.js, which has no WebRTC of its own: everything goes through the node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node import Node

from .p2p_pages import ask, browser, talker, ways

__all__ = ["browser"]
pytest.importorskip("aiortc")
pytestmark = [pytest.mark.any_server, pytest.mark.xdist_group("p2p")]


@pytest.mark.long
def test_case_p2_node_js_without_a_package_goes_on_through_the_node(
    browser: Any, node: Node
) -> None:
    with talker("nodejs", browser, node) as one, talker("chromium", browser, node) as other:
        assert one.named["handler"] == "" and one.named["registration"] is None
        for here, there in ((one, other), (other, one)):
            answer = ask(here, there, 1, p2p=True)
            assert answer["value"] == 1 and "/protostub/" in answer["cameBy"]
        assert ways(one, other) == ["node", "node"] and one.do("states") == []
