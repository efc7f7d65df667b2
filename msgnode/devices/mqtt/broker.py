"""One connection to the broker, kept: connects, subscribes, reads and publishes, and comes back.

Rules
- A message of QoS 1 is acknowledged once it was carried, in the order of arrival. The broker sends
  about `window` that are not (mosquitto sends some more) and keeps the others: so a sender is held
  back. A broker that has sent more than MAX_BYTES of them is left, and asked anew.
- The broker keeps our session while we are away. What it sends again is carried once: a repeated
  message has its packet identifier, so the last ones are known by that and their digest.
- At most as many of our own messages are under way as the broker takes; each is told when it has
  arrived. TCP_NODELAY is set, or an acknowledgement takes forty milliseconds and more.

The one file that knows private names of aiomqtt and of paho: a client that acknowledges itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from msgnode.core.faults import FAULTS

from .counters import MqttCounters
from .delivery import Delivery

log = logging.getLogger(__name__)

KEEPALIVE = 10
"""Seconds without a word until the broker is asked; so many more, and it is taken for gone."""
PATIENCE = 10.0
"""Seconds that the broker may take for an answer."""
KEPT_SECONDS = 3_600
"""The broker keeps our session, and what comes for it, for so long while we are away."""
UNDER_WAY = 20
"""Of our own messages, if the broker does not say that it takes fewer."""
MAX_BYTES = 64 * 1024 * 1024
"""Of messages that were read and not carried."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the broker is and who we are to it. `window` and `max_bytes` bound what it sends."""

    host: str
    port: int
    username: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    window: int = 1_000
    max_bytes: int = 1024 * 1024

    def __str__(self) -> str:
        """Without the password."""
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{self.host}:{self.port}"


class Broker:
    """One instance for each connection. The callables are called on the event loop.

    Args:
        address: of the broker.
        client_id: by which the broker knows us, and ends an older connection of ours.
        filters: the topics to subscribe.
        receive: takes each message, and has `done` of it called.
        on_up, on_down: the connection is there; it is gone, and why.
        on_room: there is room to publish again.
        counters: what is counted.
        may_connect: whether this worker may; one that was frozen would end its successor's
            connection.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        filters: tuple[str, ...],
        receive: Callable[[Delivery], None],
        on_up: Callable[[], None],
        on_down: Callable[[str], None],
        on_room: Callable[[], None],
        counters: MqttCounters,
        may_connect: Callable[[], bool],
    ) -> None:
        self.address = address
        self.client_id = client_id
        self.counters = counters
        self.is_up = False
        self.receive = receive
        self.on_room = on_room
        self.known: OrderedDict[int, Delivery] = OrderedDict()
        self._filters = filters
        self._on_up = on_up
        self._on_down = on_down
        self._may_connect = may_connect
        self._client: _Client | None = None

    @property
    def has_room(self) -> bool:
        """Whether a message may be published now."""
        return self.is_up and self._client is not None and self._client.has_room

    @property
    def unacknowledged(self) -> int:
        """Messages of the broker that have not been carried yet."""
        return len(self._client.unacknowledged) if self._client is not None else 0

    def publish(
        self,
        topic: str,
        payload: bytes,
        done: Callable[[], None],
        correlation: bytes = b"",
        seconds: int = 0,
    ) -> None:
        """Publish at QoS 1 where there is room; `done` is called when the broker has it.

        Args:
            topic: where.
            payload: what.
            done: is called on the event loop.
            correlation: of the request that it responds to.
            seconds: it lasts, 0 for as long as the broker keeps it.
        """
        if self._client is None:
            raise aiomqtt.MqttError("not connected")
        self._client.send(topic, payload, done, correlation, seconds)

    async def run(self) -> None:
        """Be connected; runs until cancelled."""
        pause = _FIRST_PAUSE
        while True:
            if not self._may_connect():
                await asyncio.sleep(_FIRST_PAUSE)
                continue
            client = self._client = _Client(self)
            why = ""
            try:
                await client.connect()
                await client.subscribe([(each, 1) for each in self._filters], timeout=PATIENCE)
                pause = _FIRST_PAUSE
                self.is_up = True
                self._on_up()
                self.on_room()
                why = await client.gone()
            except Exception as error:
                why = str(error) or type(error).__name__
            finally:
                was_up, self.is_up = self.is_up, False
                client.hang_up()
                if not why:
                    self._on_down("")
            self.counters.lost_connections += 1
            log.log(logging.WARNING if was_up else logging.INFO, "No MQTT broker: %s", why)
            self._on_down(why)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311  (no secret)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def drop(self) -> None:
        """Give the connection up without a word."""
        self.is_up = False
        if self._client is not None:
            self._client.drop()


class _Client(aiomqtt.Client):
    """A connection that acknowledges what it was sent when it is told to."""

    def __init__(self, broker: Broker) -> None:
        address = broker.address
        properties = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = address.window
        properties.MaximumPacketSize = address.max_bytes
        properties.SessionExpiryInterval = KEPT_SECONDS
        super().__init__(
            address.host,
            address.port,
            username=address.username,
            password=address.password,
            identifier=broker.client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            timeout=PATIENCE,
            keepalive=KEEPALIVE,
            clean_start=False,
            properties=properties,
            tls_context=address.tls,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )
        self._broker = broker
        self.unacknowledged: deque[Delivery] = deque()
        self._bytes = 0
        self._sent: dict[int, Callable[[], None]] = {}
        self._at_most = UNDER_WAY
        self._has_ended = False
        self._client.manual_ack_set(True)
        self._client.connect_timeout = PATIENCE / 2

    @property
    def has_room(self) -> bool:
        return len(self._sent) < self._at_most

    async def connect(self) -> None:
        """Raises MqttError."""
        await self.__aenter__()
        self._disconnected.add_done_callback(_retrieve)

    async def gone(self) -> str:
        """Wait for the end of the connection; why it ended."""
        try:
            await asyncio.shield(self._disconnected)
        except (aiomqtt.MqttError, OSError) as error:
            return str(error)
        return "the broker has ended the connection"

    def send(
        self,
        topic: str,
        payload: bytes,
        done: Callable[[], None],
        correlation: bytes,
        seconds: int,
    ) -> None:
        properties = None
        if correlation or seconds:
            properties = Properties(PacketTypes.PUBLISH)
            if correlation:
                properties.CorrelationData = correlation
            if seconds:
                properties.MessageExpiryInterval = seconds
        info = self._client.publish(topic, payload, 1, properties=properties)
        if info.rc:
            raise aiomqtt.MqttCodeError(info.rc, "Could not publish")
        self._sent[info.mid] = done

    def acknowledge(self) -> None:
        """Acknowledge what is done and has nothing before it that is not."""
        waiting = self.unacknowledged
        while waiting and waiting[0].is_done:
            delivery = waiting.popleft()
            self._bytes -= delivery.size
            if not self._has_ended:
                self._client.ack(delivery.mid, delivery.qos)

    def hang_up(self) -> None:
        """Say good-bye as far as the broker still listens, and close the socket."""
        if not self._disconnected.done():
            self._client.disconnect()
            self._client.loop_write()
        self.drop()

    def drop(self) -> None:
        """Close the socket."""
        self._has_ended = True
        self._sent.clear()
        self._client._sock_close()

    def _fail(self, why: str) -> None:
        if not self._disconnected.done():
            self._disconnected.set_exception(aiomqtt.MqttError(why))

    # --- what paho calls --------------------------------------------------------------------------

    def _on_connect(
        self, client: Any, userdata: Any, flags: Any, code: Any, properties: Any = None
    ) -> None:  # noqa: E501
        self._at_most = min(UNDER_WAY, getattr(properties, "ReceiveMaximum", UNDER_WAY))
        super()._on_connect(client, userdata, flags, code, properties)

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        with FAULTS.kept_to("MQTT message"):
            self._take(message)

    def _take(self, message: Any) -> None:
        broker = self._broker
        broker.counters.received += 1
        try:
            delivery = Delivery(self, message)
        except UnicodeDecodeError:
            broker.counters.refuse("A topic is not UTF-8.")
            message.topic = b""
            delivery = Delivery(self, message)
            delivery.is_done = True
        if delivery.qos == 0:
            broker.receive(delivery)
            return
        known = broker.known.get(delivery.mid)
        if message.dup and known is not None and known.digest == delivery.digest:
            broker.counters.repeated += 1
            known.client = self
            self._append(known)
            self.acknowledge()
            return
        if self._bytes + delivery.size > MAX_BYTES:
            self._fail("the broker has sent more at once than it was told it may")
            return
        self._append(delivery)
        broker.known[delivery.mid] = delivery
        broker.known.move_to_end(delivery.mid)
        self._forget()
        if delivery.is_done:
            self.acknowledge()
        else:
            broker.receive(delivery)

    def _append(self, delivery: Delivery) -> None:
        self.unacknowledged.append(delivery)
        self._bytes += delivery.size

    def _forget(self) -> None:
        """Of those that were carried the oldest will not come again."""
        known = self._broker.known
        while len(known) > 2 * self._broker.address.window:
            if not next(iter(known.values())).is_done:
                return
            known.popitem(last=False)

    def _on_publish(
        self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any
    ) -> None:
        done = self._sent.pop(mid, None)
        if done is None:
            return
        self._broker.counters.published += 1
        with FAULTS.kept_to("MQTT message"):
            done()
            self._broker.on_room()


def _retrieve(ended: asyncio.Future[None]) -> None:
    """The end of a connection may come when nobody waits for it any more."""
    if not ended.cancelled():
        ended.exception()
