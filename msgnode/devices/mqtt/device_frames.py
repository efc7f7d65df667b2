"""Devices behind the broker: a session for each, their frames, and the frames for them.

A device is present from its status `online`, or its first frame, until its status is `offline`,
which the broker publishes when it is gone (its last will). One that sends no status counts as gone
after `idle` seconds of silence.

The broker sends no more than its window until the oldest message is acknowledged. So if a device's
frames wait for a reason of its own, such as its rate, they are refused once half the window is used
and others wait behind them; frames that wait for the node are refused after HELD_SECONDS. While
half of the bytes that may wait are taken, none begins to wait.

Requests have response topics, correlation data and expiry of MQTT 5. One with a response topic gets
its response there, with its correlation data, instead of on `…/in`. The topic must be one of the
device's own, below `<prefix>/<domain>/<device>/`, because the node may publish where the device may
not. A request with an expiry is not carried after it, and neither is its response delivered.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import aiomqtt

from msgnode.bus import delivery as bus_delivery
from msgnode.bus.periodic import every
from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage, NodeError, Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.messages import Message
from msgnode.sessions.frame_connection import SESSION_ADDRESS

from . import topics
from .broker import Broker, BrokerAccess, BrokerEvents
from .broker_client import NotTaken
from .delivery import Delivery
from .link import BrokerLink
from .session import BrokerSession, Opener
from .topics import ONLINE, DeviceTopics

KEPT_AT_MOST = 100
"""Most awaited responses of one device; beyond, the oldest are sent to `in`."""
MAX_CORRELATION = 1_024
"""Bytes of a request's correlation data; MQTT allows 65,535."""
KEPT_SECONDS = 300.0
"""Seconds for which a response is awaited if the request has no expiry."""


class ResponsePlace(NamedTuple):
    """The destination of a response.

    Attributes:
        topic: "" for the device's usual one.
        correlation: the correlation data of the request.
        until: its expiry, by `time.monotonic`; 0.0 if unknown.
    """

    topic: str = ""
    correlation: bytes = b""
    until: float = 0.0

    @property
    def seconds_left(self) -> int:
        """Whole seconds that the response lasts, 0 if that is not known."""
        return max(1, round(self.until - time.monotonic())) if self.until else 0


USUAL = ResponsePlace()


class ResponseTopics:
    """The response topics of one device.

    Args:
        base: the prefix of its own topics.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._asked: OrderedDict[str, tuple[ResponsePlace, float]] = OrderedDict()

    def note(self, delivery: Delivery, message: Message) -> None:
        """Remember where the response to a request goes.

        Raises:
            BadMessage: the topic is none of the device's own, or the correlation data too long.
        """
        topic = delivery.response_topic
        if self._asked and message.id:
            self._asked.pop(message.id_key, None)  # an earlier request of this id
        if not (topic or delivery.expires_at) or message.is_response or not message.id:
            return
        if topic and not self._is_own(topic):
            raise BadMessage(f"A response topic must be a usual one below {self._base}.")
        if len(delivery.correlation) > MAX_CORRELATION:
            raise BadMessage(f"Correlation data may have {MAX_CORRELATION:,} bytes.")
        while len(self._asked) >= KEPT_AT_MOST:
            self._asked.popitem(last=False)
        until = delivery.expires_at or time.monotonic() + KEPT_SECONDS
        place = ResponsePlace(topic, delivery.correlation, delivery.expires_at)
        self._asked[message.id_key] = (place, until)

    def place_of(self, frame: bytes) -> ResponsePlace:
        """Where a frame for the device is published."""
        if not self._asked:
            return USUAL
        try:
            message = messages.parse(frame)
        except InvalidFrame:
            return USUAL
        if not message.is_response:
            return USUAL
        # It stays: a response that the broker has not acknowledged is published again.
        place, until = self._asked.get(message.id_key, (USUAL, 0.0))
        return place if place.until or until >= time.monotonic() else USUAL

    def _is_own(self, topic: str) -> bool:
        rest = topic.removeprefix(self._base)
        return rest != topic and bool(rest) and topics.is_publishable(topic)


WAITING_AT_MOST = 100
"""Frames of one device that may wait to be carried; those beyond are answered 429."""
DEVICES_AT_MOST = 100_000
HELD_SECONDS = 30.0
"""For which the oldest frame of all may wait, whatever for."""
_LOOKS_EVERY = 2.0
_RELIEVES_EVERY = 0.25


class _Device:
    __slots__ = ("name", "session", "is_online", "heard_at", "is_in_line", "responses")

    def __init__(self, name: str, session: BrokerSession, responses: ResponseTopics) -> None:
        self.name = name
        self.session = session
        self.responses = responses
        self.is_online = False  # said so itself
        self.heard_at = time.monotonic()
        self.is_in_line = False  # to publish


class DeviceFrames:
    """One instance while this worker serves the broker; see Broker for the connection."""

    def __init__(
        self,
        domain: str,
        topics: DeviceTopics,
        access: BrokerAccess,
        opener: Opener,
        idle: float,
        changed: Callable[[], None],
    ) -> None:
        self.fault = "not connected yet"
        self._domain = domain
        self._topics = topics
        self._opener = opener
        self._counters = access.counters
        self._idle = idle
        self._changed = changed
        self._devices: dict[str, _Device] = {}
        self._line: deque[_Device] = deque()  # who has something to publish
        self._oldest: tuple[Delivery | None, float] = None, 0.0  # since when it is the oldest
        events = BrokerEvents(self._receive, self._up, self._down, self._publish)
        self.broker = Broker(access, topics.filters, events)

    def __len__(self) -> int:
        return sum(each.session.is_open for each in self._devices.values())

    async def run(self) -> None:
        """Runs until cancelled."""
        looks = every(_LOOKS_EVERY, self._look, "MQTT session")
        relieves = every(_RELIEVES_EVERY, self._relieve, "MQTT session")
        beside = [asyncio.create_task(each) for each in (looks, relieves)]
        try:
            await self.broker.run()
        finally:
            for task in beside:
                task.cancel()
            self.leave()

    def leave(self) -> None:
        """Stop serving devices."""
        self.broker.drop()
        devices, self._devices = self._devices, {}
        for device in devices.values():
            with FAULTS.kept_to("MQTT session"):
                device.session.leave()

    # --- from the broker --------------------------------------------------------------------------

    def _up(self) -> None:
        self.fault = ""
        self._changed()

    def _down(self, why: str) -> None:
        """Nothing reaches a device now: their sessions are detached until the broker is back."""
        self.fault = why or "disconnected"
        for device in tuple(self._devices.values()):
            with FAULTS.kept_to("MQTT session"):
                device.session.lose()
        self._line.clear()
        for device in self._devices.values():
            device.is_in_line = False
            device.is_online = False  # the broker says it again, if it still knows
            device.heard_at = time.monotonic()
        self._changed()

    def _receive(self, delivery: Delivery) -> None:
        topic = self._topics.read(delivery.topic)
        if topic is None:
            self._counters.refuse(f"A topic is none of a device's: {delivery.topic[:100]}")
            delivery.done()
            return
        device = self._devices.get(topic.device)
        if topic.kind == "status":
            self._status(topic.device, device, delivery)
            return
        if delivery.retain:
            self._counters.refuse(f"{topic.device}: A retained frame is an old one: not carried.")
            delivery.done()
            return
        device = device or self._enter(topic.device)
        if device is None:
            self._counters.refuse("The node has as many devices as it may have.")
            delivery.done()
            return
        device.heard_at = time.monotonic()
        try:
            message = messages.parse(delivery.payload)
            if message.recipients[0] == SESSION_ADDRESS:
                raise BadMessage("Sessions come and go with the device's status, not by message.")
            device.responses.note(delivery, message)
        except InvalidFrame:
            pass  # the pipeline says what is wrong
        except BadMessage as error:
            self._refuse(device.name, delivery, delivery.payload, error)
            delivery.done()
            return
        device.session.take(delivery, delivery.payload)

    def _status(self, name: str, device: _Device | None, delivery: Delivery) -> None:
        is_online = delivery.payload == ONLINE
        delivery.done()
        if is_online:
            device = device or self._enter(name)
            if device is not None:
                device.is_online = True
                device.session.want()
        elif device is not None:
            device.is_online = False
            device.session.want_no_more()

    def _enter(self, name: str) -> _Device | None:
        if len(self._devices) >= DEVICES_AT_MOST:
            return None
        session = BrokerSession(
            f"runtime://{self._domain}/{name}",
            name,
            self._opener,
            WAITING_AT_MOST,
            False,
            partial(self._refuse, name),
            _opened,
            lambda: self._in_line(device),
        )
        responses = ResponseTopics(self._topics.base_of(name))
        device = self._devices[name] = _Device(name, session, responses)
        return device

    def _refuse(self, name: str, delivery: Delivery, frame: bytes, error: NodeError) -> None:
        """Tell the device, if possible, that its frame is not carried."""
        self._counters.refuse(f"{name}: {error.description}")
        try:
            message = messages.parse(frame)
        except InvalidFrame:
            return
        if bus_delivery.expects_answer(message, message.recipients[0]) and self.broker.has_room:
            answer = messages.reply(message, messages.error_body(error))
            self._send(self._devices[name], answer, None)

    def _look(self) -> None:
        """Forget devices that are gone, and those that never sent a status and are idle."""
        oldest = time.monotonic() - self._idle
        for device in tuple(self._devices.values()):
            if not device.is_online and device.heard_at < oldest:
                with FAULTS.kept_to("MQTT session"):
                    device.session.want_no_more()
            if not device.is_online and device.session.is_idle:
                del self._devices[device.name]

    def _relieve(self) -> None:
        """A device that is held back holds up no other."""
        now, (oldest, since) = time.monotonic(), self._oldest
        if self.broker.oldest is None or self.broker.oldest is not oldest:
            self._oldest = self.broker.oldest, now
            return
        topic = self._topics.read(oldest.topic)
        device = self._devices.get(topic.device) if topic is not None else None
        if device is not None:
            is_own = self.broker.is_choked and not device.session.waits_for_the_node
            if is_own or now - since > HELD_SECONDS:
                device.session.refuse_waiting()

    # --- to the broker ----------------------------------------------------------------------------

    def _in_line(self, device: _Device) -> None:
        if not device.is_in_line:
            device.is_in_line = True
            self._line.append(device)
        self._publish()

    def _publish(self) -> None:
        """One frame of each device in turn, as long as the broker takes them."""
        while self._line and self.broker.has_room:
            device = self._line.popleft()
            connection = device.session.connection
            if connection is None or not connection.link.has_frames:
                device.is_in_line = False
                continue
            self._line.append(device)
            if not self._send(device, connection.link.take(), connection.link):
                return

    def _send(self, device: _Device, frame: bytes, link: BrokerLink | None) -> bool:
        """Publish a frame to a device, a response where the device wants it.

        Returns:
            Whether the connection is still there; what it did not take is given back with the link.
        """
        place = device.responses.place_of(frame)
        topic = place.topic or self._topics.inbound(device.name)

        def done(why: str) -> None:
            if link is not None:
                link.acknowledged()
            if why:
                self._undelivered(device, frame, why)

        try:
            self.broker.publish(topic, frame, done, place.correlation, place.seconds_left)
        except NotTaken as error:
            if link is not None:
                link.not_taken()
            self._counters.note_not_taken(f"{device.name}: {error}")
            self._undelivered(device, frame, str(error))
        except aiomqtt.MqttError:
            return False
        return True

    def _undelivered(self, device: _Device, frame: bytes, why: str) -> None:
        """Answer, on behalf of the device, the sender of a frame that the broker refuses."""
        message = messages.parse(frame)
        if bus_delivery.expects_answer(message, message.recipients[0]):
            error = Unavailable(f"The MQTT broker does not accept it for the device: {why}")
            device.session.say(messages.reply(message, messages.error_body(error)))


async def _opened() -> None:
    """A device's session needs nothing more than to be open."""
