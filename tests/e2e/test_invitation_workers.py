"""Invitations and guests over two real workers: told once, whichever lives, counted together."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.client import Client, code
from tests.e2e.pair import Pair
from tests.node import Node, eventually
from tests.runtime.test_invitations import execute, token_of

pytestmark = pytest.mark.long

IDM = "domain://idm.localhost"
BOB = "user://localhost/bob@localhost"
OBJECT, OTHER = "comm://localhost/call", "comm://localhost/diary"
A_MINUTE = 40
SETTINGS = {
    "INVITATIONS": True,
    "INVITATIONS_PER_MINUTE": A_MINUTE,
    "ADMISSION_DOMAINS": "elsewhere.test=identified",
    "WEBHOOK_NETWORKS": "127.0.0.0/8",
}


def invitation(name: str) -> dict[str, Any]:
    return {
        "type": "create",
        "from": "hyperty://a.example/alice",
        "to": BOB,
        "body": {
            "value": {"invitation": name, "expires": int(time.time()) + 300},
            "identity": {"assertion": "x.y.z"},
            "protostub": "https://a.example/x",
        },
    }


def inviting(tmp_path: Path, template: Path, redis_url: str) -> Pair:
    """Two workers that take and send invitations, known to others by the URL of the first."""
    place = tmp_path / "workers"
    place.mkdir()
    shutil.copy(template, place / "node.sqlite3")
    pair = Pair(place, REDIS_URL=redis_url, **SETTINGS)
    for node in (pair.one, pair.other):
        node.configure(PUBLIC_URL=f"http://127.0.0.1:{pair.one.port}")
    return pair


async def leave(http: httpx.AsyncClient, at: Node, path: str, name: str) -> int:
    url = f"http://127.0.0.1:{at.port}{path}"
    return (await http.post(url, json=invitation(name), headers={"TTL": "300"})).status_code


class Invited:
    """A runtime that counts the invitations it is told of, wherever its session is."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.told: Counter[str] = Counter()

    async def hears(self, *names: str) -> None:
        """Wait for these."""
        while not self.told.keys() >= {*names}:
            self._note(await self.client.expect(sender=IDM, type="update"))

    async def settle(self) -> None:
        """Note what has come meanwhile."""
        for frame in await self.client.settled():
            if frame["from"] == IDM:
                self._note(frame)

    def _note(self, frame: dict[str, Any]) -> None:
        self.told[frame["body"]["value"]["invitation"]] += 1


async def logged_in(pair: Pair, at: Node, token: str, url: str = "") -> Client:
    client = await pair.come(at, url)
    login = {"method": "login", "params": {"token": token}}
    assert code(await client.ask("execute", IDM, login)) == 200
    return client


async def reaches(guest: Client, host: Client, type_: str, to: str, body: Any = None) -> None:
    """What the guest asks comes to the host, and the answer back."""
    id_ = await guest.send(type_, to, body)
    asked = await host.expect(type=type_, to=to)
    answer = {"id": asked["id"], "type": "response", "from": to, "to": guest.runtime_url}
    await host.send_raw(json.dumps({**answer, "body": {"code": 200}}))
    assert code(await guest.answer(id_)) == 200


async def test_invitations_come_once_and_guests_stay_guests_while_workers_die(
    tmp_path: Path, template: Path, redis_url: str
) -> None:
    pair = inviting(tmp_path, template, redis_url)
    one, other = pair.one, pair.other
    try:
        await asyncio.to_thread(pair.start)
        bobs = await asyncio.to_thread(token_of, one, "bob", "localhost")
        alices = await asyncio.to_thread(token_of, one, "alice", "localhost")
        bob = Invited(await logged_in(pair, other, bobs))
        alice = await logged_in(pair, one, alices)
        endpoint = (await execute(bob.client, "subscribePush"))["value"]["endpoint"]
        path = endpoint[endpoint.index("/push/") :]
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            twice = [leave(http, each, path, "twice") for each in (one, other) * 4]
            assert await asyncio.gather(*twice) == [201] * 8
            await bob.hears("twice")

            # A guest of Alice's, at the worker that is not hers.
            (hyperty,) = await alice.allocate()
            held = [OBJECT, f"{OBJECT}/subscription", OTHER]
            assert code(await alice.subscribe(*held)) == 200
            where = {"endpoint": f"http://127.0.0.1:{one.port}{path}", "user": BOB}
            asked = {**where, "hyperty": hyperty, "resource": OBJECT, "stay": 3600}
            sent = await execute(alice, "sendInvitation", **asked)
            assert sent["code"] == 200, sent
            name = sent["value"]["invitation"]
            await bob.hears(name)
            guest = await pair.come(other, "runtime://elsewhere.test/phone")
            assert code(await guest.ask("create", hyperty)) == 401
            await reaches(guest, alice, "create", hyperty, {"value": {"invitation": name}})
            assert code(await guest.subscribe(f"{OBJECT}/changes")) == 200
            thief = await pair.come(one, "runtime://elsewhere.test/thief")
            accept = {"value": {"invitation": name}}
            assert code(await thief.ask("create", hyperty, accept)) == 403

            # Alice withdraws another one: Bob is told, wherever he is, and nobody is let in.
            sent = await execute(alice, "sendInvitation", **asked)
            over, location = (sent["value"][each] for each in ("invitation", "location"))
            await bob.hears(over)
            withdrawal = {"invitation": over, "location": location}
            mallory = await logged_in(pair, other, bobs, "runtime://localhost/mallory")
            assert (await execute(mallory, "withdrawInvitation", **withdrawal))["code"] == 404
            for _ in range(2):
                done = await execute(alice, "withdrawInvitation", **withdrawal)
                assert (done["code"], done["value"]) == (200, {"told": True})
            said = await bob.client.expect(sender=IDM, type="delete")
            assert said["body"]["value"] == {"invitation": over}
            late = await pair.come(other, "runtime://elsewhere.test/late")
            assert code(await late.ask("create", hyperty, {"value": {"invitation": over}})) == 403
            accepted = {"invitation": name, "location": ""}
            assert (await execute(alice, "withdrawInvitation", **accepted))["code"] == 409

            # The worker of both dies; what is left meanwhile waits for Bob, who comes to the other.
            other.kill()
            assert await leave(http, one, path, "away") == 201
            bob.client = await pair.back(one, bob.client)
            await bob.hears("away")
            guest = await pair.back(one, guest)
            await reaches(guest, alice, "read", OBJECT)
            assert code(await guest.ask("read", OTHER)) == 403
            assert code(await guest.subscribe(f"{OTHER}/changes")) == 403
            await alice.send("update", f"{OBJECT}/changes", {"value": 1}, sender=OBJECT)
            await guest.expect(type="update", to=f"{OBJECT}/changes")

            # Alice sends her guest away, whom she has let stay for an hour.
            assert (await execute(alice, "endInvitation", invitation=name))["code"] == 200
            async with asyncio.timeout(15):
                while code(await guest.subscribe(f"{OBJECT}/changes")) != 403:
                    await eventually()

            # A flood at both: what is taken in comes, the rest is told to wait, others are served.
            await asyncio.to_thread(other.start)
            names = [f"flood{number}" for number in range(100)]
            places = [(one, other)[number % 2] for number in range(100)]
            flood = asyncio.gather(
                *(leave(http, at, path, each) for at, each in zip(places, names, strict=True))
            )
            while not flood.done():
                assert code(await alice.ask("read", IDM)) == 200
            codes = dict(zip(names, await flood, strict=True))
            assert set(codes.values()) == {201, 429}
            taken = [each for each, answer in codes.items() if answer == 201]
            await bob.hears(*taken)
            await bob.settle()
            assert bob.told == Counter(["twice", name, over, "away", *taken])
    finally:
        await pair.leave()
        pair.kill()
