"""Fixtures of the runtime's tests. They need nothing of a node."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bus_harness import Bench  # noqa: E402
from world import FakeCatalogue  # noqa: E402


@pytest.fixture
async def catalogue() -> AsyncIterator[FakeCatalogue]:
    """A catalogue that a test fills."""
    async with FakeCatalogue() as served:
        yield served


@pytest.fixture
def bench() -> Bench:
    """A MessageBUS by itself."""
    return Bench()
