"""Two linked nodes whose sockets are cut under load. What else may happen is simulated; and here,
for minutes, where somebody asks for it:
LINK_CHAOS_SECONDS=300 make test-long ARGS="tests/federation/test_link_chaos.py -s".
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .clusters import Clusters, Numbers, clusters

SECONDS = float(os.environ.get("LINK_CHAOS_SECONDS", "0"))
RATE = 200.0
RESUMED = 1.0
"""Seconds after a cut in which messages pass again."""

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
    pytest.mark.timeout(SECONDS + 300),
]


@pytest.fixture
def nodes(tmp_path: Path, template: Path) -> Iterator[Clusters]:
    with clusters(tmp_path, template) as both:
        yield both


async def test_case_66_after_a_cut_messages_pass_again_within_a_second(nodes: Clusters) -> None:
    """Nothing at all is lost by it: both nodes live."""
    numbers = Numbers(nodes.a, nodes.b)
    took = []
    async with numbers.passing(RATE):
        for _ in range(8):
            cut_at = time.monotonic()
            nodes.lose()
            await numbers.passes()
            took.append(numbers.longest_pause(cut_at))
    numbers.check()
    assert numbers.answerer.heard == list(range(1, numbers.asker.asked + 1))
    print("resumed after", [round(each, 3) for each in took])
    assert sorted(took)[len(took) // 2] <= RESUMED


@pytest.mark.skipif(not SECONDS, reason="LINK_CHAOS_SECONDS does not say for how long")
async def test_case_l61_killed_and_cut_at_random(nodes: Clusters) -> None:
    chance, done = random.Random(20), Counter[str]()
    numbers = Numbers(nodes.a, nodes.b)
    until = time.monotonic() + SECONDS
    resumed = []
    async with numbers.passing(RATE):
        while time.monotonic() < until:
            await asyncio.sleep(chance.uniform(1, 5))
            what = chance.choice(["a", "b", "cut", "cut", "cut untold"])
            done[what] += 1
            if what in "ab":
                node = nodes.a if what == "a" else nodes.b
                node.kill()
                await asyncio.to_thread(node.start)
                since = time.monotonic()
                await numbers.passes()
                resumed.append(numbers.longest_pause(since))
            else:
                nodes.lose(what == "cut")
        await numbers.passes()
    numbers.check()
    asked, heard = numbers.asker.asked, len(numbers.answerer.heard)
    codes = Counter(each for codes in numbers.asker.codes.values() for each in codes)
    print(
        f"{dict(done)}; {asked} asked, {heard} heard, answers {dict(codes)}; passing again after "
        f"a start: {[round(each, 2) for each in sorted(resumed)]} s"
    )
