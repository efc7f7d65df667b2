"""The gateway of a real node at a real prosody, whose users are real clients (slixmpp).

Each test of the small server's behaviour that matters is shown with this one, too.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import psutil
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack
from playwright.async_api import async_playwright
from websockets.exceptions import ConnectionClosed

from msgnode.legacy.descriptions import Description, description_in
from msgnode.legacy.jingle import from_jingle, info_of, to_jingle
from msgnode.legacy.xmpp_stream import tag
from msgnode.runtime.python import Runtime, Settings, SyncError, Syncher
from tests.client import Client, code
from tests.federation.nodes import until_row
from tests.issuer import Issuer, enter
from tests.length import length
from tests.node import ROOT, Node, eventually, running
from tests.stubs.conftest import FLAGS
from tests.stubs.runtimes import node_js

from .fake_xmpp import DOMAIN, GATEWAY, SECRET
from .prosody import User, prosody, user
from .test_jingle import AUDIO, element_of, lines_of
from .test_xmpp_calls import ANSWER, FIRST, OFFER

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
A = "a.example"
ALICE, BOB = f"user://{A}/alice@{A}", f"xmpp://{DOMAIN}/bob"
REGISTRY = f"domain://registry.{A}"
JAVASCRIPT = ROOT / "msgnode" / "runtime" / "js" / "src" / "node.js"


class World:
    """A node with a network, its server, and who gives identities."""

    def __init__(
        self, node: Node, server: Any, issuer: Issuer, domain: str = DOMAIN, own: str = A
    ) -> None:
        self.node, self.server, self.issuer, self.domain = node, server, issuer, domain
        self.own = own

    async def live(self) -> None:
        await until_row(self.node, lambda row: row["state"] == "live", self.domain)

    @asynccontextmanager
    async def alice(self, name: str = "alice") -> AsyncIterator[Client]:
        """A runtime of hers, logged in, with a hyperty that is registered."""
        client = Client(f"ws://127.0.0.1:{self.node.port}/ws")
        await client.connect()
        await client.open(f"runtime://{self.own}/{name}")
        login = {"method": "login", "params": {"token": self.issuer.token(name)}}
        assert code(await client.ask("execute", f"domain://idm.{self.own}", login)) == 200
        allocation = f"domain://msg-node.{self.own}/address-allocation"
        body = {"scheme": "hyperty", "value": {"number": 1}}
        answer = await client.ask("create", allocation, body)
        client.user = answer["body"]["value"]["allocated"][0]
        user = f"user://{self.own}/{name}@{self.own}"
        entry = {"url": client.user, "user": user, "expires": 3600,
                 "resources": ["chat"], "dataSchemes": ["comm"], "status": "live",
                 "descriptor": f"hyperty-catalogue://{self.own}/.well-known/hyperty/Chat",
                 "runtime": client.runtime_url}  # fmt: skip
        said = await client.ask("create", f"domain://registry.{self.own}", {"value": entry})
        assert code(said) == 200, said["body"]
        try:
            yield client
        finally:
            with suppress(ConnectionClosed):  # the test may have closed it
                await client.close_session()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[World]:
    issuer = Issuer(A)
    place = tmp_path_factory.mktemp("legacy")
    rows = place / "rows.sqlite3"
    shutil.copy(template, rows)
    enter(rows, issuer.row())
    settings: dict[str, Any] = {"DOMAIN": A, "FEDERATION": "listed"}
    with prosody(place / "prosody") as server, running(place / "node", rows, **settings) as node:
        (place / "secret").write_text(f"{SECRET}\n")
        node.manage(
            "peers", "add", DOMAIN, "--xmpp", f"127.0.0.1:{server.component_port}",
            "--component", GATEWAY, "--secret", str(place / "secret"), "--per-minute", "1000000",
            "--pool", "20", "--trusted",
        )  # fmt: skip
        yield World(node, server, issuer)
        assert node.is_running(), node.log()
    issuer.stop()


async def _answer_all(client: Client, texts: list[str]) -> None:
    while True:
        frame = await client.receive()
        if frame["type"] == "create":
            texts.append(frame["body"]["value"]["content"])
            head = {"id": frame["id"], "sender": frame["to"]}
            await client.send("response", frame["from"], {"code": 200}, **head)


@asynccontextmanager
async def answering(client: Client) -> AsyncIterator[list[str]]:
    """Answer every request that comes meanwhile; the texts of these."""
    texts: list[str] = []
    task = asyncio.create_task(_answer_all(client, texts))
    try:
        yield texts
    finally:  # also of a test that fails: nobody else may read the socket before
        task.cancel()
        await asyncio.wait([task])


FIND = """
import { Runtime } from "%s";
const [options, user] = process.argv.slice(1).map(JSON.parse);
const runtime = new Runtime(options);
console.log(JSON.stringify(await runtime.find({ user })));
await runtime.close();
"""


async def found_by_both(world: World, user: str) -> list[list[str]]:
    """What `find` of the runtime in Python gives for a user, and that of the one in JavaScript."""
    catalogues = {world.own: f"http://127.0.0.1:{world.node.port}"}
    async with Runtime(Settings(world.own, catalogues=catalogues)) as runtime:
        by_python = await runtime.find(user=user)
    options = {"domain": world.own, "catalogues": catalogues}
    process = await asyncio.create_subprocess_exec(
        *node_js(), "--input-type=module", "-e", FIND % JAVASCRIPT.as_uri(),
        json.dumps(options), json.dumps(user), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        by_javascript, _ = await process.communicate()
    return [by_python, json.loads(by_javascript)]


async def say(client: Client, text: str, to: str = BOB, **body: Any) -> Any:
    """Send a chat message; the id of the request."""
    value = {"value": {"type": "chat", "content": text}}
    return await client.send("create", to, value | body, sender=client.user)


async def codes(client: Client, ids: list[Any]) -> list[int]:
    """What became of several messages."""
    async with asyncio.timeout(120):
        answers = [await client.answer(id_) for id_ in ids]
    print({each["body"].get("description") for each in answers if code(each) >= 400})
    return [code(each) for each in answers]


async def test_case_1_2_4_messages_pass_both_ways_and_the_server_says_who_wrote(
    world: World,
) -> None:
    await world.live()
    async with world.alice() as alice, user(world.server) as bob:
        assert await codes(alice, [await say(alice, "hi Bob")]) == [200]
        (message,) = await bob.until(lambda bob: bob.taken)
        assert (message["body"], str(message["from"])) == ("hi Bob", f"alice%{A}@{GATEWAY}")
        bob.write("hello Alice", asks=True, **{"from": f"carol@{DOMAIN}/phone"})
        frame = await alice.expect(type="create")  # case 2: he is bob, whatever he writes
        assert (frame["from"], frame["to"]) == (BOB, alice.user)
        assert frame["body"]["value"] == {"type": "chat", "content": "hello Alice"}
        assert frame["body"]["assertedIdentity"] is True  # case 57: the network is trusted
        head = {"id": frame["id"], "sender": alice.user}
        await alice.send("response", frame["from"], {"code": 200}, **head)
        receipt = await bob.until(lambda bob: bob.receipts)
        assert str(receipt[0]["from"]) == f"alice%{A}@{GATEWAY}"  # case 1
        gone = await codes(alice, [await say(alice, "to another one", f"{BOB}/gone")])
        assert gone == [200]  # case 4
        await bob.until(lambda bob: "to another one" in bob.texts)


@pytest.mark.parametrize("name", ["nobody", "nobody/phone"])
async def test_case_3_an_unknown_user_is_404_named_and_not_found(world: World, name: str) -> None:
    await world.live()
    async with world.alice() as alice:
        asked = {"resource": f"/hyperty/idp-identifier/nobody@{DOMAIN}"}
        assert code(await alice.ask("read", f"domain://registry.{DOMAIN}", asked)) == 404
        answer = await alice.answer(await say(alice, "hi", f"xmpp://{DOMAIN}/{name}"))
        assert code(answer) == 404
        assert f"nobody@{DOMAIN}" in answer["body"]["desc"]


async def test_case_13_each_side_sees_the_other_come_and_go(world: World) -> None:
    await world.live()
    status = f"{BOB}/status"
    async with world.alice() as alice, user(world.server) as bob:
        bob.send_presence_subscription(f"alice%{A}@{GATEWAY}")
        await bob.until(lambda bob: f"alice%{A}@{GATEWAY}" in there(bob))
        sm = f"domain://msg-node.{A}/sm"
        answer = await alice.ask("subscribe", sm, {"resources": [status]})
        assert code(answer) == 200, answer["body"]
        while (await alice.expect(type="update", to=status))["body"]["value"] != "live":
            pass  # until he has agreed he is not there
        asked = {"resource": f"/hyperty/idp-identifier/bob@{DOMAIN}"}
        found = await alice.ask("read", f"domain://registry.{DOMAIN}", asked)
        assert list(found["body"]["value"]) == [BOB]
        assert await found_by_both(world, BOB) == [[BOB], [BOB]]
        async with world.alice("carl"):
            pass  # another user here changes nothing
        since = time.monotonic()
        await alice.close_session()
        await bob.until(lambda bob: f"alice%{A}@{GATEWAY}" not in there(bob), 10.0)
        print(f"her absence was seen there after {time.monotonic() - since:.2f} s")
    async with world.alice("other") as other:
        answer = await other.ask("subscribe", sm, {"resources": [status]})
        assert code(answer) == 200, answer["body"]
        async with user(world.server):
            await other.expect(type="update", to=status)


def there(bob: User) -> set[str]:
    """Who of the other side is there, as his client has it."""
    roster: Any = bob.client_roster
    return {str(name) for name in roster if roster.presence(name)}


async def test_case_24_calls_pass_both_ways_with_their_candidates_and_end(world: World) -> None:
    await world.live()
    ours = f"alice%{A}@{GATEWAY}/node"
    async with world.alice() as alice, user(world.server) as bob:
        bob.jingle("session-initiate", ours, "s1", *to_jingle(OFFER, "initiator"))
        create = await alice.expect(type="create")
        assert lines_of(description_in(create["body"]["value"]).sdp) == lines_of(AUDIO)
        head = {"id": create["id"], "sender": alice.user}
        await alice.send("response", BOB, {"code": 100}, **head)
        await bob.action("session-info")
        await alice.send("response", BOB, {"code": 200, "value": ANSWER.value}, **head)
        accept, _ = await bob.action("session-accept")
        heard = from_jingle(element_of(Xml.tostring(accept, "unicode")), "responder", AUDIO)
        assert lines_of(heard.sdp) == lines_of(ANSWER.sdp)
        bob.jingle("transport-info", ours, "s1", info_of("0", "abcd", "pw", FIRST))
        update = await alice.expect(type="update")
        assert update["body"]["value"] == FIRST.value  # case 25
        bob.jingle("session-terminate", ours, "s1", "<reason><success/></reason>")
        assert (await alice.expect(type="delete"))["from"] == BOB

        id_ = await alice.send("create", f"{BOB}/phone", {"value": OFFER.value}, sender=alice.user)
        _, iq = await bob.action("session-initiate")
        sid = iq.xml[0].get("sid")
        bob.jingle("session-accept", str(iq["from"]), sid, *to_jingle(ANSWER, "responder"))
        while code(answer := await alice.answer(id_)) == 100:
            pass
        assert code(answer) == 200, answer["body"]
        assert lines_of(description_in(answer["body"]["value"]).sdp) == lines_of(ANSWER.sdp)
        gone = await alice.ask("delete", f"{BOB}/phone", {}, sender=alice.user)
        assert code(gone) == 200
        await bob.action("session-terminate")


async def test_a_visitor_of_the_page_writes_to_an_xmpp_user_and_calls_him_with_sound(
    world: World, chromium: str
) -> None:
    await world.live()
    fake = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    async with async_playwright() as play, user(world.server) as bob:
        browser = await play.chromium.launch(executable_path=chromium, args=[*FLAGS, *fake])
        page = await browser.new_page(permissions=["microphone"])
        page.set_default_timeout(30_000)
        await page.goto(f"http://localhost:{world.node.port}/?with=xmpp:bob@{DOMAIN}")
        await page.fill("#line", "hello from the page")
        await page.click("#write button")
        await bob.until(lambda bob: "hello from the page" in bob.texts)
        guest = str(bob.taken[-1]["from"])
        bob.make_message(guest, "hello back", mtype="chat").send()
        await page.wait_for_selector("#said li:has-text('hello back')")

        await page.click("#dial button")
        initiate, iq = await bob.action("session-initiate")
        sid = initiate.get("sid")
        offer = from_jingle(element_of(Xml.tostring(initiate, "unicode")), "initiator")
        peer = RTCPeerConnection(RTCConfiguration([]))
        heard: asyncio.Queue[Any] = asyncio.Queue()
        peer.on("track", heard.put_nowait)
        peer.addTrack(AudioStreamTrack())
        await peer.setRemoteDescription(RTCSessionDescription(offer.sdp, "offer"))
        await peer.setLocalDescription(await peer.createAnswer())
        answer = to_jingle(Description("answer", peer.localDescription.sdp), "responder")
        bob.jingle("session-accept", str(iq["from"]), sid, *answer)
        async with asyncio.timeout(60):
            track = await heard.get()
            while (await track.recv()).to_ndarray().max() < 1_000:
                pass  # until the beep is heard
        await page.wait_for_selector("#call-says:has-text('You are talking')")
        bob.jingle("session-terminate", str(iq["from"]), sid, "<reason><success/></reason>")
        await page.wait_for_selector("#call-says:has-text('has ended')")
        await peer.close()
        await browser.close()


async def test_case_14_15_a_room_is_a_data_object_with_one_order_and_ends_as_it_does(
    world: World,
) -> None:
    await world.live()
    room = f"picnic@rooms.{DOMAIN}"
    url = f"comm://{DOMAIN}/{room}"
    urls = {A: f"http://127.0.0.1:{world.node.port}"}
    settings = Settings(A, routing={DOMAIN: "node"}, catalogues=urls)
    async with user(world.server) as bob, Runtime(settings) as one, Runtime(settings) as two:
        bob.enter(room, "host")
        bob.rule(room, "muc#owner", tag("x", {"xmlns": "jabber:x:data", "type": "submit"}))
        synchers = [Syncher(one), Syncher(two)]
        copies = [await each.subscribe(url) for each in synchers]
        for number in range(10):
            bob.make_message(room, f"bob {number}", mtype="groupchat").send()
            value = {"type": "chat", "content": f"ours {number}"}
            await asyncio.gather(*(copy.add_child(value) for copy in copies))
        await bob.until(lambda bob: len(bob.said_in(room)) == 30)
        heard = [[child.value["content"] for child in copy.children] for copy in copies]
        assert heard[0] == bob.said_in(room)[-len(heard[0]) :]
        assert heard[1] == bob.said_in(room)[-len(heard[1]) :]
        assert len(heard[0]) == len(heard[1]) == 30
        assert len(set(copies[0].data["participants"])) == 3
        await copies[1].unsubscribe()
        await bob.until(lambda _: len(copies[0].data["participants"]) == 2)
        with pytest.raises(SyncError):
            await copies[1].add_child({"content": "who has left says nothing"})

        gone = asyncio.Event()
        copies[0].on_status(lambda _: gone.set())
        name = next(each for each in copies[0].data["participants"] if each != "host")
        bob.rule(room, "muc#admin", tag("item", {"nick": name, "role": "none"}))
        await asyncio.wait_for(gone.wait(), 10.0)
        assert copies[0].status == "ended"
        guest = f"{name}@{GATEWAY}"
        bob.rule(room, "muc#admin", tag("item", {"jid": guest, "affiliation": "outcast"}))
        with pytest.raises(SyncError) as refused:
            await synchers[0].subscribe(url)
        assert refused.value.code == 403
        copy, gone = await synchers[1].subscribe(url), asyncio.Event()
        copy.on_status(lambda _: gone.set())
        bob.rule(room, "muc#owner", tag("destroy"))
        await asyncio.wait_for(gone.wait(), 10.0)
        assert copy.status == "ended"


async def test_case_56_a_policy_stops_what_comes_from_there_and_he_is_told(
    world: World, tmp_path: Path
) -> None:
    await world.live()

    def enforce(scheme: str) -> None:
        what = {"and": [{"peerWay": {"equals": "legacy"}}, {"srcScheme": {"equals": scheme}},
                        {"not": {"actionType": {"equals": "response"}}}]}  # fmt: skip
        rule = {"id": "legacy", "effect": "deny", "condition": what}
        policy = {"id": "legacy", "target": {}, "rules": [rule]}
        (tmp_path / "rules").write_text(json.dumps([{"id": "legacy", "policies": [policy]}]))
        world.node.manage("policy_import", str(tmp_path / "rules"), "--replace", "--mode",
                          "enforce", "--publish")  # fmt: skip

    def refused(bob: User) -> list[Any]:
        return [each["error"]["condition"] for each in bob.taken if each["type"] == "error"]

    async with world.alice() as alice, user(world.server) as bob:
        try:
            await asyncio.to_thread(enforce, "xmpp")
            async with asyncio.timeout(20):
                while not refused(bob):
                    bob.write("may I?")
                    await eventually()
            assert set(refused(bob)) == {"forbidden"}
            assert await codes(alice, [await say(alice, "you may not")]) == [200]
            await bob.until(lambda bob: "you may not" in bob.texts)
        finally:
            await asyncio.to_thread(enforce, "sip")  # another network's


async def test_case_6_a_server_that_is_killed_amid_messages_loses_none(world: World) -> None:
    await world.live()
    number = length(600, 1_600)  # the queue has room for 1,000
    async with world.alice() as alice, user(world.server) as bob:
        ids = [await say(alice, f"m{each}") for each in range(number // 2)]
        await bob.until(lambda bob: len(bob.texts) > number // 4)
        world.server.stop(signal.SIGKILL)
        ids += [await say(alice, f"m{each}") for each in range(number // 2, number)]
        world.server.start()
        assert set(await codes(alice, ids)) == {200}
        await bob.until(lambda bob: len(set(bob.texts)) == number)
        print(f"{len(bob.texts) - number} of {number} came twice")
        assert list(dict.fromkeys(bob.texts)) == [f"m{n}" for n in range(number)]


async def test_case_7_a_frozen_server_is_waited_for_and_then_answered_504(world: World) -> None:
    await world.live()
    async with world.alice() as alice, user(world.server) as bob:
        world.server.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        waits = await say(alice, "waits")
        stored = await say(alice, "stored", store=True)
        late = [code(await alice.answer(waits))]
        took = time.monotonic() - began
        assert late == [504]
        assert 9.0 < took < 25.0
        world.server.send_signal(signal.SIGCONT)
        await world.live()
        while code(answer := await alice.answer(stored)) == 100:
            pass
        assert code(answer) == 200
        assert await codes(alice, [await say(alice, "after")]) == [200]
        await bob.until(lambda bob: {"stored", "after"} <= set(bob.texts))


async def test_case_21_a_client_that_reads_nothing_holds_nobody_else_back(world: World) -> None:
    await world.live()
    number, portion, size = length(120, 1_200), 20, 50_000  # 6 MB, or 60
    process = psutil.Process(world.node.pid)

    async def took(client: Client) -> float:
        began = time.monotonic()
        assert await codes(client, [await say(client, "quick", f"xmpp://{DOMAIN}/carol")]) == [200]
        return time.monotonic() - began

    async with (
        world.alice() as alice, world.alice("carl") as carl, user(world.server) as bob,
        user(world.server, "carol") as carol,
    ):  # fmt: skip
        usual = statistics.median([await took(carl) for _ in range(20)])
        transport: Any = bob.transport
        transport.pause_reading()
        sizes, times, said = [], [], []
        for _ in range(0, number, portion):
            ids = [await say(alice, "x" * size) for _ in range(portion)]
            times += [await took(carl) for _ in range(5)]
            said += await codes(alice, ids)
            sizes.append(process.memory_info().rss)
        print({n: said.count(n) for n in set(said)}, [n >> 20 for n in sizes],
              f"all {usual * 1e3:.0f}, then {statistics.median(times) * 1e3:.0f} ms")  # fmt: skip
        assert set(said) <= {200, 429, 503}
        assert max(sizes) - sizes[1] < 16 * 1024 * 1024
        transport.resume_reading()
        await bob.until(lambda bob: len(bob.texts) >= said.count(200))
        assert len(carol.texts) == 20 + len(times)


def figures(way: str, number: int, began: float, cpu: Any, process: psutil.Process) -> None:
    """Print what the whole node takes, with the bus, policies and the runtime's socket.

    What the gateway itself takes is in test_costs.py.
    """
    now = process.cpu_times()
    each = (now.user + now.system - cpu.user - cpu.system) / number * 1e6
    print(f"{way}: {number / (time.monotonic() - began):.0f}/s, {each:.0f} us of the node each")


GROWTH = {500: 12 << 20, 1_000: 12 << 20, 10_000: 3 << 20}
"""Bytes that a worker may have more after as many messages again: 150 for each of 20,000. So few
as in the short tests do not fill its caches."""


def grown(sizes: list[int]) -> float:
    """By how much the memory of a worker has grown in the second half.

    The first half fills what is kept of the last messages, as who sent the last 10,000 requests.
    """
    print("MiB:", [size >> 20 for size in sizes])
    half, some = len(sizes) // 2, max(1, len(sizes) // 20)
    return statistics.median(sizes[-some:]) - statistics.median(sizes[half - some : half])


@pytest.mark.parametrize("number", [1_000, 10_000])
async def test_case_60_ten_thousand_messages_each_way_leave_memory_as_it_was(
    world: World, number: int
) -> None:
    await world.live()
    portion = 200
    process = psutil.Process(world.node.pid)
    async with world.alice() as alice, user(world.server) as bob:
        sizes: list[int] = []
        for first in (0, number):
            began, cpu = time.monotonic(), process.cpu_times()
            for start in range(first, first + number, portion):
                ids = [await say(alice, f"m{each}") for each in range(start, start + portion)]
                assert set(await codes(alice, ids)) == {200}
                sizes.append(process.memory_info().rss)
            figures("out", number, began, cpu, process)
            await bob.until(lambda bob, end=first + number: len(bob.texts) == end)
            async with answering(alice) as texts:
                began, cpu = time.monotonic(), process.cpu_times()
                for start in range(0, number, portion):
                    for each in range(start, start + portion):
                        bob.write(f"n{each}")
                    await bob.until(lambda _, end=start + portion: len(texts) == end, 60.0)
                    sizes.append(process.memory_info().rss)
                figures("in", number, began, cpu, process)
            assert texts == [f"n{each}" for each in range(number)]
    assert grown(sizes) < GROWTH[number]


async def test_case_9_a_wrong_secret_is_refused_until_it_is_mended(world: World) -> None:
    await world.live()
    wrong = world.node.data_dir / "wrong"
    wrong.write_text("another")
    place = f"127.0.0.1:{world.server.component_port}"
    add = ("peers", "add", DOMAIN, "--xmpp", place, "--component", GATEWAY, "--pool", "20",
           "--per-minute", "1000000", "--trusted", "--secret")  # fmt: skip
    await asyncio.to_thread(world.node.manage, *add, str(wrong))
    row = await until_row(world.node, lambda row: row["state"] == "refused", DOMAIN)
    assert "not-authorized" in row["last_error"]
    wrong.write_text(SECRET)
    await asyncio.to_thread(world.node.manage, *add, str(wrong))
    await world.live()
    assert SECRET not in world.node.log()
    assert "legacy-refused" not in [
        kind
        for (kind,) in world.node.rows("SELECT kind FROM msgnode_alarm WHERE cleared_at IS NULL")
    ]
