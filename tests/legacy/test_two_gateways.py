"""Two nodes whose gateways are each other's network, behind one real server: nothing goes round.

What a gateway does with one such message is in test_xmpp and test_sip, case 23 and case 52.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.client import Client, code
from tests.federation.nodes import B
from tests.issuer import Issuer, enter
from tests.node import running

from . import fake_xmpp
from . import kamailio as sip
from .fake_proxy import SDP
from .prosody import prosody
from .test_kamailio import call, final
from .test_prosody import A, World, say

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
OTHERS = {"xmpp": "gw-b.legacy.example", "sip": "gw-b.sip.example"}
"""The domain that users of the second node have at the server."""
COMPONENT = f'\nComponent "{OTHERS["xmpp"]}"\n    component_secret = "{fake_xmpp.SECRET}"\n'
SPIRAL = '    if ($rU == "spiral") { $du = "sip:127.0.0.1:5060"; route(RELAY); exit; }\n'
ROUTES = """    if ($rd == "gw.sip.example" || $rd == "gw-b.sip.example") {
        $var(user) = $rU;
        $var(at) = "sip:gateway@gw-b.sip.example";
        if ($rd == "gw.sip.example") { $var(at) = "sip:gateway@gw.sip.example"; }
        if ($rU != "mirror") {
            $var(at) = "sip:gateway@gw.sip.example";
            if ($rd == "gw.sip.example") { $var(at) = "sip:gateway@gw-b.sip.example"; }
        }
        if (!lookup("location", "$var(at)")) { sl_send_reply("480", "The node is away"); exit; }
        $rU = $var(user);
        route(RELAY);
        exit;
    }
"""
"""Each gateway is an account of the domain that is its network. Two names stand for mistakes of an
operator: what is for `mirror` goes back to who sends it, what is for `spiral` to the proxy."""


def lines() -> str:
    """The configuration of a proxy with two gateways."""
    text = sip.CONFIGURATION.read_text()
    text = text.replace("request_route {", 'modparam("usrloc", "use_domain", 1)\n'
                        "request_route {")  # fmt: skip
    text = text.replace(
        '    if (is_method("REGISTER")) {', SPIRAL + '    if (is_method("REGISTER")) {'
    )
    text = text.replace('$fd == "gw.sip.example"', '$fd =~ "^gw"')
    return text.replace(
        '    if ($rd == "gw.sip.example") {', f'{ROUTES}    if ($rd == "none") {{', 1
    )


class Pair(NamedTuple):
    """The worlds of the two nodes: the network of each is the other."""

    scheme: str
    one: World
    other: World

    async def live(self) -> None:
        await self.one.live()
        await self.other.live()

    def address(self, world: World, name: str, of: str) -> str:
        """How a world's users write to a user who is of a domain, at the other gateway."""
        if self.scheme == "xmpp":
            return f"xmpp://{world.domain}/{name}%25{of}"
        return f"sip://{world.domain}/{name}@{of}@{world.domain}"


@pytest.fixture(scope="module", params=["xmpp", "sip"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, template: Path
) -> Iterator[Pair]:
    scheme, place = request.param, tmp_path_factory.mktemp("pair")
    of_it: Any = sip if scheme == "sip" else fake_xmpp
    (place / "secret").write_text(of_it.SECRET)
    domains = {A: of_it.GATEWAY, B: OTHERS[scheme]}
    with ExitStack() as stack:
        if scheme == "sip":
            server: Any = stack.enter_context(sip.kamailio(place / "server", lines()))
        else:
            server = stack.enter_context(prosody(place / "server", more=COMPONENT))
        port = server.port if scheme == "sip" else server.component_port
        worlds = []
        for own, its, others in ((A, domains[A], domains[B]), (B, domains[B], domains[A])):
            issuer = Issuer(own)
            stack.callback(issuer.stop)
            rows = place / f"{own}.sqlite3"
            shutil.copy(template, rows)
            enter(rows, issuer.row())
            settings: dict[str, Any] = {"DOMAIN": own, "FEDERATION": "listed"}
            node = stack.enter_context(running(place / own, rows, **settings))
            node.manage("peers", "add", others, f"--{scheme}", f"127.0.0.1:{port}",
                        "--component", its, "--secret", str(place / "secret"))  # fmt: skip
            worlds.append(World(node, server, issuer, others, own))
        yield Pair(scheme, *worlds)


def counted(world: World) -> dict[str, int]:
    """What has become of the messages to and from a network, by its metrics."""
    found = re.findall(
        rf'^msgnode_peer_messages_total{{outcome="(\w+)",peer="{world.domain}"}} (\d+)',
        world.node.text("/metrics?worker=this"), re.M,
    )  # fmt: skip
    assert found
    return {outcome: int(value) for outcome, value in found if int(value)}


def since(before: dict[str, int], world: World) -> dict[str, int]:
    """What was counted meanwhile."""
    grown = {each: now - before.get(each, 0) for each, now in counted(world).items()}
    return {each: number for each, number in grown.items() if number}


async def says(client: Client, frame: Any, code: int = 200) -> None:
    """Answer a request."""
    head = {"id": frame["id"], "sender": frame["to"]}
    await client.send("response", frame["from"], {"code": code}, **head)


async def exchanged(pair: Pair, alice: Client, carol: Client, text: str) -> None:
    """A message there and one back each arrive, and nothing else has arrived before."""
    asked = await say(alice, text, pair.address(pair.one, "carol", B))
    frame = await carol.expect(type="create")
    assert (frame["to"], frame["body"]["value"]["content"]) == (carol.user, text)
    await says(carol, frame)
    assert code(await alice.answer(asked)) == 200
    asked = await say(carol, f"{text}, too", frame["from"])
    frame = await alice.expect(type="create")
    assert (frame["to"], frame["body"]["value"]["content"]) == (alice.user, f"{text}, too")
    await says(alice, frame)
    assert code(await carol.answer(asked)) == 200


async def test_case_23_a_message_to_a_user_of_the_other_node_arrives_once_and_can_be_answered(
    pair: Pair,
) -> None:
    await pair.live()
    async with pair.one.alice() as alice, pair.other.alice("carol") as carol:
        await exchanged(pair, alice, carol, "first")  # each knows the other's hyperty from now on
        before = counted(pair.one), counted(pair.other)
        for number in range(3):
            await exchanged(pair, alice, carol, f"hi {number}")
        for world, was in zip((pair.one, pair.other), before, strict=True):
            assert since(was, world) == {"sent": 3, "received": 6}  # half of them are answers


async def test_case_23_52_a_user_who_maps_back_to_where_a_message_began_ends_it(
    pair: Pair,
) -> None:
    await pair.live()
    async with pair.one.alice() as alice, pair.other.alice("carol") as carol:
        await exchanged(pair, alice, carol, "first")  # each knows the other's hyperty from now on
        before = counted(pair.one), counted(pair.other)
        for name in ("alice", "dora"):  # of the first node, one of whom is there
            answer = await alice.answer(await say(alice, "?", pair.address(pair.one, name, A)))
            assert code(answer) == 404
            assert name in answer["body"]["description"]
        ends = {"mirror": "482", "spiral": "483"} if pair.scheme == "sip" else {}
        for name, why in ends.items():
            to = f"sip://{pair.one.domain}/{name}"
            answer = await alice.answer(await say(alice, "?", to))
            assert code(answer) == 502
            assert why in answer["body"]["description"]
        await exchanged(pair, alice, carol, "after")
        one, other = since(before[0], pair.one), since(before[1], pair.other)
        assert other == {"sent": 1, "received": 2, "refused": 2}
        assert one.get("refused", 0) == ("mirror" in ends)  # which came back to it
        assert one["sent"] == 3 + len(ends)


async def test_case_24_35_a_call_to_a_user_of_the_other_node_is_one_call_and_ends(
    pair: Pair,
) -> None:
    await pair.live()
    async with pair.one.alice() as alice, pair.other.alice("carol") as carol:
        to = pair.address(pair.one, "carol", B)
        id_ = await call(alice, to, SDP)
        create = await carol.expect(type="create")
        value = {"connectionDescription": {"type": "answer", "sdp": SDP}, "iceCandidates": []}
        head = {"id": create["id"], "sender": create["to"]}
        await carol.send("response", create["from"], {"code": 200, "value": value}, **head)
        answer = await final(alice, id_)
        assert code(answer) == 200, answer
        body = {"resource": answer["body"]["resource"]}
        assert code(await alice.ask("delete", to, body, sender=alice.user)) == 200
        await carol.expect(type="delete")
        busy = await alice.answer(await say(alice, "?", pair.address(pair.one, "alice", A)))
        assert code(busy) == 404
