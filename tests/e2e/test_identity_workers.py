"""Who speaks, over two workers joined by a real Redis: tokens that are bound
once, and revocations."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import waiting
from tests.client import SESSION, Client, Frame, code, runtime
from tests.e2e.pair import OwnRedis, Pair
from tests.issuer import Issuer, enter
from tests.node import Node

pytestmark = pytest.mark.long

IDM = "domain://idm.localhost"


@pytest.fixture(scope="module")
def workers(
    tmp_path_factory: pytest.TempPathFactory,
    template: Path,
    redis_url: str,
    issuer: Issuer,
) -> Iterator[Pair]:
    place = tmp_path_factory.mktemp("workers")
    shutil.copy(template, place / "node.sqlite3")
    enter(place / "node.sqlite3", issuer.row())
    domains = "identified.test=identified,strict.test=strict"
    both = Pair(place, REDIS_URL=redis_url, ADMISSION_DOMAINS=domains)
    try:
        both.start()
        yield both
        assert both.one.is_running(), both.one.log()
        assert both.other.is_running(), both.one.log()
    finally:
        both.kill()


@pytest.fixture
async def pair(workers: Pair) -> AsyncIterator[Pair]:
    yield workers
    await workers.leave()


async def login(client: Client, token: str) -> Frame:
    body = {"method": "login", "params": {"token": token}}
    return await client.ask("execute", IDM, body, sender=client.runtime_url)


async def logout(client: Client) -> Frame:
    return await client.ask("execute", IDM, {"method": "logout"})


async def own_identity(client: Client) -> Frame:
    return await client.ask("read", IDM, {})


async def says(sender: Client, receiver: Client, token: str) -> int:
    """Whether a message with this token arrives (200, asserted), or the code of the refusal."""
    id_ = await sender.send("create", f"{receiver.runtime_url}/sm", {"idToken": token})
    arrived = await receiver.received_from(sender)
    if not arrived:
        return code(await sender.answer(id_))
    assert arrived[0]["body"]["assertedIdentity"] is True
    return 200


async def test_a_token_said_at_one_worker_is_refused_from_another_runtime_at_the_other(
    pair: Pair, issuer: Issuer
) -> None:
    token = issuer.token(runtime("u").rpartition("/")[2])
    alice, peer = await pair.come(pair.one), await pair.come(pair.other)
    assert await says(alice, peer, token) == 200
    assert await says(peer, alice, token) == 401
    assert code(await login(peer, token)) == 401
    thief = await pair.other.ws().connect(additional_headers={"Authorization": f"Bearer {token}"})
    for runtime_url in (runtime(), alice.runtime_url):
        assert code(await thief.ask("open", SESSION, {}, sender=runtime_url)) == 401
    await thief.hang_up()
    alice.cut()
    back = await pair.back(pair.other, alice)  # the runtime keeps what is bound to it
    assert await says(back, peer, token) == 200
    assert await says(peer, back, token) == 401
    here = await pair.come(pair.one)
    assert await says(here, peer, token) == 401
    await back.close_session()
    await waiting.seen(lambda: login(here, token), lambda said: code(said) == 200)


@pytest.mark.parametrize("closes", [True, False])
async def test_a_revocation_ends_the_subjects_sessions_at_both_workers(
    pair: Pair, issuer: Issuer, closes: bool
) -> None:
    user = runtime("u").rpartition("/")[2]
    clients = [await pair.come(pair.one), await pair.come(pair.other)]
    by_standers = [await pair.come(pair.one), await pair.come(pair.other)]
    for client in clients:
        assert code(await login(client, issuer.token(user, nonce=client.runtime_url))) == 200
    for client in by_standers:
        assert code(await login(client, issuer.token(f"not-{user}"))) == 200
    await asyncio.to_thread(_revoke, pair.one, issuer.url, f"sub-{user}", closes)
    for client in clients:
        if closes:
            assert await client.close_code() == 4401
        else:
            await waiting.seen(partial(own_identity, client), lambda said: code(said) == 404)
            assert code(await login(client, issuer.token(user))) == 401
    for client in by_standers:
        assert code(await own_identity(client)) == 200


def _revoke(node: Node, issuer: str, subject: str, closes: bool) -> None:
    """As the console does."""
    call = f"revoke(issuer={issuer!r}, subject={subject!r}, close={closes})"
    node.manage("shell", "-c", f"from msgnode.identity.revocation_list import revoke; {call}")


async def test_while_redis_is_away_a_token_still_has_one_runtime(
    tmp_path: Path, template: Path, issuer: Issuer
) -> None:
    shutil.copy(template, tmp_path / "node.sqlite3")
    enter(tmp_path / "node.sqlite3", issuer.row())
    redis = OwnRedis(tmp_path)
    redis.start()
    pair = Pair(tmp_path, REDIS_URL=redis.url)
    try:
        async with pair.running():
            alice, bob = await pair.come(pair.one), await pair.come(pair.one)
            mallory, peer = await pair.come(pair.other), await pair.come(pair.other)
            redis.stop()
            token = issuer.token(runtime("u").rpartition("/")[2])
            assert await says(alice, bob, token) == 200
            assert await says(mallory, peer, token) == 401
            unheard = await pair.come(pair.other)  # nobody can tell the other worker of it
            token = issuer.token(runtime("u").rpartition("/")[2])
            assert await says(unheard, peer, token) == 200
            assert await says(alice, bob, token) == 401
            assert code(await login(alice, token)) == 401
    finally:
        redis.stop()
