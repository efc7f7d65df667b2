"""A client that stays connected to a Redis: one server, or the master named by sentinels.

In a cluster it is the master of one certain key (for all keys: cluster_client.py).

While it is not connected, commands are refused at once (Unreachable); it reconnects by itself, with
growing pauses. Each time it checks whether the server is suitable (faults.check_server), and
whether it is the same: another `run_id` or replication id means that its data may be gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import redis
from redis.asyncio.sentinel import Sentinel

from msgnode.core.back_off import BackOff

from . import faults
from .connection import Connection, Part
from .faults import RedisFault, Unreachable, Unsuitable
from .slots import owner, slots_of
from .url import RedisUrl, parse, tls_context

log = logging.getLogger(__name__)

TIMEOUT = 4.0  # seconds, for each step: an unreachable server is named within 5
_PAUSES = (0.05, 2.0)  # seconds between two attempts, the first and the longest


def ignore(message: list[Any]) -> None:
    """Ignore a pushed message."""


class RedisClient:
    """One instance per purpose; blocking commands have a client of their own.

    `on_connected` callbacks are called when commands can be sent, with whether the server may have
    lost its data. `on_push` gets pushed messages.
    """

    def __init__(
        self,
        url: str | RedisUrl,
        name: str = "msgnode",
        timeout: float = TIMEOUT,
        key: bytes = b"",
        on_push: Callable[[list[Any]], None] = ignore,
    ) -> None:
        self.on_connected: list[Callable[[bool], None]] = []
        self._on_push = on_push
        self.connects = 0
        self._url = parse(url) if isinstance(url, str) else url
        self._key = key
        self._name = name
        self._timeout = timeout
        self._connection: Connection | None = None
        self._server: tuple[str, str] | None = None
        self._why = "not connected"
        self._again: asyncio.Task[None] | None = None
        self._is_closed = False
        self._has_no_room = False  # at the last connection

    async def start(self) -> None:
        """Connect for the first time. Raises RedisFault, also if Redis is full."""
        self._is_closed = False
        await self._connect()
        if self._has_no_room:
            await self.close()
            raise faults.of_reply("OOM")

    @property
    def is_connected(self) -> bool:
        """Whether commands can be sent."""
        return self._connection is not None

    @property
    def run_id(self) -> str:
        """The id of the Redis process it is, or was, connected to."""
        return self._server[0] if self._server is not None else ""

    async def close(self) -> None:
        """Close the connection for good."""
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
            await asyncio.gather(self._again, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
            await asyncio.sleep(0)

    def execute(self, *command: Part) -> asyncio.Future[Any]:
        """Send a command; return a future of its reply. Raises RedisFault, or the future does."""
        return self._there().execute(*command)

    def cast(self, *command: Part) -> None:
        """Send a command and ignore its reply. Raises RedisFault if it cannot be sent."""
        self._there().cast(*command)

    def subscribe(self, *command: Part) -> None:
        """Send SUBSCRIBE or UNSUBSCRIBE; the reply is pushed. Raises RedisFault."""
        self._there().subscribe(*command)

    def _there(self) -> Connection:
        if self._connection is None:
            raise Unreachable(f"Redis is out of reach: {self._why}.")
        return self._connection

    # --- connecting -------------------------------------------------------------------------------

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._open()
                try:
                    server = await self._greet(connection)
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError:
            raise Unreachable("Redis does not answer.") from None
        except OSError as error:
            raise Unreachable(f"Redis cannot be reached: {error.strerror or error}.") from None
        is_new = self._server is not None and self._server != server
        self._server = server
        self._connection = connection
        self.connects += 1
        for each in self.on_connected:
            each(is_new)

    async def _open(self) -> Connection:
        url, loop = self._url, asyncio.get_running_loop()

        def make() -> Connection:
            connection = Connection(self._timeout, self._on_push, lambda why: lost(why))
            made.append(connection)
            return connection

        def lost(why: str) -> None:
            if made and made[0] is self._connection:
                self._lost(why)

        made: list[Connection] = []
        if url.path:
            await loop.create_unix_connection(make, url.path)
        else:
            host, port = await self._locate()
            tls = None if url.tls is None else tls_context(url.tls)
            await loop.create_connection(make, host, port, ssl=tls)
        return made[0]

    async def _locate(self) -> tuple[str, int]:
        url = self._url
        if url.seeds:
            return owner(await slots_of(url, self._timeout), self._key)
        if not url.sentinels:
            return url.host, url.port
        options = {"socket_timeout": self._timeout / 4, "password": url.password or None}
        options |= url.tls_of_redis_py
        sentinel = Sentinel(url.sentinels, sentinel_kwargs=options)
        try:
            host, port = await sentinel.discover_master(url.service)
            return str(host), int(port)
        except redis.RedisError as error:
            raise Unreachable(f"No sentinel names a master {url.service}: {error}") from None
        finally:
            for each in sentinel.sentinels:
                await each.aclose()

    async def _greet(self, connection: Connection) -> tuple[str, str]:
        """Authenticate, and identify the server; return what tells it from another."""
        url = self._url
        login = ("AUTH", url.username or "default", url.password) if url.password else ()
        hello = await connection.execute("HELLO", 3, *login, "SETNAME", self._name)
        if url.database:
            await connection.execute("SELECT", url.database)
        memory = section(await connection.execute("INFO", "memory"))
        server = section(await connection.execute("INFO", "server"))
        replication = section(await connection.execute("INFO", "replication"))
        most = int(memory.get("maxmemory", 0))
        faults.check_server(
            hello[b"version"].decode(),
            "" if self._url.is_cluster else hello[b"mode"].decode(),
            memory.get("maxmemory_policy", ""),
            most,
        )
        self._has_no_room = 0 < most <= int(memory.get("used_memory", 0))
        if hello[b"role"] != b"master":
            raise Unreachable("REDIS_URL names a replica, which takes nothing.")
        return server.get("run_id", ""), replication.get("master_replid", "")

    # --- connecting again -------------------------------------------------------------------------

    def _lost(self, why: str) -> None:
        self._connection, self._why = None, why
        if not self._is_closed:
            log.warning("The connection to Redis is lost: %s.", why)
            self._again = asyncio.create_task(self._connect_again())

    async def _connect_again(self) -> None:
        back_off = BackOff(*_PAUSES)
        while True:
            try:
                await self._connect()
                log.info("Redis is there again.")
                return
            except RedisFault as fault:
                self._why = str(fault)
                if isinstance(fault, Unsuitable):
                    log.error("Redis is there again, but: %s", fault)
            except Exception:
                log.exception("Redis could not be connected to.")
            await asyncio.sleep(back_off.failed())


def section(text: bytes) -> dict[str, str]:
    """The fields of a section of INFO."""
    lines = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}
