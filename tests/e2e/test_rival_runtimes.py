"""Two runtimes come to two real workers at the same moment, one to a URL below the other's: one is
let in, whatever the database, and the other is told why not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import SESSION, Client, code, runtime
from tests.e2e.pair import Pair, running

pytestmark = pytest.mark.long

ROUNDS = 20


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, template: Path) -> Iterator[Pair]:
    more = {}
    if request.param == "postgresql":
        more["DATABASE_URL"] = request.getfixturevalue("migrated_url")
    with running(tmp_path, template, SHARE_RUNTIME_URL="false", **more) as both:
        yield both
        assert both.one.is_running(), both.one.log()
        assert both.other.is_running(), both.other.log()


async def test_of_two_that_come_at_once_one_is_let_in(pair: Pair) -> None:
    for number in range(ROUNDS):
        url = runtime()
        async with pair.one.ws() as above, pair.other.ws() as below:
            above.runtime_url, below.runtime_url = url, f"{url}/tab"
            rivals = (above, below) if number % 2 else (below, above)
            codes = await asyncio.gather(*map(first_answer, rivals))
            assert sorted(codes) in ([200, 403], [200, 503]), codes
            refused, let_in = rivals if codes[1] == 200 else reversed(rivals)
            again = await refused.ask("open", SESSION)
            assert (code(again), "lies" in again["body"]["description"]) == (403, True), again
            talker = await pair.come((pair.one, pair.other)[number % 2])
            await talker.send("create", f"{let_in.runtime_url}/x", {"value": number})
            assert (await let_in.expect(type="create"))["body"]["value"] == number
    await pair.leave()


async def first_answer(rival: Client) -> int:
    return code(await rival.ask("open", SESSION))
