"""Assembles quality of service for node/parts.py: the connector and its parts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from msgnode.bus.ports import Alarms, Listener
from msgnode.core.record import ReservationEvent, SessionRecord
from msgnode.net.back_end import BackEnd
from msgnode.storage.fence import Check

from .bookings import CREDENTIAL_SECONDS, Limits
from .broker import Broker
from .component import QosConnector
from .embedded_broker import EmbeddedBroker
from .notifier import Notifier
from .relays import Relays
from .remote_broker import UNREACHABLE, RemoteBroker
from .store import ReservationStore
from .supervisor import UNUSED_SECONDS, Supervisor
from .sweep import Ended

_CONNECTIONS = 32
_NO_TLS = "TURN credentials are given over TLS only, and PUBLIC_URL of this node is not https."
_MOST = 2**31 - 1
"""Most bytes of one row."""

Note = Callable[[SessionRecord], None]


class ReservationFence(NamedTuple):
    """Which worker writes reservations, and whether it still may.

    Attributes:
        epoch: of the worker.
        check: raises inside a transaction if it may not write any more.
        fenced: called, in the thread that commits, when it did.
    """

    epoch: str
    check: Check
    fenced: Callable[[], None]


class Instead(Broker, Protocol):
    """A broker that is asked instead of the one of the settings, while it is chosen."""

    on_change: list[Callable[[], None]]
    """Called when that may have changed."""

    @property
    def is_chosen(self) -> bool:
        """Whether it is asked."""
        ...

    def describe(self) -> tuple[str, str]:
        """How it is, and its last fault."""
        ...


class QosService:
    """The broker that the settings name, or none, behind its connector.

    Args:
        domain: of the node.
        settings: the setting QOS.
        fence: of this worker.
        grace: seconds that reservations outlive their sessions.
        notifier: tells the owners of reservations.
        alarms: the node's alarms.
        note: takes rows for the traffic record.
        instead: what makes the broker that is asked instead, where there is one.
    """

    def __init__(
        self,
        domain: str,
        settings: Mapping[str, Any],
        fence: ReservationFence,
        grace: float,
        notifier: Notifier,
        alarms: Alarms,
        note: Note,
        instead: Callable[[ReservationStore], Instead],
    ) -> None:
        limits = Limits(per_subject=settings["MAX_PER_SUBJECT"])
        self.store = ReservationStore(limits, fence.check, fence.fenced)
        self._back_end: BackEnd | None = None
        self._remote: RemoteBroker | None = None
        refusal = "" if settings["GIVES_CREDENTIALS"] else _NO_TLS
        broker = self._broker(settings["BROKER"])
        rows = ReservationRows(note)
        self.notifier = notifier
        relays = None
        if settings["BROKER"] == "embedded":
            relays = Relays(
                fence.epoch,
                settings["TURN_REDIS_URL"],
                settings["REALM"],
                settings["POLL_SECONDS"],
                CREDENTIAL_SECONDS,
                alarms.raise_alarm,
                alarms.clear_alarm,
                rows.relayed,
            )
        self.supervisor = Supervisor(
            fence.epoch,
            self.notifier,
            UNUSED_SECONDS,
            grace,
            relays,
            timedelta(days=settings["KEPT_DAYS"]),
            rows.ended,
        )
        self._instead = instead(self.store)
        self._otherwise = broker
        self._is_wanted = asyncio.Event()
        if broker is not None:
            self._is_wanted.set()
        self._instead.on_change.append(self._is_wanted.set)
        self.connector = QosConnector(domain, self._asked, refusal, self._describe, rows.asked)

    def _asked(self) -> Broker | None:
        return self._instead if self._instead.is_chosen else self._otherwise

    def _broker(self, named: str) -> Broker | None:
        if not named:
            return None
        if named == "embedded":
            return EmbeddedBroker(self.store)
        self._back_end = BackEnd(named, UNREACHABLE, 3.0, 1, _CONNECTIONS)
        self._remote = RemoteBroker(self.store, self._back_end)
        return self._remote

    def _describe(self) -> tuple[str, str]:
        if self._instead.is_chosen:
            return self._instead.describe()
        return self.state, self._remote.fault if self._remote is not None else ""

    @property
    def state(self) -> str:
        """How the broker is, as far as this worker knows: it, its servers, their Redis."""
        if self._instead.is_chosen:
            return self._instead.describe()[0]
        if self._otherwise is None:
            return "off"
        if self._remote is not None:
            return "away" if self._remote.fault else "connected"
        relays = self.supervisor.relays
        if relays is None or not self.supervisor.supervises:
            return "standby"
        up = relays.servers.up
        text = f"{sum(up.values())} of {len(up)} TURN servers up"
        return f"{text}, Redis away" if relays.hears is False else text

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the node."""
        return [self._supervise()]

    async def _supervise(self) -> None:
        """Supervise once there is a broker; when it goes, there may be reservations left."""
        await self._is_wanted.wait()
        await self.supervisor.run()

    async def stop(self) -> None:
        """Commit what was submitted, and close all connections."""
        await self.supervisor.stop()
        await self.store.stop()
        if self._back_end is not None:
            await self._back_end.close()


class ReservationRows:
    """Notes what happens to reservations; on the event loop.

    Args:
        note: takes a row for the record.
    """

    def __init__(self, note: Note) -> None:
        self._note = note

    def asked(self, caller: Listener, traffic_class: str, code: int) -> None:
        """A reservation was made, or refused."""
        event = ReservationEvent.RESERVED if code < 300 else ReservationEvent.REFUSED
        self._note(
            SessionRecord(time.time(), caller.id, caller.runtime_url, event, traffic_class, code)
        )

    def relayed(self, traffic_class: str, size: int) -> None:
        """Record bytes relayed for reservations of a class; negative to correct a sum."""
        event = ReservationEvent.RELAYED
        while size:
            part = max(-_MOST, min(_MOST, size))
            self._note(SessionRecord(time.time(), "", "", event, traffic_class, size=part))
            size -= part

    def ended(self, ended: Ended) -> None:
        """A reservation has ended."""
        event = ReservationEvent.ENDED
        self._note(
            SessionRecord(
                time.time(), str(UUID(ended.session_id)), ended.runtime_url, event, ended.reason,
                lasted=ended.lasted,
            )
        )  # fmt: skip
