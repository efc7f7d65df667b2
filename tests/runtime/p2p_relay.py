"""A real TURN server for direct connections through a relay alone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.node import free_port
from tests.qos.coturn import _answers


@contextmanager
def relay(place: Path, *more: str) -> Iterator[dict[str, str]]:
    """A TURN server on the loopback, as the ICE server of a connection."""
    if shutil.which("turnserver") is None:
        pytest.skip("There is no turnserver on this machine.")
    port = free_port()
    words = [
        *("turnserver", "-n", "--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1", "--no-cli"),
        *(f"--listening-port={port}", "--lt-cred-mech", "--user=u:p", "--realm=localhost"),
        *("--no-tls", "--no-dtls", "--no-rfc5780", "--min-port=48100", "--max-port=48900"),
        *(f"--pidfile={place}/turn.pid", f"--userdb={place}/turn.db", "--log-file=stdout", *more),
    ]
    with (place / "turn.log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + 20
        while not _answers(port):
            said = (place / "turn.log").read_text(errors="replace")
            assert server.poll() is None and time.monotonic() < limit, said
        yield {"urls": f"turn:127.0.0.1:{port}", "username": "u", "credential": "p"}
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
