"""A client of a Redis Cluster: each command goes to the server that has its key.

Rules
- The distribution of keys is queried from any server that answers: at the start, while a server is
  out of reach, and after one has said that a key has moved. The connection that said so is closed.
- A command for a server that is out of reach, or for a moved key, is refused (Unreachable); the
  caller repeats it, as with one server.
- Each command here has one key, except MGET, which is split.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from .client import TIMEOUT, RedisClient, ignore, section
from .connection import Part
from .faults import RedisFault, Unreachable
from .slots import Slots, owner, slots_of
from .url import RedisUrl, parse

log = logging.getLogger(__name__)

_LOOK_AGAIN = 0.5  # seconds between two questions while a server is out of reach


class ClusterClient:
    """The interface of RedisClient, over all masters of a cluster.

    `on_connected` callbacks are called for each master that is back, or new.
    """

    def __init__(
        self,
        url: RedisUrl,
        name: str,
        timeout: float = TIMEOUT,
        on_push: Callable[[list[Any]], None] = ignore,
    ) -> None:
        self.on_connected: list[Callable[[bool], None]] = []
        self._on_push = on_push
        self._url = url
        self._name = name
        self._timeout = timeout
        self._slots: list[Slots] = []
        self._masters: dict[tuple[str, int], RedisClient] = {}
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect for the first time. Raises RedisFault."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._take(await slots_of(self._url, self._timeout))
        except TimeoutError:
            raise Unreachable("The Redis Cluster does not answer.") from None
        self._looking = asyncio.create_task(self._look())
        self._tell(False)

    @property
    def run_id(self) -> str:
        """The ids of the masters' Redis processes."""
        return " ".join(sorted(each.run_id for each in self._masters.values()))

    async def close(self) -> None:
        """Close the connections for good."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._masters.values()))

    def execute(self, *command: Part) -> asyncio.Future[Any]:
        """Send a command; return a future of its reply. Raises RedisFault, or the future does."""
        if command[0] == b"MGET":
            return asyncio.ensure_future(self._get_all(command[1:]))
        return self._master_of(command[1]).execute(*command)

    def cast(self, *command: Part) -> None:
        """Send a command and ignore its reply. Raises RedisFault if it cannot be sent."""
        self._master_of(command[1]).cast(*command)

    def subscribe(self, *command: Part) -> None:
        """Send SUBSCRIBE or UNSUBSCRIBE; the reply is pushed. Raises RedisFault."""
        for channel in command[1:]:
            self._master_of(channel).subscribe(command[0], channel)

    async def _get_all(self, keys: Sequence[Part]) -> list[Any]:
        """Get each key by itself, because a cluster answers MGET only for keys of one slot."""
        replies = [self._master_of(key).execute(b"GET", key) for key in keys]
        return await asyncio.gather(*replies)

    def _master_of(self, key: Part) -> RedisClient:
        at = owner(self._slots, key)
        return self._masters[at]

    def _tell(self, is_new: bool) -> None:
        for each in self.on_connected:
            each(is_new)

    # --- who the masters are ----------------------------------------------------------------------

    async def _look(self) -> None:
        """Query the distribution of keys while a master is away, and afterwards."""
        seen = self._state()
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            state = self._state()
            if state == seen and all(each.is_connected for each in self._masters.values()):
                continue
            seeds = (*self._masters, *self._url.seeds)
            try:
                slots = await slots_of(self._url._replace(seeds=seeds), self._timeout)
                if slots != self._slots:
                    await self._take(slots)
                    self._tell(True)
                seen = self._state()
            except RedisFault as fault:
                log.debug("The Redis Cluster is not whole yet: %s", fault)
            except Exception:
                log.exception("The Redis Cluster could not be asked.")

    def _state(self) -> list[int]:
        return [each.connects for each in self._masters.values()]

    async def _take(self, slots: list[Slots]) -> None:
        """Set the masters. Raises RedisFault if one is out of reach."""
        masters: dict[tuple[str, int], RedisClient] = {}
        new: list[RedisClient] = []
        for _, host, port in slots:
            master = masters.get((host, port)) or self._masters.get((host, port))
            if master is None:
                one = self._url._replace(host=host, port=port, seeds=())
                master = RedisClient(one, self._name, self._timeout, on_push=self._on_push)
                new.append(master)
            masters[host, port] = master
        try:
            await asyncio.gather(*(each.start() for each in new))
        except BaseException:
            await asyncio.gather(*(each.close() for each in new))
            raise
        for each in new:
            each.on_connected.append(self._tell)
        before, self._masters, self._slots = self._masters, masters, slots
        left = [each for place, each in before.items() if place not in masters]
        await asyncio.gather(*(each.close() for each in left))


def client_of(
    url: str, name: str = "msgnode", on_push: Callable[[list[Any]], None] = ignore
) -> RedisClient | ClusterClient:
    """A client of the Redis at a URL, not connected yet. Raises Unsuitable for an invalid URL."""
    parsed = parse(url)
    kind = ClusterClient if parsed.seeds else RedisClient
    return kind(parsed, name, on_push=on_push)


def check(url: str) -> None:
    """Check that the Redis at a URL is reachable and suitable; blocks. Raises RedisFault."""

    async def once() -> None:
        client = client_of(url)
        await client.start()
        await client.close()

    asyncio.run(once())


def information(url: str) -> dict[str, str]:
    """What a Redis says of itself (INFO), and its `time` in seconds; blocks. Raises RedisFault.

    Of a cluster it is one of the masters.
    """

    async def once() -> dict[str, str]:
        client = RedisClient(url)
        await client.start()
        try:
            told = section(await client.execute("INFO"))
            seconds, microseconds = await client.execute("TIME")
        finally:
            await client.close()
        return {**told, "time": f"{int(seconds)}.{int(microseconds):06}"}

    return asyncio.run(once())
