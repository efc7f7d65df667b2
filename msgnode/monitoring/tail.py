"""Lets an operator follow messages live, over a local socket of the worker.

DATA_DIR/tail-<pid>.sock, readable by the node's account only; clients also send the token in
DATA_DIR/tail.token. The first line in says what to follow; then each record is a line of JSON out.
Bodies only on request, without the tokens in them. A client that does not read loses records and is
told how many; the node never waits for it. While nobody follows, the pipeline has no observer and
pays nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from msgnode.bus.ports import MessageObserver
from msgnode.bus.refusals import SESSION_ADDRESS
from msgnode.core import addresses
from msgnode.core import record as records
from msgnode.core.faults import FAULTS
from msgnode.core.record import TrafficRecord
from msgnode.core.redaction import MASK, without_tokens
from msgnode.resources import own_key
from msgnode.workers.worker_process import runs

log = logging.getLogger(__name__)

_KEPT = 1_000
_BATCH = 50
_PATIENCE = 5.0
_BUFFER = 64 * 1024


class Follow(msgspec.Struct):
    """The filter of a follower; empty fields match all. `address` includes everything below it."""

    token: str
    address: str = ""
    types: frozenset[str] = frozenset()
    outcomes: frozenset[str] = frozenset()
    bodies: bool = False

    def wants(self, record: TrafficRecord) -> bool:
        """Whether a message is one that the operator wants to see."""
        return (
            (not self.types or record.type in self.types)
            and (not self.outcomes or record.outcome in self.outcomes)
            and (
                not self.address
                or addresses.is_under(record.to, self.address)
                or addresses.is_under(record.sender, self.address)
            )
        )


class _Follower:
    def __init__(self, follow: Follow) -> None:
        self.follow = follow
        self.waiting: deque[tuple[TrafficRecord, bytes]] = deque()
        self.missed = 0
        self.wake = asyncio.Event()

    def note(self, record: TrafficRecord, body: bytes) -> None:
        if not self.follow.wants(record):
            return
        if len(self.waiting) >= _KEPT:
            self.missed += 1
        else:
            self.waiting.append((record, body if self.follow.bodies else b""))
        self.wake.set()


class Tail:
    """`attach` gives the pipeline a tap or takes it away."""

    def __init__(
        self,
        folder: Path,
        worker: str,
        attach: Callable[[MessageObserver | None], None],
    ) -> None:
        self._path = folder / f"tail-{os.getpid()}.sock"
        self._token_path = folder / "tail.token"
        self._worker = worker
        self._attach = attach
        self._followers: list[_Follower] = []
        self._server: asyncio.Server | None = None
        self._token = ""

    async def start(self) -> None:
        """Open the socket; a node that cannot is a node without a tail, no more."""
        try:
            await asyncio.to_thread(_clear_remains, self._path.parent)
            self._token = await asyncio.to_thread(own_key, self._token_path)
            self._server = await asyncio.start_unix_server(self._serve, self._path)
            self._path.chmod(0o600)
        except (OSError, ValueError) as fault:
            log.warning("Messages cannot be followed: %s", fault)

    async def stop(self) -> None:
        """Disconnect the followers, and remove the socket's file."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for follower in self._followers:
            follower.wake.set()

    # --- one follower -----------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), _PATIENCE)
            follow = msgspec.json.decode(line, type=Follow)
            if not hmac.compare_digest(follow.token.encode(), self._token.encode()):
                raise ValueError("The token is not the one in tail.token.")
        except (ValueError, TimeoutError) as fault:
            writer.write(_line({"error": str(fault) or "Nothing was asked for in time."}))
        else:
            writer.transport.set_write_buffer_limits(_BUFFER)
            writer.write(_line({"following": self._worker}))
            await self._follow(_Follower(follow), reader, writer)
        writer.close()

    async def _follow(
        self, follower: _Follower, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._followers.append(follower)
        self._attach(self._note)
        jobs = {asyncio.ensure_future(self._write(follower, writer)),
                asyncio.ensure_future(reader.read())}  # fmt: skip
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            self._followers.remove(follower)
            if not self._followers:
                self._attach(None)

    async def _write(self, follower: _Follower, writer: asyncio.StreamWriter) -> None:
        while self._server is not None and self._server.is_serving():
            await follower.wake.wait()
            follower.wake.clear()
            while follower.waiting:
                batch = [
                    follower.waiting.popleft() for _ in range(min(_BATCH, len(follower.waiting)))
                ]
                writer.write(b"".join(self._shown(*each) for each in batch))
                await writer.drain()
            if follower.missed:
                missed, follower.missed = follower.missed, 0
                writer.write(_line({"missed": missed}))
                await writer.drain()

    def _note(self, record: TrafficRecord, body: bytes) -> None:
        record = records.without_tokens(record)
        for follower in self._followers:
            with FAULTS.kept_to("follower"):
                follower.note(record, body)

    def _shown(self, record: TrafficRecord, body: bytes) -> bytes:
        shown = msgspec.structs.asdict(record)
        if body and record.to != SESSION_ADDRESS:
            shown["body"] = _readable(body)
        return _line(shown)


def _readable(body: bytes) -> Any:
    """A body as it may be shown."""
    try:
        return without_tokens(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return MASK


def _line(what: object) -> bytes:
    return msgspec.json.encode(what) + b"\n"


def _clear_remains(folder: Path) -> None:
    """Remove the sockets of workers that were killed."""
    for path in folder.glob("tail-*.sock"):
        pid = path.stem.removeprefix("tail-")
        if pid.isdigit() and (int(pid) == os.getpid() or not runs(int(pid))):
            path.unlink(missing_ok=True)  # a process of ours before us had our number
