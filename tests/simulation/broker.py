"""A broker of MQTT in the simulation, and a lamp behind it.

The product's connector and aiomqtt run as they are; paho's client below them is of this file. The
broker keeps the sessions of its clients over a restart, and sends again what was not acknowledged.
It is away for a time, or freezes: what it answers comes later. The lamp observes the objects of
runtimes. It leaves now and then, which the broker tells, and may get an event twice.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from paho.mqtt import client as paho

from .devices import DELAY, Device, on
from .workers import Site
from .world import Machine, Wire, World, sleep

PATIENCE = 6.0
"""Seconds that the lamp waits for an answer."""
TAKEN = SimpleNamespace(is_failure=False)


class Kept:
    """What the broker keeps for a client."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.filters: list[str] = []
        self.waiting: deque[tuple[str, bytes, bool]] = deque()
        self.sent: dict[int, tuple[str, bytes, bool]] = {}  # and not acknowledged
        self.window = self.number = 0


class Client:
    """paho's client: a connection of a worker to the broker, both of its ends."""

    connect_timeout = 0.0
    on_connect: Callable[..., None]
    on_disconnect: Callable[..., None]
    on_subscribe: Callable[..., None]
    on_message: Callable[..., None]
    on_publish: Callable[..., None]

    def __init__(self, client_id: str, **_: Any) -> None:
        machine = Machine.current
        assert machine is not None
        self.id, self._machine = client_id, machine
        self.broker: Broker = machine.site.device.broker
        self._to, self.back = Wire(machine.world, DELAY), Wire(machine.world, DELAY)
        self._is_open = False
        self._mids = 0

    # --- the worker's end -------------------------------------------------------------------------

    def connect(self, host: str, port: int, keepalive: int, *more: Any) -> None:
        """Called in a thread."""
        *_, is_clean, properties = more
        sleep(DELAY[1])
        if not self.broker.is_up:
            raise ConnectionRefusedError(111, "Connection refused")
        self._is_open = True
        self.broker.clients.append(self)
        if self.broker.is_frozen:
            self.back.cut()
        for each in self._machine.site.workers:
            if each.machine is self._machine:
                each.links.append(self)
        self._say(lambda: self.broker.came(self, is_clean is True, properties.ReceiveMaximum))

    def subscribe(self, topics: list[tuple[str, int]], *_: Any) -> tuple[int, int]:
        self._mids += 1
        mid, filters = self._mids, [each for each, _ in topics]
        self._say(lambda: self.broker.subscribed(self, filters, mid))
        return 0, mid

    def publish(self, topic: str, payload: bytes, *_: Any, **__: Any) -> SimpleNamespace:
        if not self._is_open:
            return SimpleNamespace(rc=paho.MQTT_ERR_NO_CONN, mid=0)
        self._mids += 1
        mid = self._mids
        self._say(lambda: self.broker.published(self, topic, payload, mid))
        return SimpleNamespace(rc=0, mid=mid)

    def ack(self, mid: int, qos: int) -> None:
        self._say(lambda: self.broker.acknowledged(self, mid))

    def _sock_close(self) -> None:
        self._say(lambda: self.broker.left(self))
        self._is_open = False

    def _nothing(self, *_: Any, **__: Any) -> None:
        """There is no socket."""

    enable_logger = manual_ack_set = disconnect = loop_write = socket = _nothing

    def process_ended(self) -> None:
        self._is_open = False
        self.broker.world.after(DELAY[0], lambda: self.broker.left(self))

    def _say(self, what: Callable[[], None]) -> None:
        if self._is_open:
            self._to.send(lambda: what() if self in self.broker.clients else None)

    # --- the broker's end -------------------------------------------------------------------------

    def tell(self, call: Callable[[], None]) -> None:
        self.back.send(lambda: on(self._machine, lambda: call() if self._is_open else None))

    def end(self) -> None:
        self.broker.left(self)
        self.tell(self._ended)

    def _ended(self) -> None:
        self._is_open = False
        self.on_disconnect(self, None, None, paho.MQTT_ERR_CONN_LOST)

    def send(self, mid: int, message: tuple[str, bytes, bool], is_again: bool) -> None:
        topic, payload, is_retained = message
        got = SimpleNamespace(topic=topic, payload=payload, qos=1, retain=is_retained, mid=mid,
                              dup=is_again, properties=None)  # fmt: skip
        self.tell(lambda: self.on_message(self, None, got))


class Broker:
    """It keeps what it has acknowledged."""

    def __init__(self, world: World, to_lamp: Callable[[str, bytes], None]) -> None:
        self.world = world
        self.is_up, self.is_frozen = True, False
        self.clients: list[Client] = []
        self._to_lamp = to_lamp
        self._kept: dict[str, Kept] = {}
        self._retained: dict[str, bytes] = {}

    def stop(self) -> None:
        self.is_up = False
        for each in tuple(self.clients):
            each.end()

    def freeze(self, is_frozen: bool) -> None:
        self.is_frozen = is_frozen
        for each in self.clients:
            each.back.cut() if is_frozen else each.back.mend()

    def publish(self, topic: str, payload: bytes, is_retained: bool = False) -> None:
        """Send it to whoever has subscribed to it."""
        if is_retained:
            self._retained[topic] = payload
        self._to_lamp(topic, payload)
        for kept in self._kept.values():
            if any(paho.topic_matches_sub(each, topic) for each in kept.filters):
                kept.waiting.append((topic, payload, False))
                self._send(kept)

    # --- what a client says -----------------------------------------------------------------------

    def came(self, client: Client, is_clean: bool, window: int) -> None:
        kept = self._kept.get(client.id)
        if kept is None or is_clean:
            kept = self._kept[client.id] = Kept()
        if kept.client is not None:
            kept.client.end()
        kept.client, kept.window = client, window
        client.tell(lambda: client.on_connect(client, None, None, 0, None))
        for mid, message in kept.sent.items():
            client.send(mid, message, True)
        self._send(kept)

    def subscribed(self, client: Client, filters: list[str], mid: int) -> None:
        kept = self._kept[client.id]
        kept.filters = filters
        codes = [TAKEN] * len(filters)
        client.tell(lambda: client.on_subscribe(client, None, mid, codes))
        for topic, payload in self._retained.items():
            if any(paho.topic_matches_sub(each, topic) for each in filters):
                kept.waiting.append((topic, payload, True))
        self._send(kept)

    def published(self, client: Client, topic: str, payload: bytes, mid: int) -> None:
        self.publish(topic, payload)
        client.tell(lambda: client.on_publish(client, None, mid, TAKEN, None))

    def acknowledged(self, client: Client, mid: int) -> None:
        kept = self._kept[client.id]
        kept.sent.pop(mid, None)
        self._send(kept)

    def left(self, client: Client) -> None:
        if client in self.clients:
            self.clients.remove(client)
        kept = self._kept.get(client.id)
        if kept is not None and kept.client is client:
            kept.client = None

    def _send(self, kept: Kept) -> None:
        while kept.client is not None and kept.waiting and len(kept.sent) < kept.window:
            kept.number = kept.number % 65_535 + 1
            message = kept.sent[kept.number] = kept.waiting.popleft()
            kept.client.send(kept.number, message, False)


class Lamp(Device):
    """It is switched on and off, and observes what runtimes publish."""

    kind, outlet = "lamp", "broker"
    may_repeat = True
    broker_url = "mqtt://broker:1883"

    def __init__(self, site: Site, seed: int) -> None:
        self._base = f"rethink/{site.domain}/device"
        self._to, self._from = Wire(site.world, DELAY), Wire(site.world, DELAY)
        self._asked = "", 0.0  # the topic, and until when it is waited for
        self._is_there = False
        self.broker = Broker(site.world, self.published)
        super().__init__(site, seed)
        self.session = 1

    @property
    def is_away(self) -> bool:
        return not self.broker.is_up

    @is_away.setter
    def is_away(self, is_away: bool) -> None:
        if is_away:
            self.broker.stop()
        elif not self.broker.is_up:
            self.broker.is_up = True
        self._carries()

    @property
    def loses_answers(self) -> bool:
        return self.broker.is_frozen

    @loses_answers.setter
    def loses_answers(self, is_frozen: bool) -> None:
        self.broker.freeze(is_frozen)

    def _carries(self) -> None:
        """The broker keeps what is for it, and it what is for the broker, while it is away."""
        for each in (self._to, self._from):
            each.mend() if self._is_there and self.broker.is_up else each.cut()

    def _comes(self, is_there: bool) -> None:
        self._is_there = is_there
        self._carries()
        self.broker.publish(f"{self._base}/status", b"online" if is_there else b"offline", True)

    def _act(self) -> None:
        self.world.after(1.0, self._act)
        topic, until = self._asked
        if not self._is_there:
            if self.broker.is_up:
                self._comes(True)
        elif self._chance.random() < 0.1 and self.broker.is_up and not self.crowd.is_quiet:
            self._comes(False)
        elif self.world.now > until and (topic := self._new_topic()):
            self._asks += 1
            self._asked = topic, self.world.now + PATIENCE
            frame = json.dumps(self._subscription(topic)).encode()
            self._from.send(lambda: self.broker.publish(f"{self._base}/out", frame))

    def published(self, topic: str, payload: bytes) -> None:
        if topic == f"{self._base}/in":
            self._to.send(lambda: self._takes(json.loads(payload)))

    def _takes(self, frame: dict[str, Any]) -> None:
        if frame["type"] != "response":
            self._got(frame)
        elif frame["id"] == self._asks and frame["body"]["code"] == 200:
            self.hears[self._asked[0]] = self.world.now
            self._asked = "", 0.0
            self.is_ready = True


def install() -> None:
    """Have aiomqtt connect to the broker of the site that runs."""
    paho.Client = Client  # type: ignore[assignment,misc]
