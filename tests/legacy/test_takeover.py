"""Two workers and a real prosody: when the one that is the gateway dies the other one is it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.client import Client, code
from tests.e2e.pair import OwnRedis
from tests.federation.nodes import until_row
from tests.issuer import Issuer, enter
from tests.node import Node

from .fake_xmpp import DOMAIN, GATEWAY, SECRET
from .prosody import prosody, user
from .test_prosody import A, World, codes, say, there

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def workers(tmp_path: Path, template: Path) -> Iterator[tuple[World, Node]]:
    issuer, redis = Issuer(A), OwnRedis(tmp_path)
    redis.start()
    (tmp_path / "node").mkdir()
    shutil.copy(template, tmp_path / "node" / "node.sqlite3")
    enter(tmp_path / "node" / "node.sqlite3", issuer.row())
    shared = {"DOMAIN": A, "FEDERATION": "listed", "REDIS_URL": redis.url, "WORKERS": 2,
              "WORKER_TIMEOUT": 3}  # fmt: skip
    first = Node(tmp_path / "node", **shared)
    second = Node(tmp_path / "node", **shared)
    with prosody(tmp_path / "prosody") as server:
        try:
            first.start()
            (tmp_path / "secret").write_text(SECRET)
            first.manage(
                "peers", "add", DOMAIN, "--xmpp", f"127.0.0.1:{server.component_port}",
                "--component", GATEWAY, "--secret", str(tmp_path / "secret"),
            )  # fmt: skip
            yield World(first, server, issuer), second
        finally:
            first.kill()
            second.kill()
            redis.stop()
            issuer.stop()


async def test_case_8_58_another_worker_waits_while_the_first_is_connected_and_has_it_15_s_after(
    workers: tuple[World, Node],
) -> None:
    world, second = workers
    first, alices = world.node, f"alice%{A}@{GATEWAY}"
    await world.live()
    second.start()
    world.node = second
    async with world.alice() as alice, user(world.server) as bob:
        bob.send_presence_subscription(alices)
        await bob.until(lambda bob: alices in there(bob))
        assert await codes(alice, [await say(alice, "by the first")]) == [200]
        os.kill(first.pid, signal.SIGSTOP)  # it has lost its lease, and is connected still
        await until_row(second, lambda row: "connected already" in row["last_error"], DOMAIN)
        first.kill()
        began = time.monotonic()
        assert await _taken_by_the_other(alice), second.log()
        assert time.monotonic() - began < 15.0
        print(f"taken over after {time.monotonic() - began:.1f} s")
        bob.write("to the second")
        frame = await alice.expect(type="create")
        assert frame["body"]["value"]["content"] == "to the second"
    async with user(world.server) as bob:  # the contact is the new worker's, too
        await bob.until(lambda bob: alices not in there(bob))
        async with world.alice("alice"):
            await bob.until(lambda bob: alices in there(bob), 15.0)


async def _taken_by_the_other(alice: Client) -> bool:
    """Whether the other worker takes a message soon. What the first one had is lost with it."""
    for _ in range(8):
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                if code(await alice.answer(await say(alice, "again"))) == 200:
                    return True
        await asyncio.sleep(0.1)  # a refusal comes at once
    return False
