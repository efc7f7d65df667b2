"""A Redis of the simulation: what the node uses of it, byte for byte over the node's own client.

Streams, sets, values, publish and subscribe, expiry and blocking reads answer as the real one does;
tests/simulation/test_engines.py asks both the same. Faults: it restarts with or without its data,
takes no writes (maxmemory), is slow, or stands still.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import hiredis

from .world import Machine, Wire, World

OK = "+OK"


class ReplyError(Exception):
    """An error of a command."""


class RedisServer:
    """One server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_up, self.is_full, self.is_frozen = True, False, False
        self.commands = 0
        self.connections: list[ServerSide] = []
        self.wires: dict[int, tuple[Wire, Wire]] = {}  # by pid: to the server, and from it
        self._generation = 0
        self._id = 0
        self.run_id = self.replication_id = ""
        self.start(keeps_data=False)

    # --- its life ---------------------------------------------------------------------------------

    def start(self, keeps_data: bool) -> None:
        self._generation += 1
        self.run_id = f"{self._generation:040x}"
        self.replication_id = f"{self._generation + 0xABC:040x}"
        self.is_up = True
        if not keeps_data:
            self.values: dict[bytes, Any] = {}
            self.expires: dict[bytes, float] = {}

    def stop(self) -> None:
        self.is_up = False
        for each in tuple(self.connections):
            each.end()

    def thaw(self) -> None:
        self.is_frozen = False
        for each in tuple(self.connections):
            each.go_on()

    def wires_of(self, machine: Machine) -> tuple[Wire, Wire]:
        """The wires of a process: they stay when the process begins again."""
        if machine.pid not in self.wires:
            delay = (0.0001, 0.001)
            self.wires[machine.pid] = Wire(self.world, delay), Wire(self.world, delay)
        return self.wires[machine.pid]

    async def connect(self, machine: Machine, factory: Callable[[], asyncio.Protocol]) -> Any:
        """Connect a process, as loop.create_connection does."""
        to, back = self.wires_of(machine)
        answered: asyncio.Future[bool] = machine.create_future()

        def tell() -> None:
            if not answered.done():
                answered.set_result(self.is_up)

        to.send(lambda: back.send(lambda: _on(machine, tell)))
        if not await answered:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = factory()
        client = ClientSide(machine, protocol, to)
        ServerSide(self, client, back)
        protocol.connection_made(client)  # type: ignore[arg-type]
        return client, protocol

    # --- commands ---------------------------------------------------------------------------------

    def execute(self, connection: ServerSide, command: list[bytes]) -> Any:
        """Execute a command; what it answers, or a ReplyError."""
        self.commands += 1
        name = command[0].decode().upper()
        if self.is_full and name in ("SADD", "SET", "XADD"):
            raise ReplyError("OOM command not allowed when used memory > 'maxmemory'.")
        handler = getattr(self, f"_{name.lower()}", None)
        if handler is None:
            raise ReplyError(f"ERR unknown command '{name}'")
        return handler(connection, *command[1:])

    def get(self, key: bytes, kind: type) -> Any:
        """The value of a key, None if there is none; one that has expired is removed."""
        if key in self.expires and self.expires[key] <= self.world.now:
            self._remove(key)
        found = self.values.get(key)
        if found is not None and not isinstance(found, kind):
            raise ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return found

    def _remove(self, key: bytes) -> int:
        self.expires.pop(key, None)
        return int(self.values.pop(key, None) is not None)

    def _hello(self, _: ServerSide, *rest: bytes) -> Any:
        return {b"server": b"redis", b"version": b"7.0.15", b"proto": 3, b"mode": b"standalone",
                b"role": b"master"}  # fmt: skip

    def _info(self, _: ServerSide, section: bytes) -> bytes:
        most = 100 if self.is_full else 0
        return {
            b"memory": f"used_memory:100\r\nmaxmemory:{most}\r\nmaxmemory_policy:noeviction\r\n",
            b"server": f"run_id:{self.run_id}\r\n",
            b"replication": f"master_replid:{self.replication_id}\r\n",
        }[section].encode()

    def _sadd(self, _: ServerSide, key: bytes, *members: bytes) -> int:
        there = self.get(key, dict)
        if there is None:
            there = self.values[key] = {}
        before = len(there)
        there.update(dict.fromkeys(members))
        return len(there) - before

    def _srem(self, _: ServerSide, key: bytes, *members: bytes) -> int:
        there = self.get(key, dict) or {}
        removed = sum(there.pop(each, 0) is None for each in members)
        if not there and key in self.values:
            self._remove(key)
        return removed

    def _smembers(self, _: ServerSide, key: bytes) -> set[bytes]:
        return set(self.get(key, dict) or ())

    def _pexpire(self, _: ServerSide, key: bytes, milliseconds: bytes) -> int:
        if self.get(key, object) is None:
            return 0
        self.expires[key] = self.world.now + int(milliseconds) / 1000
        return 1

    def _set(self, _: ServerSide, key: bytes, value: bytes, *options: bytes) -> str:
        self._remove(key)
        self.values[key] = value
        if options:
            self._pexpire(_, key, options[1])
        return OK

    def _get(self, _: ServerSide, key: bytes) -> bytes | None:
        return self.get(key, bytes)

    def _mget(self, _: ServerSide, *keys: bytes) -> list[bytes | None]:
        return [found if isinstance(found := self.get(key, object), bytes) else None
                for key in keys]  # fmt: skip

    def _del(self, _: ServerSide, *keys: bytes) -> int:
        return sum(self._remove(key) for key in keys if self.get(key, object) is not None)

    def _xadd(self, _: ServerSide, key: bytes, *rest: bytes) -> bytes | None:
        fields = list(rest)
        stream = self.get(key, list)
        if fields[0].upper() == b"NOMKSTREAM":
            fields.pop(0)
            if stream is None:
                return None
        if stream is None:
            stream = self.values[key] = []
        self._id += 1
        id_ = int(self.world.now * 1000), self._id
        stream.append((id_, fields[1:]))
        for each in tuple(self.connections):
            each.look()
        return b"%d-%d" % id_

    def _xtrim(self, _: ServerSide, key: bytes, minid: bytes, least: bytes) -> int:
        stream = self.get(key, list) or []
        removed = bisect_left(stream, _number(least), key=itemgetter(0))
        del stream[:removed]
        return removed

    def xread(self, key: bytes, after: bytes, most: int) -> Any:
        """What a stream has after an id; None for nothing."""
        found = self.get(key, list) or []
        first = bisect_right(found, _number(after), key=itemgetter(0))
        new = found[first : first + most]
        return {key: [[b"%d-%d" % id_, fields] for id_, fields in new]} if new else None

    def _publish(self, _: ServerSide, channel: bytes, message: bytes) -> int:
        heard = [each for each in self.connections if channel in each.channels]
        for each in heard:
            each.push(b"message", channel, message)
        return len(heard)

    def _subscribe(self, connection: ServerSide, *channels: bytes) -> None:
        for each in channels:
            connection.channels.add(each)
            connection.push(b"subscribe", each, len(connection.channels))

    def _unsubscribe(self, connection: ServerSide, *channels: bytes) -> None:
        for each in channels:
            connection.channels.discard(each)
            connection.push(b"unsubscribe", each, len(connection.channels))


def _number(id_: bytes) -> tuple[int, int]:
    first, _, second = id_.partition(b"-")
    return int(first), int(second or 0)


class ServerSide:
    """The server's end of a connection: one command after another."""

    def __init__(self, server: RedisServer, client: ClientSide, back: Wire) -> None:
        self.channels: set[bytes] = set()
        self._server, self.client, self._back = server, client, back
        self._reader = hiredis.Reader()
        self._waiting: deque[list[bytes]] = deque()
        self._blocked: tuple[bytes, bytes, int] | None = None  # a read
        self._number = 0
        client.server = self
        server.connections.append(self)

    def received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (command := self._reader.gets()) is not False:
            self._waiting.append(command)
        self.go_on()

    def go_on(self) -> None:
        """Execute what waits, unless a read blocks."""
        while self._waiting and self._blocked is None and not self._server.is_frozen:
            command = self._waiting.popleft()
            name = command[0].upper()
            if name == b"XREAD":
                self._read(command)
                continue
            try:
                answer = self._server.execute(self, command)
            except ReplyError as error:
                answer = error
            if name not in (b"SUBSCRIBE", b"UNSUBSCRIBE"):
                self._send(_encoded(answer))

    def _read(self, command: list[bytes]) -> None:
        """XREAD COUNT n BLOCK ms STREAMS key id"""
        self._server.commands += 1
        self._number += 1
        self._blocked = command[6], command[7], int(command[2])
        try:
            self.look()
        except ReplyError as error:
            self._blocked = None
            self._send(_encoded(error))
        if self._blocked is not None:
            number = self._number
            self._server.world.after(int(command[4]) / 1000, lambda: self._time_is_up(number))

    def look(self) -> None:
        """Answer a blocked read if there is something now."""
        if self._blocked is not None and not self._server.is_frozen:
            found = self._server.xread(*self._blocked)
            if found is not None:
                self._answer_read(found)

    def _time_is_up(self, number: int) -> None:
        if self._blocked is not None and number == self._number:
            self._answer_read(None)

    def _answer_read(self, found: Any) -> None:
        self._blocked = None
        self._send(_encoded(found))
        self._server.world.after(0, self.go_on)

    def push(self, *parts: Any) -> None:
        self._send(b">%d\r\n" % len(parts) + b"".join(map(_encoded, parts)))

    def _send(self, data: bytes) -> None:
        self._back.send(lambda: self.client.received(data))

    def end(self) -> None:
        """End the connection from this side."""
        if self in self._server.connections:
            self._server.connections.remove(self)
            self._blocked = None
            self._waiting.clear()
            self._back.send(lambda: self.client.ended(ConnectionResetError("reset by peer")))

    def left(self) -> None:
        """The client has ended it."""
        if self in self._server.connections:
            self._server.connections.remove(self)
            self._blocked = None
            self._waiting.clear()


class ClientSide:
    """The node's end: an asyncio transport."""

    def __init__(self, machine: Machine, protocol: asyncio.Protocol, to: Wire) -> None:
        self.server: ServerSide | None = None
        self.machine, self._protocol, self._to = machine, protocol, to
        self._is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Wires take all."""

    def writelines(self, parts: list[bytes]) -> None:
        data, server = b"".join(parts), self.server
        if not self._is_closed and server is not None:
            self._to.send(lambda: server.received(data) if server._server.is_up else None)

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self.server is not None:
                self._to.send(self.server.left)
            self.machine.call_soon(self._protocol.connection_lost, None)

    close = abort

    def received(self, data: bytes) -> None:
        _on(self.machine, lambda: None if self._is_closed else self._protocol.data_received(data))

    def ended(self, error: Exception) -> None:
        def lost() -> None:
            if not self._is_closed:
                self._is_closed = True
                self._protocol.connection_lost(error)

        _on(self.machine, lost)


def _on(machine: Machine, call: Callable[[], object]) -> None:
    """Have a process do something in its next turn, if it still runs."""
    if not machine.is_dead:
        machine.call_soon(call)


def _encoded(value: Any) -> bytes:
    """A reply as RESP3 writes it."""
    match value:
        case None:
            return b"_\r\n"
        case ReplyError():
            return f"-{value}\r\n".encode()
        case str():
            return value.encode() + b"\r\n"
        case int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case dict():
            parts = (part for pair in value.items() for part in pair)
            return b"%%%d\r\n" % len(value) + b"".join(map(_encoded, parts))
        case set():
            return b"~%d\r\n" % len(value) + b"".join(map(_encoded, sorted(value)))
        case _:
            return b"*%d\r\n" % len(value) + b"".join(map(_encoded, value))
