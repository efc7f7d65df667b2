"""A worker is told to stop before it is ready: it leaves the others in order. Real workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import waiting
from tests.e2e.pair import Pair, frozen, running
from tests.node import START_SECONDS, Node

pytestmark = [pytest.mark.long]


@pytest.fixture
def pair(tmp_path: Path, template: Path, server: str) -> Iterator[Pair]:
    """Two workers with leases that a freeze does not outlast."""
    with running(tmp_path, template, WORKER_TIMEOUT=20, ASGI_SERVER=server) as both:
        yield both


def registered(node: Node) -> set[int]:
    """The processes of the workers that have rows."""
    return {pid for (pid,) in node.rows("SELECT pid FROM msgnode_worker")}


@pytest.mark.parametrize("turn", [signal.SIGTERM, signal.SIGINT])
def test_w7_told_to_stop_while_it_starts_a_worker_takes_leave(
    pair: Pair, turn: signal.Signals
) -> None:
    pair.other.terminate()
    assert pair.other.status() == 0
    with frozen(pair.one):
        pair.other.begin()
        waiting.until(lambda: pair.other.pid in registered(pair.one), START_SECONDS)
        os.kill(pair.other.pid, turn)
        os.kill(pair.other.pid, turn)
        assert pair.other.status() == 0
        assert registered(pair.one) == {pair.one.pid}
    pair.other.start()  # by then the other has looked at who is there
    assert not pair.one.rows("SELECT text FROM msgnode_alarm WHERE kind = 'unclean-stop'")
