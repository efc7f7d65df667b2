"""Two workers and a real server: when the one that is the gateway dies the other one is it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.client import Client, code
from tests.e2e.pair import OwnRedis
from tests.federation.nodes import until_row
from tests.issuer import Issuer, enter
from tests.node import Node
from tests.ports import free_port

from . import fake_proxy, fake_xmpp
from . import kamailio as sip
from .prosody import prosody, user
from .test_kamailio import ALICES, call, changed, final, of, picks_up
from .test_prosody import A, World, codes, say, there

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture(params=["xmpp", "sip"])
def workers(
    request: pytest.FixtureRequest, tmp_path: Path, template: Path
) -> Iterator[tuple[World, Node]]:
    issuer, redis = Issuer(A), OwnRedis(tmp_path)
    redis.start()
    (tmp_path / "node").mkdir()
    shutil.copy(template, tmp_path / "node" / "node.sqlite3")
    enter(tmp_path / "node" / "node.sqlite3", issuer.row())
    shared = {"DOMAIN": A, "FEDERATION": "listed", "REDIS_URL": redis.url, "WORKERS": 2,
              "WORKER_TIMEOUT": 3}  # fmt: skip
    first = Node(tmp_path / "node", **shared)
    second = Node(tmp_path / "node", **shared)
    is_sip = request.param == "sip"
    of_it: Any = sip if is_sip else fake_xmpp
    serving: Any = sip.kamailio if is_sip else prosody
    with serving(tmp_path / "server") as server:
        port = server.port if is_sip else server.component_port
        try:
            first.start()
            (tmp_path / "secret").write_text(of_it.SECRET)
            first.manage(
                "peers", "add", of_it.DOMAIN, f"--{request.param}", f"127.0.0.1:{port}",
                "--component", of_it.GATEWAY, "--secret", str(tmp_path / "secret"),
            )  # fmt: skip
            yield World(first, server, issuer, of_it.DOMAIN), second
        finally:
            first.kill()
            second.kill()
            redis.stop()
            issuer.stop()


async def test_case_8_58_another_worker_waits_while_the_first_is_connected_and_has_it_15_s_after(
    workers: tuple[World, Node],
) -> None:
    world, second = workers
    first, alices = world.node, f"alice%{A}@{fake_xmpp.GATEWAY}"
    is_sip = world.domain == sip.DOMAIN
    to = f"{'sip' if is_sip else 'xmpp'}://{world.domain}/bob"
    await world.live()
    second.start()
    world.node = second
    party: Any = sip.phone if is_sip else user
    async with world.alice() as alice, party(world.server) as bob:
        if is_sip:
            picks_up(bob)
            assert code(await final(alice, await call(alice, to))) == 200
            kept = "SELECT 1 FROM msgnode_legacyaddress WHERE kind = 'call'"
            await bob.until(lambda: first.rows(kept))  # written behind the answer
        else:
            bob.send_presence_subscription(alices)
            await bob.until(lambda bob: alices in there(bob))
        assert await codes(alice, [await say(alice, "by the first", to)]) == [200]
        os.kill(first.pid, signal.SIGSTOP)  # it has lost its lease, and is connected still
        if not is_sip:  # whose proxy takes the newest flow
            await until_row(
                second, lambda row: "connected already" in row["last_error"], world.domain
            )
        first.kill()
        began = time.monotonic()
        assert await _taken_by_the_other(alice, to), second.log()
        assert time.monotonic() - began < 15.0
        print(f"taken over after {time.monotonic() - began:.1f} s")
        if is_sip:  # the call of the worker that died ends for both
            await bob.until(lambda: of(bob, "BYE"))
            await alice.expect(type="delete")
            writing = asyncio.create_task(bob.write_to(ALICES, "to the second"))
        else:
            bob.write("to the second")
        frame = await alice.expect(type="create")
        assert frame["body"]["value"]["content"] == "to the second"
        if is_sip:
            head = {"id": frame["id"], "sender": alice.user}
            await alice.send("response", frame["from"], {"code": 200}, **head)
            assert (await writing).code == 200
            return
    async with user(world.server) as bob:  # the contact is the new worker's, too
        await bob.until(lambda bob: alices not in there(bob))
        async with world.alice("alice"):
            await bob.until(lambda bob: alices in there(bob), 15.0)


@pytest.mark.parametrize("workers", ["sip"], indirect=True)
@pytest.mark.parametrize("is_restart", [False, True], ids=["taken over", "restarted"])
async def test_case_54_calls_at_rtpengine_end_after_the_worker_that_began_them_was_killed(
    workers: tuple[World, Node], tmp_path: Path, is_restart: bool
) -> None:
    world, second = workers
    first, port = world.node, free_port()
    await world.live()
    with sip.rtpengine(port, tmp_path):
        place = f"127.0.0.1:{world.server.port}"
        await changed(world, "peers", "add", sip.DOMAIN, "--sip", place, "--component", sip.GATEWAY,
                      "--media", f"127.0.0.1:{port}")  # fmt: skip
        await sip.offered(port, "foreign", fake_proxy.SDP)
        if not is_restart:
            second.start()
            world.node = second
        bobs = sip.phone(world.server), sip.phone(world.server, "carol")
        async with world.alice() as alice, bobs[0] as bob, bobs[1] as carol:
            picks_up(bob)
            answer = await final(alice, await call(alice, f"sip://{sip.DOMAIN}/bob"))
            assert code(answer) == 200, answer
            carol.on_request = lambda request: request.method == "INVITE"
            await call(alice, f"sip://{sip.DOMAIN}/carol")
            await carol.until(lambda: of(carol, "INVITE"))
            begun = await sip.sessions(port)
            assert len(begun) == 3
            first.kill()
            assert await sip.sessions(port) == begun  # nothing has told it
            if is_restart:
                first.start()
            async with asyncio.timeout(60):
                while await sip.sessions(port) != {"foreign"}:  # noqa: ASYNC110  (its own count)
                    await asyncio.sleep(0.05)
            await world.live()


async def _taken_by_the_other(alice: Client, to: str) -> bool:
    """Whether the other worker takes a message soon. What the first one had is lost with it."""
    for _ in range(8):
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                if code(await alice.answer(await say(alice, "again", to))) == 200:
                    return True
        await asyncio.sleep(0.1)  # a refusal comes at once
    return False
