"""A reader that stalls: somebody sends it ten megabytes a second, and other pairs relay meanwhile.

A reader that is ended for it comes back with its token and stalls again, so that one is always in
the way. In the other mode the same reader reads all it is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from bench.processes import resident_bytes
from bench.wire import LoadSocket, message

from .relay import RelayLoad
from .runtimes import open_session, runtime_url, text

READER = "stalling-reader"
SENDER = "stalling-sender"
BYTES_PER_SECOND = 10_000_000
SIZE = 10_000
_TICK = 0.01
_FULL = 1 << 20  # bytes the sender has in its own buffer when the node does not read it


class StallingLoad(RelayLoad):
    def __init__(self, port: int, server_pid: int) -> None:
        super().__init__(port, server_pid)
        self._token = ""
        self._reader: LoadSocket | None = None
        self._sender: LoadSocket | None = None
        self._stalls = False
        self._ended = 0
        self._sent = 0
        self._memory = 0

    async def run(  # type: ignore[override]
        self, stalls: bool, pairs: int, window: int, size: int, seconds: float
    ) -> dict[str, Any]:
        """One sample: the neighbours' rate, how often the reader was ended, the node's memory."""
        self._stalls, self._ended, self._sent = stalls, 0, 0
        await self._meet()
        self._memory = resident_bytes(self._server_pid)
        tasks = [asyncio.create_task(each) for each in (self._send(), self._read(), self._watch())]
        sample = await super().run(pairs, window, size, seconds)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return {
            **sample,
            "ended": self._ended,
            "sent_mb_s": self._sent * SIZE / seconds / 1e6,
            "memory_mb": self._memory / 1e6,
        }

    async def _meet(self) -> None:
        """The sender, and the reader with a token to come back with."""
        if self._sender is None:
            self._sender, _ = await open_session(self._port, SENDER, [_hyperty(SENDER)])
            self._reader, body = await open_session(self._port, READER, [_hyperty(READER)])
            self._token = body["runtimeToken"]

    async def _send(self) -> None:
        assert self._sender is not None
        fields = {"from_": _hyperty(SENDER), "to": _hyperty(READER), "body": {"value": text(SIZE)}}
        frame = message(id=1, type="update", **fields)
        portion = int(BYTES_PER_SECOND * _TICK / SIZE)
        transport = self._sender.transport
        while True:
            await asyncio.sleep(_TICK)
            if transport.get_write_buffer_size() < _FULL:
                transport.write(frame * portion)
                self._sent += portion

    async def _read(self) -> None:
        """Stall, or read; come back when the node has ended the socket."""
        while True:
            if self._reader is None or self._reader.closed:
                self._ended += 1
                self._reader = await LoadSocket.connect(self._port)
                url = f"{runtime_url(READER)}/{self._token}"
                self._reader.transport.write(
                    message(id=1, type="re-open", from_=url, to="mn:/session")
                )
            transport = self._reader.transport
            if self._stalls and transport.is_reading():
                transport.pause_reading()
            elif not self._stalls and not transport.is_reading():
                transport.resume_reading()
            if self._stalls and self._is_dropped(transport):
                self._reader.closed = True
                transport.abort()
            await asyncio.sleep(0.1)

    @staticmethod
    def _is_dropped(transport: Any) -> bool:
        """Whether the node has closed a socket nobody reads: only its state tells."""
        socket = transport.get_extra_info("socket")
        info = socket.getsockopt(6, 11, 8)  # TCP_INFO; its first byte is the state
        return bool(info[0] != _ESTABLISHED)

    async def _watch(self) -> None:
        while True:
            self._memory = max(self._memory, resident_bytes(self._server_pid))
            await asyncio.sleep(0.05)


_ESTABLISHED = 1


def _hyperty(name: str) -> str:
    return f"hyperty://localhost/{name}"
