"""A process is told to stop while it answers a request that takes longer than it may. Real ones."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.node import running

pytestmark = [pytest.mark.long]


@pytest.mark.parametrize("role", ["web", "worker"])
def test_a_request_that_is_not_answered_in_time_does_not_keep_the_process(
    tmp_path: Path, template: Path, role: str
) -> None:
    settings = {"DRAIN_SECONDS": 0.01}
    if role == "web":
        settings["ROLE"] = role
    with (
        running(tmp_path, template, **settings) as node,
        closing(socket.create_connection((node.host, node.port), 30)) as client,
    ):
        for path in ("/health/live", *["/api/schema"] * 20):
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 200"  # the next one is being answered
        node.terminate()
        assert node.status() == 0
