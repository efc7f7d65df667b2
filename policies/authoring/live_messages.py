"""Live messages for the playground.

It queries the worker's tail over its socket, and the other workers.

DATA_DIR/tail-<pid>.sock, one per worker of this machine; the first line out is the query, every
line in is a message. Blocks for SECONDS, and a second more for other workers; the node never waits
for readers. Texts of bodies are masked if those of the decision log are.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
from django.conf import settings

from policies.enforcement.decision_buffer import masked

SECONDS = 3.0
ENOUGH = 20
MAX_BYTES = 4 * 1024 * 1024

Source = Callable[[float, int], Sequence[Any]]
"""Messages that pass within so many seconds, at most so many."""


def messages_now(
    seconds: float = SECONDS, enough: int = ENOUGH, others: Source | None = None
) -> list[Any]:
    """Messages that pass the node within so many seconds, as the playground takes them.

    Those of this worker and, where it has any, of the others.
    """
    if others is None:
        return messages_here(seconds, enough)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(others, seconds, enough)
        return [*messages_here(seconds, enough), *elsewhere.result()][:enough]


def messages_here(seconds: float, enough: int) -> list[dict[str, Any]]:
    """Messages that pass this worker; of a process that is none, the workers of its machine."""
    folder = Path(settings.DATA_DIR)
    try:
        token = (folder / "tail.token").read_text()
    except OSError:
        return []
    ask = json.dumps({"token": token, "bodies": True}).encode() + b"\n"
    found: list[dict[str, Any]] = []
    until = monotonic() + seconds
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        own = folder / f"tail-{os.getpid()}.sock"
        for path in [own] if own.exists() else folder.glob("tail-*.sock"):
            if tail := _connected(path):
                stack.enter_context(tail)
                tail.sendall(ask)
                selector.register(tail, selectors.EVENT_READ, bytearray())
        while selector.get_map() and len(found) < enough and (left := until - monotonic()) > 0:
            for key, _ in selector.select(left):
                piece = key.fileobj.recv(65536)  # type: ignore[union-attr]
                waiting = key.data
                waiting += piece
                lines, _, rest = bytes(waiting).rpartition(b"\n")
                waiting[:] = rest
                if not piece or len(waiting) > MAX_BYTES:
                    selector.unregister(key.fileobj)
                found += [shown for line in lines.splitlines() if (shown := _message(line))]
    return found[:enough]


def _connected(path: Path) -> socket.socket | None:
    """A worker's socket; None if the worker was killed and left it behind."""
    tail = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    tail.settimeout(SECONDS)
    try:
        tail.connect(str(path))
    except OSError:
        tail.close()
        return None
    return tail


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        told = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if "at" not in told:
        return None
    body = told.get("body") or {}
    hides = settings.POLICY["LOG_MASKS_BODIES"]
    return {
        "id": msgspec.Raw(told["id"].encode() or b"0"),
        "type": told["type"],
        "from": told["sender"],
        "to": told["to"],
        "body": masked(body) if hides else body,
    }
