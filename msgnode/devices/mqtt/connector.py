"""The MQTT connector: one worker serves the broker, the others stand by.

Rules
- The worker with the claim is connected: once for the frames of devices, and once per sensor topic,
  so that a topic that is slowed down delays no other. It keeps the claim while its own lease runs;
  when it dies or stops, another takes it, and the broker still has what was not acknowledged.
- An alarm stands while the broker is out of reach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from msgnode.bus.ports import ComponentInfo
from msgnode.core.faults import FAULTS

from .broker import BrokerAccess
from .broker_client import BrokerAddress
from .counters import MqttCounters
from .device_frames import DeviceFrames
from .sensors import SensorFeed, SensorTopic
from .session import Opener
from .topics import DeviceTopics

log = logging.getLogger(__name__)

ALARM = "mqtt-broker-away"
LOOKS_EVERY = 1.0
STOP_SECONDS = 3.0
OFF, STANDBY, CONNECTED, AWAY = "off", "standby", "connected", "away"


class Claim(Protocol):
    """The right to serve the broker, which one worker has."""

    async def take(self) -> bool:
        """Whether this worker has it, from now on or still."""
        ...

    async def release(self) -> None:
        """Leave it to another."""
        ...


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """`prefix` begins the devices' topics; `idle` is in seconds, see DeviceFrames."""

    domain: str
    address: BrokerAddress
    prefix: str
    idle: float


class MqttConnector:
    """One instance per worker.

    Args:
        settings: where the broker is.
        devices: opens the sessions of devices.
        sensors: opens those of sensor topics.
        claim: of the one worker that serves the broker.
        holds_lease: whether this worker's lease runs; none connects without.
        load: reads the rows of the console.
        raise_alarm, clear_alarm: of the node.
    """

    def __init__(
        self,
        settings: MqttSettings,
        devices: Opener,
        sensors: Opener,
        claim: Claim,
        holds_lease: Callable[[], bool],
        load: Callable[[], Awaitable[list[SensorTopic]]],
        raise_alarm: Callable[[str, str, str], None],
        clear_alarm: Callable[[str, str], None],
    ) -> None:
        self.counters = MqttCounters()
        self.info = ComponentInfo("mqtt", "connector", str(settings.address), STANDBY)
        self._settings = settings
        client_id = f"messaging-node-{settings.domain}"
        self._access = BrokerAccess(settings.address, client_id, self.counters, holds_lease)
        self._devices_opener = devices
        self._sensors_opener = sensors
        self._claim = claim
        self._load = load
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._frames: DeviceFrames | None = None
        self._feeds: dict[SensorTopic, SensorFeed] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._told = ""  # the fault of which an alarm was raised
        self._has_cleared = False
        self._is_stopped = False
        self._is_stale = True

    # --- what it is asked -------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """One of standby, connected, away."""
        if self._frames is None:
            return STANDBY
        return AWAY if self._fault else CONNECTED

    @property
    def devices(self) -> int:
        """How many devices have an open session."""
        return len(self._frames) if self._frames is not None else 0

    @property
    def topics(self) -> int:
        """How many sensor topics are connected."""
        return sum(each.broker.is_up for each in self._feeds.values())

    @property
    def objects(self) -> int:
        """How many data objects the sensors have."""
        return sum(map(len, self._feeds.values()))

    @property
    def unacknowledged(self) -> int:
        """Messages that were read and wait to be carried."""
        return sum(each.broker.unacknowledged for each in self._parts)

    @property
    def _parts(self) -> list[DeviceFrames | SensorFeed]:
        frames = [self._frames] if self._frames is not None else []
        return [*frames, *self._feeds.values()]

    @property
    def _fault(self) -> str:
        return next(filter(None, (each.fault for each in self._parts)), "")

    def update_info(self) -> ComponentInfo:
        """Its line in the console, as it is now."""
        info, counters = self.info, self.counters
        info.state = {CONNECTED: f"{self.devices} connected"}.get(self.state, self.state)
        info.answered = counters.received - counters.refused - counters.dropped
        info.failed = counters.refused + counters.dropped
        info.last_error = self._fault or counters.last_error
        return info

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the broker while this worker has the claim. Runs until cancelled."""
        while not self._is_stopped:
            try:
                if await self._claim.take():
                    await self._serve()
                else:
                    self._cancel()
            except Exception as error:  # the claim stands as long as the worker's lease
                log.warning("The claim of the MQTT broker could not be looked at: %s", error)
            await asyncio.sleep(LOOKS_EVERY)

    def topics_changed(self, payload: dict[str, object]) -> None:
        """The rows of the console are others now."""
        self._is_stale = True

    async def stop(self) -> None:
        """Leave the broker to another worker."""
        self._is_stopped = True
        had = self._frames is not None
        tasks = list(self._tasks.values())
        self._cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        if had:
            await self._claim.release()

    def abort(self) -> None:
        """Serve nothing more at once: the worker has lost its lease."""
        self._is_stopped = True
        for each in self._parts:
            each.broker.drop()
        self._cancel()

    async def _serve(self) -> None:
        if self._frames is None and not self._is_stopped:
            settings = self._settings
            self._frames = DeviceFrames(
                settings.domain,
                DeviceTopics(settings.prefix, settings.domain),
                replace(self._access, client_id=f"{self._access.client_id}-devices"),
                self._devices_opener,
                settings.idle,
                self._changed,
            )
            self._start(self._frames, self._frames.run())
            self._is_stale = True
        if self._is_stale:
            self._is_stale = False
            try:
                await self._use(await self._load())
            except BaseException:
                self._is_stale = True
                raise

    async def _use(self, rows: list[SensorTopic]) -> None:
        """Serve these sensor topics from now on, and no others."""
        gone = [topic for topic in self._feeds if topic not in rows]
        read = {(topic.id, topic.topic) for topic in rows}
        for topic in gone:
            feed = self._feeds.pop(topic)
            if (topic.id, topic.topic) not in read:  # or the broker keeps what nobody wants
                feed.broker.forget_session()
            task = self._tasks.pop(feed)
            task.cancel()
            await asyncio.wait([task], timeout=STOP_SECONDS)
        for topic in rows:
            if topic not in self._feeds and not self._is_stopped:
                feed = SensorFeed(
                    topic,
                    self._settings.domain,
                    self._access,
                    self._sensors_opener,
                    self._changed,
                )
                self._feeds[topic] = feed
                self._start(feed, feed.run())
        self._changed()

    def _start(self, part: object, run: Awaitable[None]) -> None:
        async def kept() -> None:
            try:
                await run
            except Exception as error:
                FAULTS.note("MQTT connection", error)

        self._tasks[part] = asyncio.create_task(kept())

    def _cancel(self) -> None:
        tasks, self._tasks = self._tasks, {}
        self._frames = None
        self._feeds = {}
        self._told, self._has_cleared = "", False
        for task in tasks.values():
            task.cancel()

    def _changed(self) -> None:
        """The state of a connection is another: the alarm follows it."""
        if self._frames is None:
            return
        fault = self._fault
        subject = self._settings.domain
        if not fault and not self._has_cleared:
            self._told, self._has_cleared = "", True
            with suppress(RuntimeError):
                self._clear_alarm(ALARM, subject)
        elif fault and fault != "not connected yet" and fault != self._told:
            self._told, self._has_cleared = fault, False
            text = f"The MQTT broker {self._settings.address} is out of reach: {fault}"
            self._raise_alarm(ALARM, subject, text)
