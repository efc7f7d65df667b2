"""The relay load in the words of NATS: PUB from the senders, SUB by the receivers, over WebSocket.

A receiver's messages are all of one length, so they are counted by the bytes that came.
"""

from __future__ import annotations

import asyncio

from bench.wire import LoadSocket, frame, message_text

from .relay import Pair, RelayLoad, fields

_BINARY = 0x82
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n'


class NatsSocket(LoadSocket):
    """A client of NATS. `message_bytes` is the length of one MSG with its payload."""

    __slots__ = ("_bytes", "_ready", "message_bytes")

    def __init__(self, path: bytes) -> None:
        super().__init__(path)
        self.message_bytes = 0
        self._bytes = 0
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def enter(self, commands: bytes) -> None:
        """Say who we are and what we listen to; returns once NATS has read it."""
        self._ready = asyncio.get_running_loop().create_future()
        self.transport.write(frame(commands, _BINARY))
        await asyncio.wait_for(self._ready, 30)

    def _control(self, head: int, payload: bytes) -> None:
        if head != _BINARY:
            super()._control(head, payload)
        elif payload.endswith(b"PONG\r\n") and not self._ready.done():
            self._ready.set_result(None)
        elif payload == b"PING\r\n":
            self.transport.write(frame(b"PONG\r\n", _BINARY))
        elif self.message_bytes and self.on_frames is not None:
            self._bytes += len(payload)
            number, self._bytes = divmod(self._bytes, self.message_bytes)
            if number:
                self.on_frames(number)


class NatsRelayLoad(RelayLoad):
    """The same pairs on NATS; the payload is the same message."""

    async def _open(self, number: int) -> None:
        for pair in range(len(self._pairs), number):
            sender = await NatsSocket.connect(self._port, "/")
            receiver = await NatsSocket.connect(self._port, "/")
            assert isinstance(sender, NatsSocket)
            assert isinstance(receiver, NatsSocket)
            await sender.enter(_CONNECT)
            await receiver.enter(_CONNECT + b"SUB receiver.%d 1\r\nPING\r\n" % pair)
            self._pairs.append(Pair(sender, receiver))

    def _frames(self, number: int, size: int, ids: int = 1) -> list[bytes]:
        payload = message_text(**fields("sender", "receiver", size))
        head = b"receiver.%d " % number
        receiver = self._pairs[number].receiver
        assert isinstance(receiver, NatsSocket)
        receiver.message_bytes = len(b"MSG %b1 %d\r\n" % (head, len(payload))) + len(payload) + 2
        return [frame(b"PUB %b%d\r\n%b\r\n" % (head, len(payload), payload), _BINARY)]
