"""Chromium, Node.js and Python share data objects over a real node, and over lines that break."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.length import length
from tests.node import Node, running
from tests.runtime.proxies import CuttingProxy
from tests.runtime.sharers import Sharer, sharer

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("SHARE_SECONDS", length(8, full=20)))
EQUAL_WITHIN = 90.0
GROUPS = (
    ("python", "nodejs", "chromium"),
    ("nodejs", "python", "chromium", "nodejs"),
    ("chromium", "chromium", "python"),
)
"""The reporter, and who observes."""


def until_equal(all_of_them: list[Sharer], seconds: float) -> list[dict[str, Any]]:
    """Their states, once they are the same."""
    limit = time.monotonic() + seconds
    while True:
        states = [each.act("state") for each in all_of_them]
        shown = [[each[key] for key in ("data", "version", "children")] for each in states]
        if all(each == shown[0] for each in shown):
            return states
        assert time.monotonic() < limit, states
        time.sleep(0.2)


@contextmanager
def cutting_every(seconds: float, lines: list[CuttingProxy]) -> Iterator[None]:
    """All lines are cut again and again, while the block runs."""
    is_over = threading.Event()

    def cut() -> None:
        while not is_over.wait(seconds):
            for line in lines:
                line.cut()

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        yield
    finally:
        is_over.set()
        cutting.join()


@pytest.mark.timeout(SECONDS * 3 + EQUAL_WITHIN + 30)  # a run takes longer than undisturbed
@pytest.mark.parametrize("kinds", GROUPS, ids="-".join)
def test_all_end_equal_and_no_gap_is_unnoticed_while_lines_are_cut(
    kinds: tuple[str, ...], node: Node, browser: Any
) -> None:
    chance = random.Random(kinds[0])
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(CuttingProxy(node.port))) for _ in kinds]
        runtimes = [
            stack.enter_context(sharer(kind, browser, "localhost", {"localhost": line.port}))
            for kind, line in zip(kinds, lines, strict=True)
        ]
        url = runtimes[0].act("create")["url"]
        with cutting_every(0.7, lines):
            for observer in runtimes[1:]:
                observer.act("subscribe", url=url)
        times = int(SECONDS * 20)
        for each in runtimes:
            each.act("run", times=times)
        cuts = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or cuts <= SECONDS / 4:  # a line that is down cannot be cut
            time.sleep(chance.uniform(0.2, 1.5))
            cuts += chance.choice(lines).cut()
        for each in runtimes:
            each.act("finish")
        states = until_equal(runtimes, EQUAL_WITHIN)
        assert states[0]["data"]["n"] == times
        for state in states:
            assert state["unnoticed"] == []
            assert state["refused"] == []
        assert len(states[0]["children"]) == len(kinds[1:]) * (times // 20)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[dict[str, int]]:
    """The ports of the nodes of two domains."""
    place = tmp_path_factory.mktemp("two")
    with ExitStack() as stack:
        yield {
            domain: stack.enter_context(running(place / domain, template, DOMAIN=domain)).port
            for domain in ("a.test", "b.test")
        }


@pytest.mark.parametrize(("reporter", "observer"), [("python", "nodejs"), ("nodejs", "python")])
def test_an_object_of_another_domain_is_observed_as_a_visitor(
    reporter: str, observer: str, ports: dict[str, int], browser: Any
) -> None:
    with ExitStack() as stack:
        there = stack.enter_context(sharer(reporter, browser, "b.test", ports))
        line = stack.enter_context(closing(CuttingProxy(ports["b.test"])))
        lines = {**ports, "b.test": line.port}
        here = stack.enter_context(sharer(observer, browser, "a.test", lines))
        here.act("subscribe", url=there.act("create")["url"])
        for each in (there, here):
            each.act("run", times=100)
        for _ in range(3):
            time.sleep(1)
            line.cut()
        for each in (there, here):
            each.act("finish")
        states = until_equal([there, here], EQUAL_WITHIN)
        assert states[0]["data"]["n"] == 100
        assert len(states[0]["children"]) == 5
        assert states[1]["unnoticed"] == states[1]["refused"] == []
