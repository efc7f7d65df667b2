"""Direct connections of browsers, with one another and with Python, over a running node.

Browsers hold the thread's event loop: this module has no async tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.length import length
from tests.node import Node

from .p2p_pages import PATIENT, Talker, ask, browser, connect, count_of, talker, until, ways
from .p2p_relay import relay

__all__ = ["browser"]
pytest.importorskip("aiortc")
pytestmark = pytest.mark.xdist_group("p2p")

PAIRS = [("chromium", "chromium"), ("chromium", "python"), ("python", "chromium")]
ALERT = {"ping": 1.0, "dead": 4.0}


def channels_of(one: Talker) -> int:
    """How many channels have been live so far."""
    return [word for _, word, _ in one.do("states")].count("live")


def channel_again(one: Talker, other: Talker, live: int) -> None:
    """Wait for the end of the channel, and for another after it, which a message asks for.

    `live` is how many channels there had been before the end.
    """

    def is_new() -> bool:
        return channels_of(one) > live

    until(lambda: is_new() or ways(one, other) == ["node", "node"], one, other)
    wanted = {"p2p": True, "p2pHandler": other.named["handler"], "p2pRequester": "x"}
    assert ask(one, other, 0, **wanted)["value"] == 0
    until(lambda: is_new() and ways(one, other) == ["channel", "channel"], one, other)


def five_ends(one: Talker, other: Talker, least: int) -> None:
    """Both say numbers while their channel ends five times, thrice in silence; all arrive."""
    pairs = ((one, other), (other, one))
    for here, there in pairs:
        here.do("start", there.named["url"])
    connect(one, other)
    began = time.monotonic()
    for number in range(5):
        heard = [each.do("heard")["byChannel"] for each in (one, other)]
        until(
            lambda: all(
                each.do("heard")["byChannel"] > count + 100
                for each, count in zip((one, other), heard, strict=True)  # noqa: B023
            )
        )
        live = channels_of(one)
        if number % 2 == 0:
            for each in (one, other):
                each.do("cut")
        else:
            one.do("bye", other.named["runtimeURL"], "closing")
        channel_again(one, other, live)
    until(lambda: all(each.do("heard")["count"] >= least for each in (one, other)))
    said = {id(here): here.do("stop") for here, _ in pairs}
    for here, there in pairs:
        until(lambda: there.do("heard")["count"] >= said[id(here)])  # noqa: B023
        heard_at_last = there.do("heard")
        assert heard_at_last["count"] == said[id(here)] >= least
        assert heard_at_last["isInOrder"]
    resent = sum(here.do("resent", there.named["runtimeURL"]) for here, there in pairs)
    assert resent > 0
    took = time.monotonic() - began
    print(f"{sum(said.values())} messages, {resent} sent again, {took:.0f} s")


@pytest.mark.long
@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_case_p60_two_come_together_and_the_node_hears_no_more_of_them(
    kinds: tuple[str, str], browser: Any, start_node: Callable[..., Node], record_property: Any
) -> None:
    node = start_node()
    with talker(kinds[0], browser, node) as one, talker(kinds[1], browser, node) as other:
        by_node = [ask(one, other, number) for number in range(30)]
        assert all("/protostub/" in each["cameBy"] for each in by_node)
        took = connect(one, other)
        record_property("live_ms", took)
        by_channel = [ask(one, other, number) for number in range(30)]
        times = [median(each["took"] for each in way) for way in (by_node, by_channel)]
        record_property("round_trips_ms", times)
        print(f"live after {took:.0f} ms; round trips of {times[0]:.2f} ms by node, "
              f"{times[1]:.2f} ms by channel")  # fmt: skip
        assert took < 20_000  # the benchmark holds the tight bound
        before = count_of(node)
        for number in range(100):
            for here, there in ((one, other), (other, one)):
                answer = ask(here, there, number)
                assert answer["value"] == number and "/p2prequester/" in answer["cameBy"]
        assert count_of(node) == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "least"),
    [
        (PAIRS[0], length(2_000, full=10_000)),
        (PAIRS[1], length(400, full=1_000)),
        (("python", "python"), length(2_000, full=10_000)),
    ],
    ids=str,
)
def test_cases_p31_p32_and_p33_each_number_arrives_once_and_in_order_though_five_channels_end(
    kinds: tuple[str, str], least: int, browser: Any, node: Node
) -> None:
    with (
        talker(kinds[0], browser, node, ALERT) as one,
        talker(kinds[1], browser, node, ALERT) as other,
    ):
        five_ends(one, other, least)


@pytest.mark.long
def test_case_p2_a_browser_without_webrtc_goes_on_through_the_node(
    browser: Any, node: Node
) -> None:
    with (
        talker("chromium", browser, node) as one,
        talker("chromium", browser, node, webrtc=False) as other,
    ):
        assert other.named["handler"] == "" and other.named["registration"] is None
        for here, there in ((one, other), (other, one)):
            for number in range(5):
                answer = ask(here, there, number, p2p=True)
                assert answer["value"] == number and "/protostub/" in answer["cameBy"]
        assert one.do("states") == []


@pytest.mark.long
def test_case_p56_a_page_that_closes_is_noticed_and_messages_go_by_node(
    browser: Any, node: Node
) -> None:
    with talker("chromium", browser, node, {"ping": 0.5, "dead": 2.0, "resume": 2.0}) as one:
        with talker("chromium", browser, node, PATIENT) as other:
            connect(one, other)
        began = time.monotonic()
        runtime = other.named["runtimeURL"]
        until(lambda: one.do("way", runtime) == "node", one)
        assert time.monotonic() - began < 40  # a machine that is starved is late
        until(lambda: [runtime, "disconnected"] in [each[:2] for each in one.do("states")], one)


def test_cases_p57_and_p62_a_runtime_that_closes_says_bye_its_protostub_in_a_sandbox_or_not(
    browser: Any, node: Node
) -> None:
    with (
        talker("chromium", browser, node) as one,
        talker("chromium", browser, node, sandbox="all") as other,
    ):
        assert other.page.locator("iframe[sandbox]").count() == 1  # type: ignore[attr-defined]
        connect(one, other)
        other.do("close")
        until(lambda: one.do("way", other.named["runtimeURL"]) == "node", one)
        assert one.do("faults") == []


@pytest.mark.long
def test_case_p26_both_invite_at_once_many_times_and_one_connection_comes_about(
    browser: Any, node: Node
) -> None:
    with talker("chromium", browser, node) as one:
        options = {
            "domain": "localhost",
            "catalogues": {"localhost": f"http://127.0.0.1:{node.port}"},
            "p2p": {"timers": {name: 1000 * each for name, each in PATIENT.items()}},
        }
        for _ in range(length(3, full=10)):
            found = one.page.evaluate(  # type: ignore[attr-defined]
                """async (options) =>
                    (await import("/tests/runtime/p2p.mjs")).glare(options, 10)""",
                options,
            )
            assert len(found) == 10
            for pair in found:
                assert pair["isOpen"] and pair["heard"] and pair["faults"] == [], pair
                assert "failed" not in pair["words"] and pair["words"].count("live") == 2


@pytest.mark.long
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_case_p61_a_browser_and_python_come_together_over_a_relay_alone(
    transport: str, browser: Any, node: Node, tmp_path: Path
) -> None:
    with relay(tmp_path, "--allow-loopback-peers") as server:
        way = {**server, "urls": f"{server['urls']}?transport={transport}"}
        with (
            talker("chromium", browser, node, relay=way) as one,
            talker("python", browser, node, relay=way) as other,
        ):
            connect(one, other)
            for here, there in ((one, other), (other, one)):
                assert "/p2prequester/" in ask(here, there, 1)["cameBy"]


@pytest.mark.long
@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    ("count", "seconds"), [(400, 8), (2000, 180)], ids=["short", "three minutes"]
)
@pytest.mark.parametrize(("tab", "asker"), [("chromium", "python"), ("python", "chromium")])
def test_case_p29_none_of_many_requests_to_two_tabs_is_lost(
    tab: str, asker: str, count: int, seconds: int, browser: Any, node: Node
) -> None:
    """Tabs of one runtime URL, each with a hyperty: they are asked in turn, over a channel each."""
    with (
        talker(tab, browser, node) as first,
        talker(tab, browser, node, runtimeURL=first.named["runtimeURL"]) as second,
        talker(asker, browser, node) as third,
    ):
        assert first.named["handler"] != second.named["handler"]
        both = [("first", first.do("hyperty", "first")), ("second", second.do("hyperty", "second"))]
        said = third.do("askInTurn", both, count, seconds)
        print(tab, asker, said["ways"], f"{said['took'] / count:.1f} ms each")
        assert said["wrong"] == []
        assert sum(said["ways"].values()) == count
        assert said["ways"]["channel"] > 0.7 * count, said["ways"]
        said = third.do("askInTurn", both, 4, 0, False)
        assert said["wrong"] == [] and said["ways"] == {"node": 4}, "nobody knows who this is"
