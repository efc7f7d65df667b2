"""The gateway of a real node at a real prosody, whose users are real clients (slixmpp).

Each test of the small server's behaviour that matters is shown with this one, too.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client import Client, code
from tests.federation.nodes import until_row
from tests.issuer import Issuer, enter
from tests.node import Node, running

from .prosody import DOMAIN, GATEWAY, SECRET, Prosody, prosody, user

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
A = "a.example"
ALICE, BOB = f"user://{A}/alice@{A}", f"xmpp://{DOMAIN}/bob"
REGISTRY = f"domain://registry.{A}"


class World:
    """A node with a network, its server, and who gives identities."""

    def __init__(self, node: Node, server: Prosody, issuer: Issuer) -> None:
        self.node, self.server, self.issuer = node, server, issuer

    async def live(self) -> None:
        await until_row(self.node, lambda row: row["state"] == "live", DOMAIN)

    @asynccontextmanager
    async def alice(self, name: str = "alice") -> AsyncIterator[Client]:
        """A runtime of hers, logged in, with a hyperty that is registered."""
        client = Client(f"ws://127.0.0.1:{self.node.port}/ws")
        await client.connect()
        await client.open(f"runtime://{A}/{name}")
        login = {"method": "login", "params": {"token": self.issuer.token(name)}}
        assert code(await client.ask("execute", f"domain://idm.{A}", login)) == 200
        allocation = f"domain://msg-node.{A}/address-allocation"
        body = {"scheme": "hyperty", "value": {"number": 1}}
        answer = await client.ask("create", allocation, body)
        client.user = answer["body"]["value"]["allocated"][0]
        entry = {"url": client.user, "user": f"user://{A}/{name}@{A}", "expires": 3600,
                 "resources": ["chat"], "dataSchemes": ["comm"], "status": "live",
                 "descriptor": f"hyperty-catalogue://{A}/.well-known/hyperty/Chat",
                 "runtime": client.runtime_url}  # fmt: skip
        said = await client.ask("create", REGISTRY, {"value": entry})
        assert code(said) == 200, said["body"]
        try:
            yield client
        finally:
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
            "--receipts", "--pool", "20",
        )  # fmt: skip
        yield World(node, server, issuer)
        assert node.is_running(), node.log()
    issuer.stop()


async def test_messages_pass_both_ways_and_the_server_says_who_wrote(world: World) -> None:
    await world.live()
    async with world.alice() as alice, user(world.server) as bob:
        told = {"value": {"type": "chat", "content": "hi Bob"}}
        answer = await alice.ask("create", BOB, told, sender=alice.user)
        assert (code(answer), answer["body"]["desc"]) == (200, "sent")  # bob sends no receipts
        (message,) = await bob.until(lambda bob: bob.taken)
        assert (message["body"], str(message["from"])) == ("hi Bob", f"alice%{A}@{GATEWAY}")
        # case 2: another `from` is not believed
        bob.write("hello Alice", request_receipt=True, id="m1")
        frame = await alice.expect(type="create")
        assert (frame["from"], frame["to"]) == (BOB, alice.user)
        assert frame["body"]["value"] == {"type": "chat", "content": "hello Alice"}
        await alice.send(
            "response", frame["from"], {"code": 200}, id=frame["id"], sender=alice.user
        )
        # case 3
        for name in ("nobody",):
            answer = await alice.ask("create", f"xmpp://{DOMAIN}/{name}", told, sender=alice.user)
            assert code(answer) == 404, answer
            assert name in answer["body"]["desc"]
