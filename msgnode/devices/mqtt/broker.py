"""Keeps one connection to the broker: connects, subscribes, reads, publishes, reconnects.

Rules
- A message of QoS 1 is acknowledged once it was carried, in the order of arrival. The broker sends
  about `window` unacknowledged ones (mosquitto some more) and keeps the others, so senders are
  slowed down.
- The broker keeps the session while the node is away. What it sends again is carried once: a
  repeated message has its packet identifier, so the last ones are recognised by that and their
  digest.
- At most as many own messages are pending as the broker accepts; for each the caller is told when
  it has arrived, or why the broker refuses it. TCP_NODELAY is set, because otherwise an
  acknowledgement takes forty milliseconds and more.
- A connection that fails is retried with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import aiomqtt

from msgnode.core.back_off import BackOff

from .broker_client import BrokerAddress, BrokerClient, Done
from .counters import MqttCounters
from .delivery import Delivery

log = logging.getLogger(__name__)

STEADY = 10.0
"""A connection that ends sooner is tried again later each time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """How this worker connects to the broker.

    Attributes:
        address: the broker's address.
        client_id: the node's client id, with which the broker ends an older connection of it.
        counters: the counters.
        may_connect: whether this worker may connect; one that was frozen would end its successor's
            connection.
    """

    address: BrokerAddress
    client_id: str
    counters: MqttCounters
    may_connect: Callable[[], bool]


class BrokerEvents(NamedTuple):
    """What is called of a connection, on the event loop.

    Attributes:
        receive: with each message; must have its `done` called.
        up: when the connection is up.
        down: when it is down, with the reason.
        room: when there is room to publish again.
    """

    receive: Callable[[Delivery], None]
    up: Callable[[], None]
    down: Callable[[str], None]
    room: Callable[[], None]


class Broker:
    """One instance per connection; `filters` are the topics to subscribe."""

    def __init__(
        self, access: BrokerAccess, filters: tuple[str, ...], events: BrokerEvents
    ) -> None:
        self.address = access.address
        self.client_id = access.client_id
        self.counters = access.counters
        self.is_up = False
        self.receive = events.receive
        self.on_room = events.room
        self.known: OrderedDict[int, Delivery] = OrderedDict()
        self._filters = filters
        self._on_up = events.up
        self._on_down = events.down
        self._may_connect = access.may_connect
        self._keeps = True
        self.begins_anew = False
        self._client: BrokerClient | None = None

    @property
    def has_room(self) -> bool:
        """Whether a message may be published now."""
        return self.is_up and self._client is not None and self._client.has_room

    @property
    def unacknowledged(self) -> int:
        """Messages of the broker that have not been carried yet."""
        return len(self._client.unacknowledged) if self._client is not None else 0

    @property
    def oldest(self) -> Delivery | None:
        """The first of them, which keeps the others from being acknowledged."""
        waiting = self._client.unacknowledged if self._client is not None else None
        return waiting[0] if waiting else None

    @property
    def is_choked(self) -> bool:
        """Whether the broker may soon have to stop sending, though some messages are carried."""
        if self._client is None or 2 * self.unacknowledged < self.address.window:
            return False
        return any(each.is_done for each in self._client.unacknowledged)

    def publish(
        self,
        topic: str,
        payload: bytes,
        done: Done,
        correlation: bytes = b"",
        seconds: int = 0,
    ) -> None:
        """Publish at QoS 1 where there is room.

        Args:
            topic: where.
            payload: what.
            done: is called on the event loop when the broker has it, or has refused it.
            correlation: of the request that it responds to.
            seconds: it lasts, 0 for as long as the broker keeps it.

        Raises:
            MqttError: the connection has just ended.
            NotTaken: the broker would not take it.
        """
        if self._client is None:
            raise aiomqtt.MqttError("not connected")
        self._client.send(topic, payload, done, correlation, seconds)

    async def run(self) -> None:
        """Be connected; runs until cancelled."""
        back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            if not self._may_connect():
                await asyncio.sleep(_FIRST_PAUSE)
                continue
            client = self._client = BrokerClient(self)
            why = ""
            began = time.monotonic()
            try:
                await client.connect()
                await client.listen(self._filters)
                self.begins_anew = False
                self.is_up = True
                self._on_up()
                self.on_room()
                why = await client.gone()
            except Exception as error:
                why = str(error) or type(error).__name__
            finally:
                was_up, self.is_up = self.is_up, False
                client.hang_up(self._keeps)
                if not why:
                    self._on_down("")
            self.counters.lost_connections += 1
            log.log(logging.WARNING if was_up else logging.INFO, "No MQTT broker: %s", why)
            self._on_down(why)
            if was_up and time.monotonic() - began > STEADY:
                back_off.reset()
            await asyncio.sleep(back_off.failed())

    def forget_session(self) -> None:
        """Have the broker discard the session once the connection has ended."""
        self._keeps = False

    def begin_anew(self, why: str) -> None:
        """Reconnect without the session that the broker has kept, because it is useless."""
        self.begins_anew = True
        if self._client is not None:
            self._client.fail(why)

    def drop(self) -> None:
        """Give the connection up without a word."""
        self.is_up = False
        if self._client is not None:
            self._client.drop()
