"""An access network by script: SIP.js, as npm has it, in the sandbox; what no script may say."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from msgnode.legacy.network import LegacyNetwork
from msgnode.legacy.script import ScriptNetwork
from tests import waiting
from tests.client import code
from tests.issuer import Issuer, enter
from tests.node import ROOT, running
from tests.scripts.stage import Place, needs_deno, place, script
from tests.services import NotAvailable, miss

from .fake_proxy import SDP
from .kamailio import DOMAIN, SECRET, kamailio, phone
from .linked import OURS, Linked, linked
from .test_jingle import MODULES
from .test_kamailio import BOB, call, dialog_of, end, final, of, picks_up
from .test_prosody import A, World, say

pytestmark = needs_deno
ANSWER = SDP.replace("o=", "o=another-")


def bundle(into: Path) -> Path:
    """The script of examples/connectors with SIP.js in it."""
    if not (MODULES / "sip.js").exists():
        miss(NotAvailable("`sip.js` is not installed: .ci/js/lint installs it"))
    source = ROOT / "examples" / "connectors" / "sip.js"
    words = ("--bundle", "--format=esm", "--minify", f"--outfile={into / 'bundle.js'}")
    subprocess.run(
        [MODULES / ".bin" / "esbuild", source, *words, "--log-level=error"],
        check=True, env={"NODE_PATH": str(MODULES)}, timeout=60,
    )  # fmt: skip
    return into / "bundle.js"


@pytest.fixture
def world(tmp_path: Path, template: Path) -> Iterator[World]:
    issuer = Issuer(A)
    rows = tmp_path / "rows.sqlite3"
    shutil.copy(template, rows)
    enter(rows, issuer.row())
    settings: dict[str, Any] = {"DOMAIN": A, "FEDERATION": "listed"}
    with kamailio(tmp_path / "sip") as server, running(tmp_path / "a", rows, **settings) as node:
        (tmp_path / "secret").write_text(SECRET)
        place = f"127.0.0.1:{server.port}"
        config = json.dumps({"server": f"ws://{place}"})
        parts = ("--config", config, "--origins", f"http://{place}", "--secrets", "password=*")
        node.manage("connectors", "add", "legacy", "--script", str(bundle(tmp_path)), *parts)
        secret = ("--name", "password", "--value-file", str(tmp_path / "secret"))
        node.manage("connectors", "secret", "legacy", *secret)
        node.manage("connectors", "approve", "legacy")
        node.manage("peers", "add", DOMAIN, "--by-script", "--pool", "2", "--per-minute", "1000")
        yield World(node, server, issuer, DOMAIN)
        assert node.is_running(), node.log()
        assert "pw-guest" not in node.log()
    issuer.stop()


@pytest.mark.long
async def test_case_85_sip_js_in_the_sandbox_registers_writes_and_calls_as_it_is_described(
    world: World,
) -> None:
    await world.live()
    async with world.alice() as alice, phone(world.server) as bob:
        assert code(await alice.answer(await say(alice, "hi Böb", BOB))) == 200
        sender, text = bob.texts[0]
        assert (text, "sip:guest001@" in sender) == ("hi Böb", True), bob.texts
        gone = await alice.answer(await say(alice, "hi", f"sip://{DOMAIN}/nobody"))
        assert code(gone) == 404
        answering = asyncio.create_task(bob.write_to(f"sip:guest001@{DOMAIN}", "hello Älice"))
        frame = await alice.expect(type="create")
        assert (frame["from"], frame["to"]) == (BOB, alice.user)
        assert frame["body"]["value"] == {"type": "chat", "content": "hello Älice"}
        head = {"id": frame["id"], "sender": alice.user}
        await alice.send("response", frame["from"], {"code": 200}, **head)
        assert (await answering).code == 200

        picks_up(bob)  # a call to him, which he ends
        answer = await final(alice, await call(alice))
        assert code(answer) == 200, answer
        invite = of(bob, "INVITE")[-1]
        assert invite.text == SDP
        assert answer["body"]["value"]["connectionDescription"] == {"type": "answer", "sdp": SDP}
        uri, dialog, routes = dialog_of(invite, bob)
        assert (await bob.ask("BYE", uri, "", *routes, call=dialog)).code == 200
        await alice.expect(type="delete")
        await end_of_ours(alice, bob)

        heard: list[int] = []  # a call of his
        asked = bob.ask("INVITE", f"sip:guest001@{DOMAIN}", SDP, heard=heard)
        calling = asyncio.create_task(asked)
        frame = await alice.expect(type="create")
        assert frame["body"]["value"]["connectionDescription"] == {"type": "offer", "sdp": SDP}
        head = {"id": frame["id"], "sender": alice.user}
        value = {"connectionDescription": {"type": "answer", "sdp": ANSWER}}
        await alice.send("response", frame["from"], {"code": 200, "value": value}, **head)
        assert (await calling).text == ANSWER


async def end_of_ours(alice: Any, bob: Any) -> None:
    """A call that its caller ends."""
    before = len(of(bob, "BYE"))
    await end(alice, await final(alice, await call(alice)))
    await bob.until(lambda: len(of(bob, "BYE")) > before)


# --- scripts that do something else ---------------------------------------------------------------


@asynccontextmanager
async def by_script(methods: str, **settings: Any) -> AsyncIterator[tuple[Linked, Place]]:
    """A link to the network of a script, whose server nobody asks."""
    async with place(script(methods, "legacy"), "legacy") as one:

        def make(chosen: Any, here: Any) -> LegacyNetwork:
            return ScriptNetwork(chosen, one.port, here)

        async with linked(make=make, secret="", pool=2, **settings) as link:
            yield link, one


LYING = """
  start: () => node.state("live"),
  async send({ text }) {
    await node.deliver({ from: text, to: "guest001", text: "I am somebody else" });
  },
  stop() {}"""


@pytest.mark.django_db(transaction=True)
async def test_case_86_whoever_a_script_says_that_writes_is_of_its_network_or_is_dropped() -> None:
    async with by_script(LYING) as (link, _):
        await link.live()
        for posing in (
            OURS,
            "user://a.example/alice@a.example",
            "sip://other.example/bob",
            "",
            "x",
        ):
            answer = await link.ask(posing or " ")
            assert answer["code"] == 502, answer
        assert [kind for kind, _ in link.node.alarms] == ["legacy-posing"] * 5
        assert not link.created()
        theirs = f"sip://{link.link.peer.domain}/bob"
        assert (await link.ask(theirs))["code"] == 200
        assert [each["from"] for each in link.created()] == [theirs]


@pytest.mark.django_db(transaction=True)
async def test_a_network_is_as_its_script_says_and_comes_back_with_it() -> None:
    methods = """
      async start() {
        const kept = await node.store.get("times");
        await node.store.put("times", String(Number(kept?.value ?? 0) + 1));
        if (kept) node.state("live"); else node.state("refused", "401 not you");
      },
      async send() { throw Object.assign(new Error("nobody is there"), { code: 404 }); },
      stop() {}"""
    async with by_script(methods) as (link, one):
        await waiting.so(lambda: link.link.state == "refused")
        assert "401 not you" in link.link.last_error
        link.link.hurry()
        await link.live()
        answer = await link.ask("hello")
        assert (answer["code"], answer["description"]) == (404, "nobody is there")
        running = one.port.script
        assert running is not None
        running.kill("a test")
        await waiting.so(lambda: "a test" in link.link.last_error)
        await link.live()
        assert (await link.ask("again"))["code"] == 404


@pytest.mark.django_db(transaction=True)
async def test_a_script_opens_web_sockets_to_its_origins_only() -> None:
    methods = """find: (url) => new Promise((done) => {
      const socket = new WebSocket(url);
      socket.onclose = ({ code, reason }) => done([code, reason]);
    })"""
    async with place(script(methods), origins=["http://127.0.0.1:9"]) as one:
        for url, why in (
            ("ws://127.0.0.1:10/", "none of its origins"),
            ("wss://127.0.0.1:9/", "none of its origins"),
            ("ftp://127.0.0.1:9/", "none of its origins"),
            ("ws://127.0.0.1:9/", "connect call failed"),  # nothing listens there
        ):
            found = await one.port.call("find", url, Any)
            assert found[0] == 1006
            assert why in found[1].lower(), found
        assert one.port.script is not None
        await waiting.so(lambda: not one.port.script._sockets)  # type: ignore[union-attr]
