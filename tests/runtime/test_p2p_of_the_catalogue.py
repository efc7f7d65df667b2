"""Browsers whose direct connections are those of the P2P stubs in the node's catalogue.

Browsers hold the thread's event loop: this module has no async tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.node import Node

from .p2p_pages import Talker, ask, browser, count_of, talker, until

__all__ = ["browser"]
pytest.importorskip("aiortc")
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("p2p")]

DIRECT = ("/p2prequester/", "/p2phandler/")


def is_direct(one: Talker, other: Talker, value: int) -> bool:
    """Whether what one asks of the other came by channel; it is answered in either case."""
    answer = ask(one, other, value)
    assert answer["value"] == value
    return any(each in answer["cameBy"] for each in DIRECT)


def counted(node: Node, metric: str, label: str = "") -> float:
    """The sum of a metric of the node's, over what has this label."""
    lines = [each for each in node.text("/metrics").splitlines() if each.startswith(metric)]
    return sum(float(each.split()[-1]) for each in lines if label in each)


def states(one: Talker, other: Talker) -> list[str]:
    told = one.do("states")
    return [word for runtime, word, _ in told if runtime == other.named["runtimeURL"]]


def come_together(one: Talker, other: Talker) -> None:
    assert ask(one, other, 0, p2p=True, p2pHandler=other.named["handler"])["value"] == 0
    for here, there in ((one, other), (other, one)):
        until(lambda: "live" in states(here, there), here, there)  # noqa: B023
        until(lambda: is_direct(here, there, 1), here, there)  # noqa: B023


@pytest.mark.parametrize("sandbox", ["own", "all"])
def test_case_p62_two_load_handler_and_requester_from_the_catalogue_and_go_live(
    sandbox: str, browser: Any, start_node: Callable[..., Node]
) -> None:
    node = start_node()
    chosen = {"stubs": "catalogue", "sandbox": sandbox}
    with (
        talker("chromium", browser, node, **chosen) as one,
        talker("chromium", browser, node, **chosen) as other,
    ):
        named = "hyperty-catalogue://catalogue.localhost/.well-known/protocolstub/p2p-requester"
        assert one.named["registration"]["p2pRequester"] == named
        come_together(one, other)
        assert states(one, other) == states(other, one) == ["created", "in-progress", "live"]
        before = count_of(node)
        for number in range(50):
            assert is_direct(one, other, number) and is_direct(other, one, number)
        assert count_of(node) == before
        assert one.do("faults") == other.do("faults") == []
        other.do("close")
        until(lambda: "disconnected" in states(one, other), one)


def test_case_p60_stubs_of_the_catalogue_talk_with_the_runtimes_own(
    browser: Any, node: Node
) -> None:
    with (
        talker("chromium", browser, node, stubs="catalogue") as one,
        talker("python", browser, node) as other,
    ):
        come_together(one, other)
        one.do("start", other.named["url"])
        until(lambda: other.do("heard")["byChannel"] > 100, one)
        said = one.do("stop")
        until(lambda: other.do("heard")["count"] >= said, one)
        heard = other.do("heard")
        assert heard["count"] == said and heard["isInOrder"]


@pytest.mark.parametrize("stubs", ["built-in", "catalogue"])
def test_case_p36_an_answer_whose_channel_has_closed_travels_from_stub_to_stub(
    stubs: str, browser: Any, start_node: Callable[..., Node]
) -> None:
    node = start_node(STRICT_RESPONSES="true")
    with (
        talker("chromium", browser, node, stubs=stubs) as one,
        talker("chromium", browser, node, stubs=stubs) as other,
    ):
        come_together(one, other)
        one.do("askSlowly", other.named["runtimeURL"])
        until(lambda: other.do("slow")["cameBy"], one, other)
        assert any(each in other.do("slow")["cameBy"][0] for each in DIRECT)
        before = counted(node, "msgnode_messages_total", 'type="execute"')
        assert other.do("closeAndAnswer") == "disconnected"
        until(lambda: one.do("slow")["answers"], one, other)
        answers = one.do("slow")["answers"]
        assert [(each["code"], each["value"]) for each in answers] == [(200, "late")]
        assert len(other.do("slow")["cameBy"]) == 1
        # `resume` of both, and `deliver`: a bare answer the node would have refused.
        assert counted(node, "msgnode_messages_total", 'type="execute"') >= before + 2
        assert counted(node, "msgnode_responses_unasked_total") == 0
        assert one.do("faults") == other.do("faults") == []
