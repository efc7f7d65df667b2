"""A Channels layer on Redis Streams, for the messages between workers.

A channel is a stream that one process reads (`XREAD BLOCK`) and trims within seconds; a group is a
publish and subscribe channel, at most once, for messages that are repeated anyway. What was sent to
a channel waits there for `expiry` seconds, also while its reader is away or cannot reach Redis.

Rules
- Only the process that made a channel (`new_channel`) creates its stream, so nothing is written for
  a process that has gone: `send` then raises ChannelFull, as it does while Redis is full. Unread
  messages are never trimmed.
- A Redis that comes back with other data is read from its beginning, and the stream is created
  again; so a message may come twice, and senders must number what must not.
- It belongs to one event loop, that of its first use.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec
from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

from .client import RedisClient
from .cluster_client import ClusterClient, client_of
from .faults import RedisFault, Unreachable

AT_ONCE = 32  # messages of one read
TRIM_BYTES = 256 * 1024  # so much may have been read before it is trimmed,
TRIM_SECONDS = 1.0  # and for about so long: Redis may write what it has to a disk
TURN_BYTES = 256 * 1024  # so much is handed out in one turn of the event loop
MOST_PUSHED = 1000  # messages of groups that wait
BLOCK = 1.0  # seconds that a read waits for a message
_RETRY = 0.1

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class StreamChannelLayer(BaseChannelLayer):
    """The Channels layer of a process.

    `hosts` names one Redis (see url.py), as for other layers; keys begin with `prefix`.
    """

    extensions = ("groups",)

    def __init__(
        self,
        hosts: Sequence[str],
        prefix: str = "msgnode",
        expiry: int = 60,
        capacity: int = 100,
        channel_capacity: dict[str, int] | None = None,
    ) -> None:
        super().__init__(expiry=expiry, capacity=capacity, channel_capacity=channel_capacity)
        self._url = hosts[0]
        self._prefix = prefix
        self._client: RedisClient | ClusterClient | None = None
        self._connecting = asyncio.Lock()
        self._inboxes: dict[str, _Inbox] = {}
        self._groups: dict[bytes, set[str]] = {}
        self._joined: dict[bytes, asyncio.Future[None]] = {}

    # --- channels ---------------------------------------------------------------------------------

    async def new_channel(self, prefix: str = "specific") -> str:
        """Make a channel for this process. Raises RedisFault."""
        name = f"{prefix}.{uuid.uuid4().hex}!"
        inbox = _Inbox(self._url, self._key(name), self.expiry)
        await inbox.start()
        self._inboxes[name] = inbox
        return name

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Send to a channel. Raises ChannelFull (no reader, or no room), and RedisFault."""
        client = await self._connected()
        key = self._key(channel)
        stored = await client.execute(b"XADD", key, b"NOMKSTREAM", b"*", b"m", _encode(message))
        if stored is None:
            raise ChannelFull(f"Nobody reads {channel}.")

    async def receive(self, channel: str) -> dict[str, Any]:
        """The next message of a channel that this process has made."""
        message: dict[str, Any] = _decode(await self._inboxes[channel].next())
        return message

    # --- groups -----------------------------------------------------------------------------------

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group, from the return on. Raises RedisFault."""
        client = await self._connected()
        key = self._key(group)
        members = self._groups.setdefault(key, set())
        if not members:
            self._joined[key] = asyncio.get_running_loop().create_future()
            client.subscribe(b"SUBSCRIBE", key)
        members.add(channel)
        await asyncio.wait([self._joined[key]], timeout=BLOCK)
        if not self._joined[key].done():
            raise Unreachable("Redis does not take a subscription.")

    async def group_discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group. Raises RedisFault."""
        key = self._key(group)
        members = self._groups.get(key, set())
        members.discard(channel)
        if not members and self._groups.pop(key, None) is not None:
            self._joined.pop(key, None)
            (await self._connected()).subscribe(b"UNSUBSCRIBE", key)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Send to a group. Raises RedisFault."""
        client = await self._connected()
        await client.execute(b"PUBLISH", self._key(group), _encode(message))

    # --- the connection ---------------------------------------------------------------------------

    async def close(self) -> None:
        """Remove this process's channels, and end the connections."""
        await asyncio.gather(*(inbox.close() for inbox in self._inboxes.values()))
        self._inboxes.clear()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _connected(self) -> RedisClient | ClusterClient:
        if self._client is not None:
            return self._client
        async with self._connecting:
            if self._client is None:
                client = client_of(self._url, on_push=self._pushed)
                client.on_connected.append(self._subscribe_again)
                await client.start()
                self._client = client
        return self._client

    def _subscribe_again(self, is_new: bool) -> None:
        if self._client is not None and self._groups:
            self._client.subscribe(b"SUBSCRIBE", *self._groups)

    def _pushed(self, message: list[Any]) -> None:
        kind, key = message[0], message[1]
        if kind == b"message":
            for channel in self._groups.get(key, ()):
                inbox = self._inboxes.get(channel)
                if inbox is not None:
                    inbox.put(message[2])
        elif kind == b"subscribe":
            joined = self._joined.get(key)
            if joined is not None and not joined.done():
                joined.set_result(None)

    def _key(self, name: str) -> bytes:
        return f"{self._prefix}:{name}".encode()


class _Inbox:
    """The reader's side of one channel's stream. `_last` is the id read last."""

    def __init__(self, url: str, key: bytes, expiry: int) -> None:
        self._url = url
        self._client = RedisClient(url, "msgnode-inbox", key=key)
        self._client.on_connected.append(self._connected)
        self._key = key
        self._expiry = expiry
        self._last = b"0-0"
        self._messages: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_reading = False
        self._untrimmed = self._turn = 0
        self._trimmed_at = 0.0

    async def start(self) -> None:
        await self._client.start()

    async def close(self) -> None:
        """Remove the stream, over a new connection: in the old one that waits behind the read."""
        await self._client.close()
        remover = RedisClient(self._url, "msgnode-inbox", key=self._key)
        with suppress(RedisFault, TimeoutError):  # else it expires
            async with asyncio.timeout(BLOCK):
                await remover.start()
                await remover.execute(b"DEL", self._key)
        await remover.close()

    def put(self, message: bytes) -> None:
        """Add a message that did not come through the stream; beyond a limit it is lost."""
        if len(self._messages) < MOST_PUSHED:
            self._messages.append(message)
            self._wake()

    async def next(self) -> bytes:
        while not self._messages:
            self._turn = 0
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self._messages.popleft()
        if not self._messages and not self._is_reading:
            self._read()
        self._turn += len(message)
        if self._turn > TURN_BYTES:
            self._turn = 0
            await asyncio.sleep(0)
        return message

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _connected(self, is_new: bool) -> None:
        if is_new:
            self._last = b"0-0"
        self._is_reading = False
        self._client.cast(b"XADD", self._key, b"*", b"opened", b"")
        self._keep()
        if not self._messages:
            self._read()

    def _keep(self) -> None:
        self._client.cast(b"PEXPIRE", self._key, self._expiry * 1000)

    def _read(self) -> None:
        """Read on, and trim what was read."""
        client, key = self._client, self._key
        if self._is_reading:
            return
        try:
            if self._must_trim():
                self._untrimmed, self._trimmed_at = 0, monotonic()
                client.cast(b"XTRIM", key, b"MINID", _after(self._last))
                self._keep()
            found = client.execute(
                *(b"XREAD", b"COUNT", AT_ONCE, b"BLOCK", int(BLOCK * 1000)),
                *(b"STREAMS", key, self._last),
            )
        except Unreachable:
            return  # `_connected` will begin again
        self._is_reading = True
        found.add_done_callback(self._have_read)

    def _must_trim(self) -> bool:
        if self._untrimmed > TRIM_BYTES:
            return True
        return self._untrimmed > 0 and monotonic() - self._trimmed_at > TRIM_SECONDS

    def _have_read(self, found: asyncio.Future[Any]) -> None:
        self._is_reading = False
        if found.cancelled():
            return
        if found.exception() is not None:
            asyncio.get_running_loop().call_later(_RETRY, self._read)
            return
        if not (streams := found.result()):
            self._stay()
            return
        for id_, fields in streams[self._key]:
            self._last = id_
            if fields[0] == b"m":
                self._messages.append(fields[1])
                self._untrimmed += len(fields[1])
        if self._messages:
            self._wake()
        else:
            self._read()

    def _stay(self) -> None:
        """Keep an idle stream alive, and create it again if somebody removed it."""

        def kept(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None and not done.result():
                self._connected(True)
            elif not self._messages:
                self._read()

        try:
            self._client.execute(b"PEXPIRE", self._key, self._expiry * 1000).add_done_callback(kept)
        except Unreachable:
            return


def _after(id_: bytes) -> bytes:
    milliseconds, _, number = id_.partition(b"-")
    return b"%b-%d" % (milliseconds, int(number) + 1)
