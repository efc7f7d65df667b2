"""One sensor topic: its messages are updates of data objects, and updates to those are commands.

The node is the reporter of the objects, in a session of the topic's own: it says `update` to
`<object>/changes`, answers `read` to the object and `subscribe` to `<object>/subscription` with
what it knows, and publishes what others say by `update` to the object on the topic's command topic.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import aiomqtt
import msgspec

from msgnode.bus import delivery as bus_delivery
from msgnode.core import addresses, messages
from msgnode.core.errors import (
    BadMessage,
    Forbidden,
    GatewayTimeout,
    NodeError,
    TooMany,
    Unavailable,
)
from msgnode.core.faults import FAULTS
from msgnode.core.messages import Message

from . import topics
from .broker import Broker, BrokerAccess, BrokerEvents
from .broker_client import NotTaken
from .delivery import Delivery
from .readings import ObjectClaims, SensorObject, form_of, value_of, written
from .session import BrokerSession, Opener

OBJECTS_AT_MOST = 9_000
"""Objects of one topic: each is two subscriptions of its session."""
WAITING_AT_MOST = 1_000
"""Most waiting messages of QoS 0; of QoS 1 the broker keeps those beyond its window."""
COMMANDS_AT_MOST = 1_000
"""Commands that may wait for the broker."""


@dataclass(frozen=True, slots=True)
class SensorTopic:
    """One row of the console; see models.MqttTopic."""

    id: int
    topic: str
    object: str
    attribute: str
    path: tuple[str, ...] = ()
    schema: str = ""
    command_topic: str = ""
    command_form: str = ""


class SensorFeed:
    """One instance for each topic while this worker serves the broker."""

    def __init__(
        self,
        topic: SensorTopic,
        domain: str,
        access: BrokerAccess,
        opener: Opener,
        changed: Callable[[], None],
    ) -> None:
        self.topic = topic
        self.fault = "not connected yet"
        self._domain = domain
        self._counters = counters = access.counters
        self._changed = changed
        self._ids = itertools.count(1)
        self._objects: dict[str, SensorObject] = {}  # by the topic that says it
        self._commands: deque[tuple[str, bytes, Message]] = deque()
        self._on_their_way: list[Message] = []  # commands that the broker has not acknowledged
        self._session = BrokerSession(
            f"runtime://{domain}/mqtt-topic-{topic.id}", f"topic {topic.id}", opener,
            WAITING_AT_MOST, True, self._refuse, self._opened, self._heard,
        )  # fmt: skip
        self._claims = ObjectClaims(self._session, domain, self._ids, counters, self._refuse)
        events = BrokerEvents(self._receive, self._up, self._down, self._publish)
        own = replace(access, client_id=f"{access.client_id}-topic-{topic.id}")
        self.broker = Broker(own, (topic.topic,), events)

    def __len__(self) -> int:
        return len(self._claims.objects)

    async def run(self) -> None:
        """Runs until cancelled."""
        self._session.want()
        try:
            await self.broker.run()
        finally:
            self.leave()

    def leave(self) -> None:
        """Serve the topic no longer."""
        self.broker.drop()
        self._claims.stop()
        self._session.leave()

    # --- sensors ----------------------------------------------------------------------------------

    def _up(self) -> None:
        self.fault = ""
        self._session.want()
        self._changed()

    def _down(self, why: str) -> None:
        """The session stays: objects can be read and observed, and commands are refused."""
        self.fault = why or "disconnected"
        on_their_way, self._on_their_way = self._on_their_way, []
        for asked in on_their_way:
            lost = GatewayTimeout("The MQTT broker was lost before it acknowledged the command.")
            self._answer(asked, lost)
        while self._commands:
            _, _, asked = self._commands.popleft()
            self._answer(asked, Unavailable("The MQTT broker cannot be reached."))
        self._changed()

    def _receive(self, delivery: Delivery) -> None:
        if not delivery.payload:  # a retained message was cleared: that is no reading
            delivery.done()
            return
        try:
            found = self._objects.get(delivery.topic) or self._meet(delivery.topic)
            found.value = value_of(delivery.payload, self.topic.path)
            found.is_json = form_of(delivery.payload, found.is_json)
        except NodeError as error:
            self._counters.refuse(f"{delivery.topic[:200]}: {error.description}")
            delivery.done()
            return
        frame = b'{"id":%d,%b%b}}' % (next(self._ids), found.head, found.value)
        self._claims.take(found, delivery, frame)

    def _refuse(self, delivery: Delivery, frame: bytes, error: NodeError) -> None:
        if error.code == TooMany.code:
            self._counters.dropped += 1
        else:
            self._counters.refuse(f"{self.topic.topic}: {error.description}")

    def _meet(self, topic: str) -> SensorObject:
        """The object of a topic that is new. Raises NodeError."""
        parts = topics.met(self.topic.topic, topic)
        if parts is None:
            self.broker.begin_anew("it still sends what an earlier topic filter has asked for")
            raise BadMessage("It is of an earlier topic filter.")
        if len(topic) > topics.MAX_TOPIC:
            raise BadMessage("The topic is longer than those that are read.")
        url = topics.filled(self.topic.object, parts, escapes=True)
        found = self._claims.objects.get(url)
        if found is None:
            found = self._enter(url)
        if len(self._objects) < 2 * OBJECTS_AT_MOST:
            self._objects[topic] = found
        return found

    def _enter(self, url: str) -> SensorObject:
        if fault := addresses.fault(url):
            raise BadMessage(f"The address of the object {fault}.")
        if len(url) > addresses.MAX_HELD - len("/subscription"):
            raise BadMessage("The address of the object is too long.")
        if len(self._claims.objects) >= OBJECTS_AT_MOST:
            raise Unavailable(f"A topic may have {OBJECTS_AT_MOST} objects.")
        found = self._claims.enter(url, self.topic.attribute)
        found.is_json = bool(self.topic.path)
        return found

    # --- the session ------------------------------------------------------------------------------

    async def _opened(self) -> None:
        """Continue with waiting messages, because the session now holds the objects."""
        await self._claims.claim_again()

    # --- what others say to the objects -----------------------------------------------------------

    def _heard(self) -> None:
        """The session has frames for us; answers go out after this turn."""
        asyncio.get_running_loop().call_soon(self._hear)

    def _hear(self) -> None:
        connection = self._session.connection
        while connection is not None and connection.link.has_frames:
            frame = connection.link.take()
            connection.link.acknowledged()
            with FAULTS.kept_to("MQTT message"):
                self._take(messages.parse(frame))
            connection = self._session.connection

    def _take(self, message: Message) -> None:
        if message.is_response:
            self._note_refusal(message)
            return
        to = message.recipients[0]
        is_subscription = to.endswith("/subscription")
        url = to.removesuffix("/subscription")
        if addresses.parse(to).scheme in addresses.RUNTIME_SCHEMES:
            return  # the session's own affairs, such as a gap
        if message.type == "update" and not is_subscription:
            self._command(message, url)
        elif (message.type, is_subscription) in (("read", False), ("subscribe", True)):
            self._answer(message, self._snapshot(url))
        elif message.type == "unsubscribe" and is_subscription:
            self._answer(message, None)
        else:
            self._answer(message, Forbidden("A sensor's object takes read, subscribe and update."))

    def _note_refusal(self, response: Message) -> None:
        """An update of ours was not carried: by a policy, or because its object is another's."""
        body = response.fields()
        code = body.get("code")
        if isinstance(code, int) and code >= 400:
            self._counters.refuse(
                f"{response.recipients[0][:200]}: {body.get('description', code)}"
            )

    def _snapshot(self, url: str) -> dict[str, Any]:
        known = self._claims.objects.get(url)
        value = msgspec.Raw(known.value if known is not None else b"null")
        described = {"url": url, "reporter": self._session.runtime_url}
        if self.topic.schema:
            described["schema"] = self.topic.schema
        return {**described, "data": {self.topic.attribute: value}}

    def _command(self, message: Message, url: str) -> None:
        parts = topics.unfilled(self.topic.object, url, self.topic.topic)
        if not self.topic.command_topic or parts is None:
            self._answer(message, Forbidden("This object accepts no commands."))
            return
        topic = topics.filled(self.topic.command_topic, parts, escapes=False)
        if not topics.is_publishable(topic):
            self._answer(message, BadMessage("The command has no topic that may be published on."))
        elif not self.broker.is_up:
            self._answer(message, Unavailable("The MQTT broker cannot be reached."))
        elif len(self._commands) >= COMMANDS_AT_MOST:
            self._answer(message, Unavailable("Too many commands wait for the MQTT broker."))
        else:
            known = self._claims.objects.get(url)
            is_json = known.is_json if known is not None else bool(self.topic.path)
            if self.topic.command_form:
                is_json = self.topic.command_form == "json"
            payload = written(message.fields().get("value"), is_json)
            self._commands.append((topic, payload, message))
            self._publish()

    def _publish(self) -> None:
        while self._commands and self.broker.has_room:
            topic, payload, asked = self._commands[0]
            try:
                self.broker.publish(topic, payload, partial(self._acknowledged, asked))
                self._on_their_way.append(asked)
            except NotTaken as error:
                self._counters.note_not_taken(f"{topic[:200]}: {error}")
                self._published(asked, str(error))
            except aiomqtt.MqttError:  # it is answered when the connection is known to be lost
                return
            self._commands.popleft()

    def _acknowledged(self, asked: Message, why: str) -> None:
        self._on_their_way.remove(asked)
        self._published(asked, why)

    def _published(self, asked: Message, why: str) -> None:
        """The broker has a command, or does not take it."""
        error = Unavailable(f"The MQTT broker does not accept the command: {why}") if why else None
        self._answer(asked, error)

    def _answer(self, asked: Message, answer: dict[str, Any] | NodeError | None) -> None:
        """Answer what expects it, with 200 and a value or with an error."""
        if not bus_delivery.expects_answer(asked, asked.recipients[0]):
            if isinstance(answer, NodeError):
                self._counters.refuse(f"{asked.recipients[0][:200]}: {answer.description}")
            return
        if isinstance(answer, NodeError):
            body = messages.error_body(answer)
        else:
            body = {"code": 200} if answer is None else {"code": 200, "value": answer}
        self._session.say(messages.reply(asked, body))
