"""One connection to a Redis, pipelined by turns of the event loop.

Commands of one turn leave in one write, replies come in order, and pushed messages (RESP3) go to
`on_push`.

Every wait has a limit: a command without a reply after `timeout` seconds ends the connection, and
with it everything that waits. Unwritten data is limited to WRITE_BYTES.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from . import faults
from .faults import Moved, RedisFault, Unreachable

Part = bytes | str | int
WRITE_BYTES = 16 * 1024 * 1024

_NOTHING = object()
_NO_BYTES = b"$0\r\n\r\n"
LARGE = 16 * 1024  # bytes of a last argument that is not copied


class Connection(asyncio.Protocol):
    """`on_lost` is called once, with the reason, when the connection has ended."""

    def __init__(
        self,
        timeout: float,
        on_push: Callable[[list[Any]], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._timeout = timeout
        self._on_push = on_push
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._waiting: deque[tuple[float, asyncio.Future[Any] | None]] = deque()
        self._is_full = False
        self._why = ""
        self._watch = self._loop.call_later(timeout, self._look)

    # --- what is asked of it ----------------------------------------------------------------------

    def execute(self, *command: Part) -> asyncio.Future[Any]:
        """Send a command; return a future of its reply. Raises RedisFault, or the future does."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(command)
        self._waiting.append((self._loop.time(), future))
        return future

    def cast(self, *command: Part) -> None:
        """Send a command and ignore its reply."""
        self._send(command)
        self._waiting.append((self._loop.time(), None))

    def subscribe(self, *command: Part) -> None:
        """Send SUBSCRIBE or UNSUBSCRIBE, whose replies are pushed."""
        self._send(command)

    def close(self, why: str = "closed") -> None:
        """Close the connection at once; pending commands fail with the reason."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def _send(self, command: tuple[Part, ...]) -> None:
        if self._transport is None or self._why:
            raise Unreachable(f"Redis is out of reach: {self._why or 'not connected'}.")
        if self._is_full:
            raise Unreachable("Redis does not take what it is sent.")
        if not self._out:
            self._loop.call_soon(self._flush)
        last = command[-1]
        if isinstance(last, bytes) and len(last) >= LARGE:  # goes as it is, not copied
            packed = hiredis.pack_command((*command[:-1], b""))  # type: ignore[arg-type]
            self._out += (packed[: -len(_NO_BYTES)], b"$%d\r\n" % len(last), last, b"\r\n")
        else:
            self._out.append(hiredis.pack_command(command))  # type: ignore[arg-type]  # of any length

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and not self._why:
            self._transport.writelines(out)

    def _look(self) -> None:
        """End a connection on which a reply is overdue."""
        now = self._loop.time()
        if self._waiting and now - self._waiting[0][0] > self._timeout:
            self.close("no answer")
            return
        self._watch = self._loop.call_later(self._timeout / 4, self._look)

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is made."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)

    def data_received(self, data: bytes) -> None:
        """asyncio: data has come."""
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                if isinstance(reply, hiredis.PushNotification):
                    self._on_push(reply)
                    continue
                future = self._waiting.popleft()[1]
                fault = (
                    faults.of_reply(str(reply)) if isinstance(reply, hiredis.ReplyError) else None
                )
                if isinstance(fault, Moved):
                    self.close("another server has its keys")
                if future is None or future.done():
                    continue
                if fault is not None:
                    future.set_exception(fault)
                else:
                    future.set_result(reply)
        except (hiredis.HiredisError, IndexError):
            self.close("it does not speak as a Redis does")

    def pause_writing(self) -> None:
        """asyncio: the write buffer is full."""
        self._is_full = True

    def resume_writing(self) -> None:
        """asyncio: there is room again."""
        self._is_full = False

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the connection is lost."""
        self._watch.cancel()
        self._why = self._why or (str(error) if error else "it ended the connection")
        fault: RedisFault = Unreachable(f"Redis is out of reach: {self._why}.")
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if future is not None and not future.done():
                future.set_exception(fault)
        self._on_lost(self._why)
