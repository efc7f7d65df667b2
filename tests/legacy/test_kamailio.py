"""The gateway of a real node at a real kamailio, with phones behind that."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client import code
from tests.issuer import Issuer, enter
from tests.node import running

from .kamailio import DOMAIN, GATEWAY, SECRET, kamailio, phone
from .test_prosody import A, World, say

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
BOB = f"sip://{DOMAIN}/bob"
ALICES = f"sip:alice%40{A}@{GATEWAY}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[World]:
    issuer = Issuer(A)
    place = tmp_path_factory.mktemp("legacy")
    rows = place / "rows.sqlite3"
    shutil.copy(template, rows)
    enter(rows, issuer.row())
    settings: dict[str, Any] = {"DOMAIN": A, "FEDERATION": "listed"}
    with kamailio(place / "kamailio") as server, running(place / "node", rows, **settings) as node:
        (place / "secret").write_text(f"{SECRET}\n")
        node.manage(
            "peers", "add", DOMAIN, "--sip", f"127.0.0.1:{server.port}", "--component", GATEWAY,
            "--secret", str(place / "secret"), "--per-minute", "1000000", "--pool", "20",
        )  # fmt: skip
        yield World(node, server, issuer, DOMAIN)
        assert node.is_running(), node.log()
    issuer.stop()


async def test_case_34_messages_pass_both_ways(world: World) -> None:
    await world.live()
    async with world.alice() as alice, phone(world.server) as bob:
        answer = await alice.answer(await say(alice, "hi Böb", BOB))
        assert (code(answer), answer["body"].get("desc")) == (200, "received"), answer
        sender, text = bob.texts[0]
        assert text == "hi Böb"
        assert ALICES in sender
        answering = asyncio.create_task(bob.write_to(ALICES, "hello Älice"))
        frame = await alice.expect(type="create")
        assert (frame["from"], frame["to"]) == (BOB, alice.user)
        assert frame["body"]["value"] == {"type": "chat", "content": "hello Älice"}
        head = {"id": frame["id"], "sender": alice.user}
        await alice.send("response", frame["from"], {"code": 200}, **head)
        assert (await answering).code == 200
        gone = await alice.answer(await say(alice, "hi", f"sip://{DOMAIN}/nobody"))
        assert code(gone) == 404
        assert "nobody" in gone["body"]["description"]
        assert (await bob.write_to(f"sip:nobody@{GATEWAY}", "hi")).code == 480
        assert (await bob.write_to(f"sip:guest099@{DOMAIN}", "hi")).code == 404
