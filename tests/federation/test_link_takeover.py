"""The link of two nodes of two workers each: the workers that have it are killed, others take over.

The nodes are behind balancers, so that each end is dialled at the wrong worker, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from .clusters import Clusters, Numbers, clusters

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
    pytest.mark.timeout(300),  # four workers start, one after the other
]


@pytest.fixture
def nodes(tmp_path: Path, template: Path) -> Iterator[Clusters]:
    with clusters(tmp_path, template, workers=2) as both:
        yield both


async def test_case_61_a_worker_takes_over_the_link_at_either_end_and_nothing_is_lost(
    nodes: Clusters,
) -> None:
    """What was answered was heard, each request once and in order; what was stored gets there."""
    owners = await asyncio.to_thread(nodes.linked)
    others = await asyncio.to_thread(nodes.others)
    numbers = Numbers(*others)
    async with numbers.passing(50):
        for owner, other in zip(owners, others, strict=True):
            owner.kill()
            await numbers.passes()
            assert other in await asyncio.to_thread(nodes.linked)
    numbers.check()
