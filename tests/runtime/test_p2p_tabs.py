"""Two tabs of one runtime URL, and a registry that tells no handler: cases P29 and P14."""

from __future__ import annotations

import pytest

from msgnode.runtime.python import Runtime, Settings
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from tests.node import Node

from .p2p_talkers import Talker, connect, on_loopback, talkers  # noqa: F401 (a fixture for all)
from .test_p2p_found import hyperty

pytestmark = pytest.mark.xdist_group("p2p")

PATIENT = P2PTimers(answer=30.0, set_up=60.0, fence=30.0, resume=30.0, ping=20.0, dead=60.0)
P2P = P2PSettings(timers=PATIENT)


async def test_case_p29_two_tabs_have_a_channel_each_and_answers_return_to_who_asked(
    node: Node,
) -> None:
    async with talkers(node, P2P, P2P) as (tab, bob):
        await connect(tab, bob)
        catalogues = {"localhost": f"http://127.0.0.1:{node.port}"}
        chosen = Settings("localhost", catalogues=catalogues, p2p=P2P)
        async with Runtime(chosen, url=tab.runtime.url) as runtime:
            assert await runtime.log_in() == "live"
            other = Talker(runtime)
            assert other.runtime.url == tab.runtime.url
            await connect(other, bob)
            assert tab.way_to(bob) is Way.CHANNEL
            live = [each for each in bob.p2p.connections if each.state == "live"]
            assert len(live) == 2 and {each.runtime for each in live} == {tab.runtime.url}
            for number in range(10):
                for one, value in ((tab, number), (other, 100 + number)):
                    answer = await one.ask(bob, value)
                    assert answer["value"] == value and "/p2prequester/" in answer["cameBy"]
            bob.say(tab, 7)  # what is no answer goes to the one that came last
            await other.until(lambda: other.numbers == [7])
            assert tab.numbers == []
        assert (await tab.ask(bob, 8))["value"] == 8 and tab.way_to(bob) is Way.CHANNEL


async def test_case_p29_a_tab_sets_up_connections_though_another_came_after_it(
    node: Node,
) -> None:
    async with talkers(node, P2P, P2P, P2P) as (tab, bob, carol):
        catalogues = {"localhost": f"http://127.0.0.1:{node.port}"}
        chosen = Settings("localhost", catalogues=catalogues, p2p=P2P)
        async with Runtime(chosen, url=tab.runtime.url) as runtime:
            assert await runtime.log_in() == "live"
            await connect(tab, bob)  # as requester
            invited = {"p2p": True, "p2pHandler": tab.p2p.handler}
            message = {"type": "update", "from": carol.url, "to": tab.url, "body": invited}
            carol.runtime.bus.post_message(message)  # and as handler, whom carol has named
            await tab.until(lambda: tab.way_to(carol) is Way.CHANNEL)
            assert runtime.p2p is not None and not runtime.p2p.known


async def test_case_p29_what_is_for_a_hyperty_of_a_tab_reaches_that_tab(node: Node) -> None:
    """Bob has a channel to either tab, and each request is answered by the one it is for."""
    async with talkers(node, P2P, P2P) as (tab, bob):
        catalogues = {"localhost": f"http://127.0.0.1:{node.port}"}
        async with Runtime(
            Settings("localhost", catalogues=catalogues, p2p=P2P), url=tab.runtime.url
        ) as runtime:
            assert await runtime.log_in() == "live"
            other = Talker(runtime)
            urls = [await hyperty(tab), await hyperty(other)]
            ways: list[dict[str, int]] = [{}, {}]
            for number in range(400):
                for url, ways_of in zip(urls, ways, strict=True):
                    message = {"type": "create", "from": bob.url, "to": url}
                    answer = await bob.runtime.bus.request({**message, "body": {"p2p": True}}, 60)
                    assert answer["body"]["code"] == 200, (number, answer)
                    way = "channel" if "/p2prequester/" in answer["body"]["cameBy"] else "node"
                    ways_of[way] = ways_of.get(way, 0) + 1
                if number == 20:
                    await bob.until(lambda: _live(bob) == 2)
            assert all(each["channel"] > 300 for each in ways), ways


async def test_what_is_below_a_runtime_url_is_dialled_too(node: Node) -> None:
    """Nobody has named a handler: the runtime itself tells it."""
    async with talkers(node, P2P, P2P) as (alice, bob):
        message = {"type": "create", "from": alice.url, "to": bob.url}
        asked = {**message, "body": {"value": 1, "p2p": True}}
        assert (await alice.runtime.bus.request(asked, 60))["body"]["code"] == 200
        await alice.until(lambda: alice.way_to(bob) is Way.CHANNEL)
        answer = await alice.runtime.bus.request(asked, 60)
        assert (
            "/p2phandler/" in answer["body"]["cameBy"]
            or "/p2prequester/" in answer["body"]["cameBy"]
        )
        assert alice.p2p.explain(bob.url, alice.url)[0] == "channel"


def _live(talker: Talker) -> int:
    return sum(each.state == "live" for each in talker.p2p.connections)


async def test_case_p14_where_the_registry_tells_no_handler_nobody_is_dialled(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        url = await hyperty(bob, is_told=False)
        for number in range(3):
            message = {"type": "create", "from": alice.url, "to": url}
            answer = await alice.runtime.bus.request({**message, "body": {"p2p": True}}, 60)
            assert "/protostub/" in answer["body"]["cameBy"], number
        assert not alice.states and not alice.p2p.known and not bob.by_channel
