"""A browser's channels to the field's P2P stubs, either of them inviting, over a running node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node import Node

from .p2p_pages import InProcess, browser, talker, until
from .started import process

__all__ = ["browser"]
pytest.importorskip("aiortc")
pytestmark = pytest.mark.xdist_group("p2p")


@pytest.mark.long
@pytest.mark.parametrize(
    ("role", "written"), [("requester", "split_type_first"), ("handler", "candidates_first")]
)
def test_cases_p18_p19_and_p24_a_browser_has_a_channel_with_the_field(
    role: str, written: str, browser: Any, node: Node
) -> None:
    options = {"url": f"ws://127.0.0.1:{node.port}/ws", "written": written}
    with (
        process("p2p_field_talker", "python", options) as started,
        talker("chromium", browser, node) as page,
    ):
        field = InProcess(started)
        if role == "requester":
            named = {"p2p": True, "p2pHandler": field.named["handler"], "p2pRequester": "x"}
            assert page.do("ask", field.named["url"], 1, named)["value"] == 1
        else:
            assert field.do("invite", page.named["handler"]) == 200
        other = field.named["runtimeURL"]
        until(lambda: page.do("way", other) == "channel" and field.do("state") == "open", page)
        field.do("say", page.named["url"], 100)
        page.do("tell", field.named["url"], 100)
        until(lambda: page.do("heard")["count"] == 100 and len(field.do("heard")) == 100, page)
        assert page.do("heard") == {"count": 100, "isInOrder": True, "byChannel": 100}
        assert field.do("heard") == list(range(100)) and field.do("raised") == []
        told = [word for peer, word, _ in page.do("states") if peer == other]
        assert told == ["created", "in-progress", "live"]
