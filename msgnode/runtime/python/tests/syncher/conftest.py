"""A node without a network, and two peers there who share data objects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from peers import FakeNode, Peer, settled

from msgnode.runtime.python.syncher import follower


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are hundredths of one."""
    for name in ("GAP_SECONDS", "READ_EVERY", "LEAST_RETRY"):
        monkeypatch.setattr(follower, name, getattr(follower, name) / 50)
    monkeypatch.setattr(follower, "MOST_RETRY", 0.1)


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    made = FakeNode()
    yield made
    for peer in made.peers:
        peer.close()
    await settled()


@pytest.fixture
async def alice(node: FakeNode) -> Peer:
    return node.peer()


@pytest.fixture
async def bob(node: FakeNode, alice: Peer) -> Peer:
    return node.peer()
