"""What an operator reads of two networks that are live: their list and their pages in a browser.

What stands there for given figures is in test_rows.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright

from tests.client import LIMIT, Client, code
from tests.console.browser import PASSWORD, log_in
from tests.federation.nodes import until_row
from tests.issuer import Issuer, enter
from tests.node import eventually, running
from tests.stubs.conftest import FLAGS

from . import fake_xmpp
from . import kamailio as sip
from .kamailio import kamailio, phone
from .prosody import prosody, user
from .test_kamailio import ALICES
from .test_prosody import A, World, codes, say

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
LIST = "/admin/msgnode/legacynetwork/"


@pytest.fixture
def worlds(tmp_path: Path, template: Path) -> Iterator[tuple[World, World]]:
    issuer, rows = Issuer(A), tmp_path / "rows.sqlite3"
    shutil.copy(template, rows)
    enter(rows, issuer.row())
    settings: dict[str, Any] = {"DOMAIN": A, "FEDERATION": "listed"}
    with (
        prosody(tmp_path / "prosody") as xmpp_server,
        kamailio(tmp_path / "kamailio") as proxy,
        running(tmp_path / "node", rows, **settings) as node,
    ):
        log_in(node)
        (tmp_path / "secret").write_text(fake_xmpp.SECRET)
        node.manage("peers", "add", fake_xmpp.DOMAIN, "--xmpp",
                    f"127.0.0.1:{xmpp_server.component_port}", "--component", fake_xmpp.GATEWAY,
                    "--secret", str(tmp_path / "secret"))  # fmt: skip
        (tmp_path / "secret").write_text(sip.SECRET)
        node.manage("peers", "add", sip.DOMAIN, "--sip", f"127.0.0.1:{proxy.port}",
                    "--component", sip.GATEWAY, "--pool", "3",
                    "--secret", str(tmp_path / "secret"))  # fmt: skip
        yield World(node, xmpp_server, issuer), World(node, proxy, issuer, sip.DOMAIN)
    issuer.stop()


async def answer(alice: Client) -> None:
    """Answer the next request of somebody there."""
    frame = await alice.expect(type="create")
    head = {"id": frame["id"], "sender": alice.user}
    await alice.send("response", frame["from"], {"code": 200}, **head)


async def traffic(xmpp: World, by_sip: World, alice: Client) -> None:
    """Messages both ways in both networks, and one in each that is for nobody."""
    async with user(xmpp.server) as bob, phone(by_sip.server) as other_bob:
        for scheme, world in (("xmpp", xmpp), ("sip", by_sip)):
            ids = [await say(alice, f"m{n}", f"{scheme}://{world.domain}/bob") for n in range(20)]
            assert set(await codes(alice, ids)) == {200}
        bob.write("hello")
        await answer(alice)
        bob.write("?", to="nobody")
        await bob.until(lambda bob: [each for each in bob.taken if each["type"] == "error"])
        writing = asyncio.create_task(other_bob.write_to(ALICES, "hello"))
        await answer(alice)
        assert (await writing).code == 200
        assert (await other_bob.write_to(f"sip:nobody@{sip.GATEWAY}", "?")).code == 480


async def test_the_pages_of_two_live_networks_say_what_passes_and_what_has_stopped(
    worlds: tuple[World, World], chromium: str
) -> None:
    xmpp, by_sip = worlds
    await xmpp.live()
    await by_sip.live()
    async with xmpp.alice() as alice, async_playwright() as play:
        browser = await play.chromium.launch(executable_path=chromium, args=FLAGS)
        page = await browser.new_page(base_url=f"http://127.0.0.1:{xmpp.node.port}")
        page.set_default_timeout(30_000)
        await page.goto("/admin/login/")
        await page.fill("[name=username]", "operator")
        await page.fill("[name=password]", PASSWORD)
        await page.press("[name=password]", "Enter")
        await page.wait_for_url("**/admin/")
        await traffic(xmpp, by_sip, alice)
        for world in worlds:
            await until_row(world.node, lambda row: row["figures"].get("refused"), world.domain)

        async def cell(domain: str, name: str) -> str:
            line = page.locator("#result_list tr", has_text=domain)
            return (await line.locator(f".field-{name}").inner_text()).strip()

        async def shows(domain: str, name: str, words: str) -> None:
            """Load the list again and again, until it says that."""
            async with asyncio.timeout(LIMIT):
                await page.goto(LIST)
                while words not in await cell(domain, name):
                    await eventually()
                    await page.reload()

        await page.goto(LIST)
        for domain, speaks in ((fake_xmpp.DOMAIN, "XMPP"), (sip.DOMAIN, "SIP")):
            assert await cell(domain, "speaks") == speaks
            assert await cell(domain, "state") == "live"
            assert await cell(domain, "waits") == "0 messages"
            assert "/s, " in await cell(domain, "traffic")
            assert (await cell(domain, "traffic")).endswith(", 1 refused")
            assert (await cell(domain, "last_out")).startswith("passed ")
            assert "nobody here is nobody" in await cell(domain, "last_in")
        await page.get_by_role("link", name=sip.DOMAIN, exact=True).click()
        text = await page.locator("#content").inner_text()
        for words in ("live", "1 refused", "nobody here is nobody", "0 messages"):
            assert words in text

        xmpp.server.stop()
        waits = await say(alice, "waits", store=True)
        assert code(await alice.answer(waits)) == 100
        await shows(fake_xmpp.DOMAIN, "waits", "1 message, the oldest for ")
        assert await cell(fake_xmpp.DOMAIN, "state") in ("waiting", "connecting")
        assert await cell(sip.DOMAIN, "state") == "live"
        xmpp.server.start()
        assert code(await alice.answer(waits)) == 200
        await shows(fake_xmpp.DOMAIN, "waits", "0 messages")
        assert await cell(fake_xmpp.DOMAIN, "state") == "live"
        await browser.close()
