"""Direct connections where the node asks for an identity: only who is logged in sets one up."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from msgnode.runtime.python import Runtime, Settings
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from tests.issuer import Issuer, enter
from tests.node import Node, running

from .p2p_talkers import Talker, connect, on_loopback  # noqa: F401 (a fixture for all)

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("p2p")]

P2P = P2PSettings(timers=P2PTimers(answer=30.0, set_up=60.0, fence=30.0, resume=30.0, dead=60.0))


@pytest.fixture
def strict(tmp_path: Path, template: Path, issuer: Issuer) -> Iterator[Node]:
    """A node that hears nobody who is not logged in."""
    rows = tmp_path / "rows.sqlite3"
    shutil.copy(template, rows)
    enter(rows, issuer.row())
    with running(tmp_path / "node", rows, ADMISSION="strict") as node:
        yield node


@contextlib.asynccontextmanager
async def talker(node: Node, identity: object) -> AsyncIterator[Talker]:
    catalogues = {"localhost": f"http://127.0.0.1:{node.port}"}
    async with Runtime(Settings("localhost", catalogues=catalogues, p2p=P2P)) as runtime:
        assert await runtime.log_in(identity) == "live"
        yield Talker(runtime)


async def test_case_p12_two_that_are_logged_in_talk_directly_and_their_signalling_is_asserted(
    strict: Node, issuer: Issuer
) -> None:
    async with (
        talker(strict, issuer.identity("alice")) as alice,
        talker(strict, issuer.identity("bob")) as bob,
    ):
        invitations: list[Message] = []
        bob.runtime.bus.add_listener(bob.p2p.handler, invitations.append)
        answer = await alice.ask(bob, 0)
        assert answer["code"] == 200, answer
        await connect(alice, bob)
        created = [each for each in invitations if each["type"] == "create"]
        assert [each["body"].get("assertedIdentity") for each in created] == [True]
        for one, other in ((alice, bob), (bob, alice)):
            answer = await one.ask(other, 7)
            assert answer["value"] == 7 and "/p2prequester/" in answer["cameBy"]


async def test_case_p11_who_is_not_logged_in_sets_nothing_up(strict: Node, issuer: Issuer) -> None:
    async with talker(strict, issuer.identity("alice")) as alice, talker(strict, None) as mallory:
        assert mallory.runtime.bus.counters["p2p.not-announced"] == 1
        answer = await mallory.ask(alice, 1, p2p=True)
        assert answer["code"] == 401
        await mallory.until(lambda: (alice.runtime.url, "failed") in mallory.states)
        assert not alice.p2p.known and not alice.states


async def test_case_p50_whose_identity_is_revoked_is_hung_up_on(
    strict: Node, issuer: Issuer
) -> None:
    async with (
        talker(strict, issuer.identity("alice")) as alice,
        talker(strict, issuer.identity("bob")) as bob,
    ):
        await connect(alice, bob)
        revoke = f"revoke(issuer={issuer.url!r}, subject='sub-alice')"
        text = f"from msgnode.identity.revocation_list import revoke; {revoke}"
        await asyncio.to_thread(strict.manage, "shell", "-c", text)
        for one, other in ((bob, alice), (alice, bob)):
            await one.until(lambda: one.way_to(other) is Way.NODE)  # noqa: B023
            assert (other.runtime.url, "disconnected") in one.states
        # She may have hung up before the node's order has reached him.
        await bob.until(lambda: bob.runtime.bus.counters["p2p.ordered-to-hang-up"] == 1)
        assert (await alice.ask(bob, 1, p2p=True))["code"] in (401, 503)
        assert bob.by_channel == 0
