"""A connection to the broker, with explicit acknowledgements.

Only this file uses private names of aiomqtt and paho. A broker that violates what was agreed is
disconnected: one that sends more than MAX_BYTES of unacknowledged messages, refuses the
subscription, or acknowledges nothing.

The address of the broker, and the node's credentials there.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from msgnode.core.faults import FAULTS

from .counters import MqttCounters
from .delivery import Delivery


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The broker's address and our credentials. `window` and `max_bytes` limit what it sends."""

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


KEEPALIVE = 10
"""Seconds of silence until the broker is pinged; after as many more it counts as gone."""
PATIENCE = 10.0
"""Seconds that the broker may take for an answer."""
ACKNOWLEDGED_SECONDS = 30.0
"""Seconds without an acknowledgement of what was published until the connection is given up."""
KEPT_SECONDS = 3_600
"""Seconds for which the broker keeps the session and its messages while the node is away."""
UNDER_WAY = 20
"""Most pending own messages, unless the broker accepts fewer."""
MAX_BYTES = 64 * 1024 * 1024
"""Of messages that were read and not carried."""
_LOOKS_EVERY = 2.0
CONNECTING_AT_ONCE = 64
_CONNECTING = ThreadPoolExecutor(CONNECTING_AT_ONCE, "mqtt")  # of all connections
_AROUND = 64
"""Most bytes of a packet besides topic, payload and correlation data."""

Done = Callable[[str], None]
"""Called when the broker has a message, or with the reason why it refuses it."""


class NotTaken(Exception):
    """The broker would not take a message, and would end the connection that brings it."""


class Keeper(Protocol):
    """What keeps the connection; see Broker."""

    address: BrokerAddress
    client_id: str
    counters: MqttCounters
    known: OrderedDict[int, Delivery]
    receive: Callable[[Delivery], None]
    on_room: Callable[[], None]
    begins_anew: bool


class BrokerClient(aiomqtt.Client):
    """One connection, which acknowledges messages on request."""

    def __init__(self, broker: Keeper) -> None:
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
            clean_start=broker.begins_anew,
            properties=properties,
            tls_context=address.tls,
        )
        self._broker = broker
        self.unacknowledged: deque[Delivery] = deque()
        self._bytes = 0  # not acknowledged
        self._droppable = 0  # bytes of QoS 0 that wait
        self._sent: dict[int, Done] = {}
        self._acknowledged_at = 0.0  # one of these, or when the first was sent
        self._at_most = UNDER_WAY
        self._max_packet = 0
        self._has_ended = False
        self._client.manual_ack_set(True)
        self._client.connect_timeout = PATIENCE / 2

    @property
    def is_filling(self) -> bool:
        """Whether half of the room for what was read and not carried is taken."""
        return 2 * (self._bytes + self._droppable) > MAX_BYTES

    @property
    def has_room(self) -> bool:
        """Whether the broker takes another message now."""
        return len(self._sent) < self._at_most

    async def connect(self) -> None:
        """Raises MqttError.

        As aiomqtt does it, but in threads of our own: one whose host does not answer holds a thread
        for seconds, and there is a connection for each sensor topic.
        """
        self._disconnected.add_done_callback(_retrieve)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(_CONNECTING, self._client_connect)
            made: Any = self._client.socket()
            if made is not None:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise aiomqtt.MqttError(str(error)) from None
        await self._wait_for(self._connected, timeout=PATIENCE)

    async def listen(self, filters: tuple[str, ...]) -> None:
        """Subscribe. Raises MqttError, also where the broker refuses one of them."""
        wanted = [(each, 1) for each in filters]
        answers: Any = await self.subscribe(wanted, timeout=PATIENCE)  # of MQTT 5: reason codes
        for topic, answer in zip(filters, answers, strict=False):
            if answer.is_failure:
                raise aiomqtt.MqttError(f"it refuses the subscription of {topic}: {answer}")

    async def gone(self) -> str:
        """Wait for the end of the connection; why it ended."""
        while not self._disconnected.done():
            await asyncio.wait([self._disconnected], timeout=_LOOKS_EVERY)
            waited = time.monotonic() - self._acknowledged_at
            if self._sent and waited > ACKNOWLEDGED_SECONDS and not self._disconnected.done():
                return f"it has acknowledged nothing for {waited:.0f} s"
        error = self._disconnected.exception()
        if error is None:
            return "the broker has ended the connection"
        return str(error) or type(error).__name__

    def send(
        self,
        topic: str,
        payload: bytes,
        done: Done,
        correlation: bytes,
        seconds: int,
    ) -> None:
        """Raises MqttError, and NotTaken."""
        size = len(topic.encode()) + len(payload) + len(correlation) + _AROUND
        if self._max_packet and size > self._max_packet:
            raise NotTaken(f"It is longer than the {self._max_packet} bytes that the broker takes.")
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
        if not self._sent:
            self._acknowledged_at = time.monotonic()
        self._sent[info.mid] = done

    def acknowledge(self) -> None:
        """Acknowledge what is done, up to the first message that is not."""
        waiting = self.unacknowledged
        while waiting and waiting[0].is_done:
            delivery = waiting.popleft()
            self._bytes -= delivery.size
            if not self._has_ended:
                self._client.ack(delivery.mid, delivery.qos)

    def released(self, size: int, qos: int) -> None:
        """Count so many bytes less of what was read."""
        if qos:
            self._bytes -= size
        else:
            self._droppable -= size

    def hang_up(self, keeps: bool = True) -> None:
        """Disconnect properly if the broker still listens, and close the socket.

        Args:
            keeps: whether the broker is to keep the session and its messages.
        """
        if not self._disconnected.done():
            farewell = None
            if not keeps:
                farewell = Properties(PacketTypes.DISCONNECT)
                farewell.SessionExpiryInterval = 0
            self._client.disconnect(properties=farewell)
            self._client.loop_write()
        self.drop()

    def drop(self) -> None:
        """Close the socket."""
        self._has_ended = True
        self._sent.clear()
        self._client._sock_close()

    def fail(self, why: str) -> None:
        """The connection is of no use."""
        if not self._disconnected.done():
            self._disconnected.set_exception(aiomqtt.MqttError(why))

    # --- what paho calls --------------------------------------------------------------------------

    def _on_connect(
        self, client: Any, userdata: Any, flags: Any, code: Any, properties: Any = None
    ) -> None:
        if self._has_ended:  # nobody waits for it any more
            self._client._sock_close()
            return
        self._max_packet = getattr(properties, "MaximumPacketSize", 0)
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
            if not delivery.is_done:
                self._droppable += delivery.size
                self._receive(delivery)
            return
        known = broker.known.get(delivery.mid)
        if self._bytes + delivery.size > MAX_BYTES:
            self.fail("the broker has sent more at once than it was told it may")
            return
        if message.dup and known is not None and known.digest == delivery.digest:
            broker.counters.repeated += 1
            known.client = self
            self._append(known)
            self.acknowledge()
            return
        self._append(delivery)
        broker.known[delivery.mid] = delivery
        broker.known.move_to_end(delivery.mid)
        self._forget()
        if delivery.is_done:
            self.acknowledge()
            return
        self._receive(delivery)

    def _receive(self, delivery: Delivery) -> None:
        try:
            self._broker.receive(delivery)
        except Exception as error:  # or it would keep back all that come after it
            FAULTS.note("MQTT message", error)
            self._broker.counters.refuse("The node failed at a message.")
            delivery.done()

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
        self._acknowledged_at = time.monotonic()
        why = str(reason_code) if reason_code.is_failure else ""
        counters = self._broker.counters
        if why:
            counters.note_not_taken(why)
        else:
            counters.published += 1
        with FAULTS.kept_to("MQTT message"):
            done(why)
        with FAULTS.kept_to("MQTT message"):
            self._broker.on_room()


def _retrieve(ended: asyncio.Future[None]) -> None:
    """Retrieve the end of a connection that nobody awaits any more."""
    if not ended.cancelled():
        ended.exception()
