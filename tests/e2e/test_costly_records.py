"""Two workers: whoever has the node compute in vain pays for it, and bystanders are served."""

from __future__ import annotations

import asyncio
import http.client
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from registry.global_registry import signed
from tests.client import Client
from tests.e2e.pair import Pair
from tests.node import Node
from tests.registry.test_global import GUID, jwt, record

pytestmark = pytest.mark.long

log = logging.getLogger(__name__)

SESSIONS = 8
SECONDS = 8.0
A_SECOND = 60
"""Forged records of one session."""
GLOBAL = "global://registry"
RECORD = jwt(lastUpdate="2026-01-01T00:00:00Z")


@pytest.fixture
async def pair(tmp_path: Path, redis_url: str, migrated_url: str) -> AsyncIterator[Pair]:
    both = Pair(tmp_path, REDIS_URL=redis_url, DATABASE_URL=migrated_url)
    try:
        both.start()
        yield both
        await both.leave()
    finally:
        both.kill()


def forged(number: int) -> tuple[str, str]:
    """A GUID, and a record that its own key has signed, from which the GUID does not follow."""
    key = ec.derive_private_key(1_000 + number, ec.SECP256K1())
    guid = f"{number:x}".rjust(43, "z")
    public = signed.public_text(key)
    said = record(guid=guid, publicKey=public, salt=str(number), lastUpdate="2026-01-01T00:00:00Z")
    return guid, signed.sign(said, key)


async def flood(attacker: Client, records: list[tuple[str, str]], codes: Counter[int]) -> None:
    """Send forged records at a steady pace, whatever is answered."""
    began = monotonic()
    for number, (guid, text) in enumerate(records):
        await attacker.send("create", GLOBAL, {"guid": guid, "jwt": text}, id=f"f{number}")
        await asyncio.sleep(max(0.0, began + number / A_SECOND - monotonic()))  # the pace
    for number in range(len(records)):
        codes[(await attacker.answer(f"f{number}"))["body"]["code"]] += 1


async def reads(bystander: Client, until: float, took: list[float], codes: Counter[int]) -> None:
    while monotonic() < until:
        began = monotonic()
        answer = await bystander.ask("read", GLOBAL, {"resource": GUID})
        took.append(monotonic() - began)
        codes[answer["body"]["code"]] += 1


def pages(node: Node, path: str, until: float, took: list[float], codes: Counter[int]) -> None:
    while monotonic() < until:
        began = monotonic()
        with closing(http.client.HTTPConnection(node.host, node.port, timeout=30)) as door:
            door.request("GET", path, headers={"Host": "localhost"})
            codes[door.getresponse().status] += 1
        took.append(monotonic() - began)


async def test_forged_records_of_eight_sessions_take_the_registry_from_nobody(pair: Pair) -> None:
    records = [forged(number) for number in range(int(A_SECOND * SECONDS))]
    attackers = [await pair.come((pair.one, pair.other)[n % 2]) for n in range(SESSIONS)]
    bystander = await pair.come(pair.one)
    stored = await bystander.ask("create", GLOBAL, {"guid": GUID, "jwt": RECORD})
    assert stored["body"]["code"] == 200
    until = monotonic() + SECONDS
    names = ("read", "/health/ready", f"/global-registry/guid/{GUID}")
    took: dict[str, list[float]] = {name: [] for name in names}
    said: dict[str, Counter[int]] = {name: Counter() for name in (*names, "forged")}
    async with asyncio.timeout(SECONDS + 60):
        await asyncio.gather(
            *(flood(each, records, said["forged"]) for each in attackers),
            reads(bystander, until, took["read"], said["read"]),
            *(
                asyncio.to_thread(pages, pair.one, path, until, took[path], said[path])
                for path in names[1:]
            ),
        )
    for name in names:
        ranked = sorted(took[name])
        log.warning(
            "%s: %s, %d ms median, %d ms p99, %d ms at most",
            *(name, dict(said[name]), ranked[len(ranked) // 2] * 1000),
            *(ranked[len(ranked) * 99 // 100] * 1000, ranked[-1] * 1000),
        )
    log.warning("forged: %s", dict(said["forged"]))
    for name in names:
        assert set(said[name]) == {200}, name
    assert sum(said["forged"].values()) == SESSIONS * len(records)
    assert said["forged"][400] <= 2 * 2 * 30  # each worker derives thirty a minute for a source
    assert max(took["read"]) < 3.0
