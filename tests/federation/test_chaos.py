"""Two nodes under load, killed at random, and the sandbox between them: every loss is signalled.

It takes longer than a build has time for, and so runs only where somebody asks for it:

    FEDERATION_CHAOS_SECONDS=300 make test-long ARGS="tests/federation/test_chaos.py -s"
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .nodes import A, B, TwoNodes
from .returning import Answerer, Asker, Observer, Returning
from .sandboxes import needs_deno

SECONDS = float(os.environ.get("FEDERATION_CHAOS_SECONDS", "0"))

pytestmark = [
    needs_deno,
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.timeout(SECONDS + 300),
    pytest.mark.skipif(not SECONDS, reason="FEDERATION_CHAOS_SECONDS does not say for how long"),
]

SIGNALLED = 60.0
"""Seconds for a loss to be signalled: a node starts, its stub comes back, all is renewed."""
TO, CHANGES = f"hyperty://{B}/answers", f"comm://{B}/room/changes"


@pytest.fixture
def nodes(tmp_path: Path, template: Path) -> Iterator[TwoNodes]:
    two = TwoNodes(tmp_path / "nodes", template, SANDBOX_SILENCE_SECONDS=12)
    with two.running():
        yield two


async def kill_at_random(nodes: TwoNodes, killed: list[tuple[float, str]]) -> None:
    """Kill a node or the sandbox every few seconds, each at least once; a node is started again."""
    chance = random.Random(20)
    until = time.monotonic() + SECONDS
    turns = ["a", "b", "sandbox"]
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(3, 8))
        what = turns.pop() if turns else chance.choice(["a", "b", "sandbox", "sandbox"])
        killed.append((time.monotonic(), what))
        if what == "sandbox":
            nodes.signal_sandboxes(signal.SIGKILL)
            continue
        node = nodes.a if what == "a" else nodes.b
        node.kill()
        await asyncio.to_thread(node.start)


async def test_every_loss_is_signalled_whatever_is_killed(nodes: TwoNodes) -> None:
    observer = Observer(nodes.a, A, "observer", CHANGES)
    asker = Asker(nodes.a, A, "asker", TO)
    answerer = Answerer(nodes.b, B, "answerer", TO)
    reporter = Returning(nodes.b, B, "reporter", "comm://" + B + "/room/subscription")

    async def report(number: int) -> None:
        await reporter.say("update", CHANGES, {"value": number}, sender=f"comm://{B}/room")

    runtimes = [observer, asker, answerer, reporter]
    killed: list[tuple[float, str]] = []
    async with asyncio.TaskGroup() as tasks:
        jobs = [tasks.create_task(each.run()) for each in runtimes]
        for each in runtimes:
            async with asyncio.timeout(60):
                await each.is_there.wait()
        asking = tasks.create_task(asker.steadily(100, asker.ask))
        reporting = tasks.create_task(reporter.steadily(100, report))
        await kill_at_random(nodes, killed)
        answered, told = asker.codes[200], len(observer.told)
        async with asyncio.timeout(120):  # it all comes back by itself
            while asker.codes[200] < answered + 200 or len(observer.told) < told + 200:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        for job in (asking, reporting):
            job.cancel()
        await asyncio.sleep(16.0)  # what is not answered now is 408 at whoever asked
        for job in jobs:
            job.cancel()

    numbers = [each.number for each in observer.told if each.number is not None]
    gaps = sum(each.number is None for each in observer.told)
    unanswered = asker.unanswered()
    print(
        f"killed {dict(Counter(what for _, what in killed))}; {len(numbers)} updates, {gaps} gaps, "
        f"{len(observer.losses)} sockets lost; answers {dict(asker.codes)}, unanswered "
        f"{len(unanswered)}; median {statistics.median(asker.round_trips) * 1000:.1f} ms"
    )
    assert numbers == sorted(set(numbers)), "each once, in order"
    assert observer.unsignalled(SIGNALLED) == []
    of_b = [at for at, what in killed if what == "b"]
    without_cause = [
        at for at in unanswered if not any(at - 1.0 <= kill <= at + 15.0 for kill in of_b)
    ]
    assert without_cause == [], "only the death of the node that was asked leaves a request alone"
