"""Whole workers that a test starts in its own process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from msgnode.node import Node
from msgnode.workers.cluster import Cluster
from msgnode.workers.protocol import PROTOCOL
from tests.stage.worker import LEASE, Start


@pytest.fixture
async def start(
    monkeypatch: pytest.MonkeyPatch, settings: Any, redis_url: str
) -> AsyncIterator[Start]:
    settings.REDIS_URL = redis_url
    settings.NODE = {**settings.NODE, "WORKER_TIMEOUT": LEASE}
    settings.RECORD = {**settings.RECORD, "ON": False}
    pids = iter([os.getpid(), 1, os.getppid()])  # of processes that run
    started: list[Node] = []

    async def start(protocol: int = PROTOCOL, reads_orders: bool = True) -> Node:
        """A worker; one that reads no orders does so only when a test has it do."""
        pid = next(pids)
        monkeypatch.setattr(os, "getpid", lambda: pid)
        worker = Node()
        monkeypatch.undo()
        assert isinstance(worker.parts.cluster, Cluster)
        worker.parts.cluster.transport.protocol = protocol
        if not reads_orders:
            worker.parts.control._every = 3600.0
        await worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        if not worker.parts.lease.is_lost:
            await worker.stop()
