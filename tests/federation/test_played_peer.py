"""A real node and a peer that the test plays, catalogue and node: what leaves, and what stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from websockets.asyncio.server import ServerConnection

from tests.client import code
from tests.node import Node, free_port, running

from .catalogues import Catalogue, described
from .links import Played
from .nodes import A, B, answer_requests, come, peer_row, subscribe, until_row
from .sandboxes import needs_deno, stub

pytestmark = [
    needs_deno,
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
]

SM = f"domain://msg-node.{A}/sm"
TOKEN = "cafe0078-3c0c-4b57-9d7a-0f4f6e0f6a11"
NOTES = """const message = JSON.parse(data);
      if (this.token) message.body.via = [`${this.config.runtimeURL}/${this.token}`];"""
"""As stubs of the field do: the URL of our session, with its token, is in whatever they post."""
ROOM, CHANGES, THEIRS = f"comm://{B}/room", f"comm://{B}/room/changes", f"hyperty://{B}/1"
PAGES = """
import json
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from msgnode.site_urls import CONSOLE
client = Client(headers={"host": "localhost"})
client.force_login(User.objects.create_superuser("everything"))
paths = ["/api/v1/peers/", "/api/v1/peers/b.example/", "/api/v1/peers/b.example/queue/"]
for model in CONSOLE._registry:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    paths.append(reverse(f"{name}_changelist"))
    rows = model._default_manager.values_list("pk", flat=True)[:20]
    paths += [reverse(f"{name}_change", args=[pk]) for pk in rows]
said = [client.get(path, follow=True) for path in paths]
print(json.dumps([[each.status_code, each.content.decode()] for each in said]))
"""


class World:
    """A node, the catalogue where it has found the stub of b, and where that connects to."""

    def __init__(self, node: Node, catalogue: Catalogue, port: int) -> None:
        self.node, self.catalogue, self.port = node, catalogue, port

    @asynccontextmanager
    async def peer(self, hears: Any = None) -> AsyncIterator[Played]:
        """b is there, and live."""
        played = Played(hears, self.port, TOKEN)
        await played.start()
        try:
            await until_row(self.node, lambda _: played.links)
            await until_row(self.node, lambda row: row["state"] == "live")
            yield played
        finally:
            await played.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[World]:
    port = free_port()
    source = stub("resumes").replace("const message = JSON.parse(data);", NOTES)
    assert NOTES in source
    catalogue = Catalogue({"/b": described(source, f"ws://127.0.0.1:{port}/ws")})
    settings = {"FEDERATION": "open", "FEDERATION_NETWORKS": "127.0.0.0/8", "DOMAIN": A}
    place = tmp_path_factory.mktemp("played") / "a"
    with running(place, template, SANDBOX_SILENCE_SECONDS=12, **settings) as node:
        node.manage("peers", "add", B, "--url", f"{catalogue.url}/b", "--hosts", "127.0.0.1")
        yield World(node, catalogue, port)
        catalogue.stop()


async def answers(message: dict[str, Any], link: ServerConnection) -> None:
    """As the node of b, and a runtime there."""
    if message["type"] in ("response", "update"):
        return
    head = {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"]}
    await link.send(json.dumps({**head, "body": {"code": 200, "value": "here"}}))


async def test_case_78_the_token_of_our_session_at_the_peer_is_nowhere_here(world: World) -> None:
    ours = f"hyperty://{A}/told"
    async with world.peer(answers) as peer:
        told = await come(world.node, A, "told")
        assert code(await subscribe(told, A, ours)) == 200
        assert code(await subscribe(told, A, CHANGES)) == 200
        answer = await told.ask("read", THEIRS, {"value": 1}, sender=ours)
        assert answer["body"]["value"] == "here"
        update = {"id": 1, "type": "update", "from": ROOM, "to": CHANGES, "body": {"value": 1}}
        request = {"id": 2, "type": "execute", "from": THEIRS, "to": ours, "body": {"value": 2}}
        refused = {**request, "from": f"runtime://{A}/mn-1/{TOKEN}"}
        lost = {**request, "id": 3, "to": f"hyperty://{A}/nobody"}
        for each in (update, request, refused, lost):
            await peer.links[-1].send(json.dumps(each))
        frames = [answer, await told.expect(type="update", to=CHANGES)]
        frames.append(await told.expect(type="execute", to=ours))
        await until_row(world.node, lambda row: "refused" in row["last_error"])
        async with asyncio.timeout(30):
            while not any(each["type"] == "response" and each["id"] == 3 for each in peer.heard):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    frames += told.inbox
    assert TOKEN not in json.dumps(frames)
    printed = await asyncio.to_thread(world.node.manage, "shell", "-c", PAGES)
    pages = json.loads(printed.strip().splitlines()[-1])
    assert {status for status, _ in pages} == {200}
    assert len([text for _, text in pages if B in text]) > 3, "the peer is on some of them"
    assert [text for _, text in pages if TOKEN in text] == []
    world.node.terminate()
    await asyncio.to_thread(world.node.status)
    kept = {
        str(path): repr(parquet.read_table(path).to_pylist()).encode()
        if path.suffix == ".parquet"
        else path.read_bytes()
        for path in world.node.data_dir.rglob("*")
        if path.is_file()
    }
    assert any(THEIRS.encode() in content for content in kept.values()), "the record has it"
    assert [path for path, content in kept.items() if TOKEN.encode() in content] == []
    await asyncio.to_thread(world.node.start)


async def test_case_89_runtimes_of_a_peer_come_beside_its_node_where_its_row_says_so(
    world: World,
) -> None:
    ours, carol = f"hyperty://{A}/visited", f"hyperty://{B}/carol"

    def admit(how: str) -> None:
        place = ("--url", f"{world.catalogue.url}/b", "--hosts", "127.0.0.1")
        world.node.manage("peers", "add", B, *place, "--visitors", how)

    async def asked(visitor: Any, to: str = ours) -> Any:
        return code(await visitor.ask("read", to, {"value": 1}, sender=carol))

    async with world.peer(answers) as peer:
        told = await come(world.node, A, "visited")
        assert code(await subscribe(told, A, ours)) == 200
        assert code(await subscribe(told, A, CHANGES)) == 200
        visitor = await come(world.node, B, "carols-own")
        assert await asked(visitor) == 403, "its node speaks alone"
        await asyncio.to_thread(admit, "admitted")
        serving = asyncio.create_task(answer_requests(told))
        async with asyncio.timeout(30):
            while await asked(visitor) == 403:  # noqa: ASYNC110  (the row tells nobody)
                await asyncio.sleep(0.05)
        assert await asked(visitor) == 200
        changed = await visitor.ask("update", CHANGES, {"value": 2}, sender=ROOM)
        assert code(changed) == 403, "objects of b are changed by its node alone"
        claimed = await visitor.ask("subscribe", SM, {"resources": [carol]})
        assert code(claimed) == 403
        asker = await come(world.node, A, "asker")
        assert code(await asker.ask("read", carol, {"value": 3})) == 200
        assert [each["to"] for each in peer.heard if each["type"] == "read"] == [carol], (
            "by its node"
        )
        await asyncio.to_thread(admit, "as-kind")
        async with asyncio.timeout(30):
            while await asked(visitor) != 403:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        serving.cancel()


async def test_case_17_after_a_restart_the_stub_comes_from_the_database(world: World) -> None:
    """The catalogue is away meanwhile."""
    async with world.peer(answers) as peer:
        before = peer_row(world.node)
        asked = world.catalogue.asked.total()
        world.catalogue.stop()
        world.node.kill()
        await asyncio.to_thread(world.node.start)
        await until_row(world.node, lambda _: len(peer.links) > 1)
        await until_row(
            world.node, lambda row: row["state_at"] > before["state_at"] and row["state"] == "live"
        )
        asker = await come(world.node, A, "after")
        assert code(await asker.ask("read", THEIRS, {"value": 1})) == 200
        after = peer_row(world.node)
        assert world.catalogue.asked.total() == asked
        for name in ("approved_digest", "found_digest", "discovery"):
            assert after[name] == before[name]
