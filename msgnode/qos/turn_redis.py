"""The Redis that coturn shares with the node: secrets are written there, statistics read.

The connection is retried for ever; Redis does not repeat what was published meanwhile, so each
reconnection is reported as a gap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from . import statistics
from .statistics import Event

log = logging.getLogger(__name__)

TIMEOUT = 3.0
PAUSE = 1.0


class TurnRedis:
    """One per supervisor; it listens while `run` does.

    Args:
        url: the URL of the Redis, with the database of coturn's redis-userdb.
        realm: the realm of the servers.
        heard: called with events.
        gap: called when listening begins, because earlier events were missed.
    """

    def __init__(
        self, url: str, realm: str, heard: Callable[[Event], None], gap: Callable[[], None]
    ) -> None:
        self.is_listening = False
        self.fault = ""
        self._realm = realm
        self._heard = heard
        self._gap = gap
        self._client: Any = redis.asyncio.Redis.from_url(
            url,
            decode_responses=True,
            encoding_errors="replace",
            socket_connect_timeout=TIMEOUT,
            socket_timeout=TIMEOUT,
            health_check_interval=5,
        )

    async def publish(self, secrets: list[str]) -> bool:
        """Have exactly these secrets count; False if Redis is out of reach."""
        key = f"turn/realm/{self._realm}/secret"  # secret_store.py
        try:
            async with asyncio.timeout(TIMEOUT):
                known = await self._client.smembers(key)
                if known != set(secrets):
                    async with self._client.pipeline(transaction=True) as commands:
                        commands.sadd(key, *secrets)
                        if gone := known - set(secrets):
                            commands.srem(key, *gone)
                        await commands.execute()
        except (RedisError, OSError, TimeoutError) as error:
            self.fault = type(error).__name__
            return False
        return True

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError) as error:
                self.fault = type(error).__name__
                if self.is_listening:
                    log.warning("The Redis of the TURN servers is lost: %r", error)
            finally:
                self.is_listening = False
            await asyncio.sleep(PAUSE)

    async def _listen(self) -> None:
        async with self._client.pubsub() as channel:
            await channel.psubscribe(statistics.PATTERN)
            self._gap()
            self.is_listening = True
            self.fault = ""
            while True:
                message = await channel.get_message(ignore_subscribe_messages=True, timeout=1.0)
                if message is None:
                    continue
                event = statistics.parse(str(message["channel"]), str(message["data"]))
                if event is not None:
                    self._heard(event)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
