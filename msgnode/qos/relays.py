"""The supervisor's work on the TURN servers: visits, accounting, the shared secrets.

If Redis is away, allocations continue, servers are still visited, an alarm stands, and the accounts
of that time are incomplete until the totals of each allocation come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import accounting, figures, secret_store, turn_state
from .accounting import Ledger
from .statistics import Event
from .turn_servers import Alarm, Clear, TurnServers

if TYPE_CHECKING:
    from .turn_redis import TurnRedis

GAP = "qos-accounting-gap"
_PUBLISH_SECONDS = 5.0
_QUIET_SECONDS = 5.0
"""How long Redis may be away before the alarm is raised."""

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
FULL = "turn-full"
_LOOK_EVERY = 5.0


class Relays:
    """One per worker.

    Args:
        epoch: the worker's epoch.
        redis_url: the Redis of the servers, "" if there is none.
        realm: the realm of the servers.
        poll: seconds between two visits to a server.
        credential_seconds: most seconds for which a credential is valid.
        raise_alarm: takes kind, subject and text.
        clear_alarm: takes kind and subject.
        on_relayed: called with the bytes relayed for reservations of a class.
    """

    def __init__(
        self,
        epoch: str,
        redis_url: str,
        realm: str,
        poll: float,
        credential_seconds: int,
        raise_alarm: Alarm,
        clear_alarm: Clear,
        on_relayed: Callable[[str, int], None],
    ) -> None:
        self.ledger = Ledger()
        self.servers = TurnServers(poll, raise_alarm, clear_alarm)
        self.received = self.sent = 0
        self._on_relayed = on_relayed
        self._uncounted = 0
        self._room = RoomWatch(raise_alarm, clear_alarm)
        self._epoch = epoch
        self._realm = realm
        self._redis_url = redis_url
        self._credential_seconds = credential_seconds
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._redis: TurnRedis | None = None
        self._listening: asyncio.Task[None] | None = None
        self._published = 0.0
        self._heard_at = 0.0
        self._has_gap = False
        self._is_alarmed: bool | None = None

    async def round(self, in_thread: InThread) -> None:
        """One look. Raises NotHolder."""
        if self._redis is None and self._redis_url:
            from .turn_redis import TurnRedis  # the client of Redis is for who has one

            self._redis = TurnRedis(self._redis_url, self._realm, self._note, self._missed)
            self._listening = asyncio.create_task(self._redis.run())
            self._heard_at = time.monotonic()
        await self._visit(in_thread)
        await self._account(in_thread)
        if self._redis is not None:
            await self._share(self._redis, in_thread)
        await self._room.look(in_thread)

    @property
    def hears(self) -> bool | None:
        """Whether traffic reports arrive; None without a Redis."""
        return None if self._redis is None else self._redis.is_listening

    @property
    def uncounted(self) -> int:
        """Events of allocations that found no room among those that are counted."""
        return self._uncounted + self.ledger.lost

    async def stop(self) -> None:
        """Another worker supervises from now on, or none."""
        self._uncounted = self.uncounted
        await self.servers.stop()
        self._room.forget()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._redis is not None:
            await self._redis.close()
        self._redis = self._listening = None
        self._published = 0.0
        self.ledger = Ledger()

    async def _visit(self, in_thread: InThread) -> None:
        for visit, is_up in self.servers.finished():
            await in_thread(partial(turn_state.settle, self._epoch, visit, is_up))
        resting = self.servers.resting()
        self.servers.begin(await in_thread(lambda: turn_state.visits(resting)))

    async def _account(self, in_thread: InThread) -> None:
        if self._has_gap:
            self._has_gap = False
            await in_thread(lambda: accounting.mark_gap(self._epoch))
        strangers = self.ledger.strangers(accounting.AT_ONCE)
        if strangers:
            self.ledger.adopt(await in_thread(partial(accounting.look_up, strangers)))
        entries = [replace(each) for each in self.ledger.unwritten(accounting.AT_ONCE)]
        if entries:
            written = await in_thread(partial(accounting.write, self._epoch, entries))
            self.ledger.written(written.versions)
            for traffic_class, (received, sent) in written.added.items():
                self.received += max(0, received)
                self.sent += max(0, sent)
                self._on_relayed(traffic_class, received + sent)
        self.ledger.forget(time.monotonic())

    async def _share(self, redis: TurnRedis, in_thread: InThread) -> None:
        """Have the secrets that count in Redis, and an alarm while it is away."""
        now = time.monotonic()
        if now - self._published < _PUBLISH_SECONDS:
            return
        secrets = await in_thread(lambda: secret_store.current(self._credential_seconds))
        if await redis.publish(secrets) and redis.is_listening:
            self._heard_at = now
        self._published = now
        is_away = time.monotonic() - self._heard_at > _QUIET_SECONDS
        if is_away:
            self._raise_alarm(
                GAP,
                self._realm,
                f"The Redis of the TURN servers is away ({redis.fault or 'no answer'}): what they "
                "carry is not counted until it is back.",
            )
        elif self._is_alarmed is not False:
            self._clear_alarm(GAP, self._realm)
        self._is_alarmed = is_away

    def _note(self, event: Event) -> None:
        self.ledger.note(event, time.monotonic())

    def _missed(self) -> None:
        self.ledger.gap()
        self._has_gap = True


class RoomWatch:
    """Raises the alarm `turn-full` while no server has room for another flow of a class.

    One for the supervisor.

    Args:
        raise_alarm: takes kind, subject and text.
        clear_alarm: takes kind and subject.
    """

    def __init__(self, raise_alarm: Alarm, clear_alarm: Clear) -> None:
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._full: set[str] = set()
        self._is_first = True
        self._looked = 0.0

    async def look(self, in_thread: InThread) -> None:
        """See whether there is room, every few seconds."""
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY and not self._is_first:
            return
        self._looked = now
        full: dict[str, str] = await in_thread(figures.full_classes)
        before = self._full
        if self._is_first:  # what an earlier supervisor has raised may be over
            before = before | set(await in_thread(figures.classes))
        for name in sorted(before - full.keys()):
            self._clear_alarm(FULL, name)
        for name in sorted(full.keys() - self._full):
            self._raise_alarm(FULL, name, full[name])
        self._full = set(full)
        self._is_first = False

    def forget(self) -> None:
        """Another worker supervises from now on."""
        self._full = set()
        self._is_first = True
