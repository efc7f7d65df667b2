"""A node without a network, and two peers there who share data objects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fake_clock import settled
from peers import FakeNode, Peer


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
