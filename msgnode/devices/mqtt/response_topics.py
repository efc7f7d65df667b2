"""Response topics, correlation data and expiry of MQTT 5, for requests of devices.

A request with a response topic gets its response there, with its correlation data, instead of on
`…/in`. The topic must be one of the device's own, below `<prefix>/<domain>/<device>/`, because the
node may publish where the device may not. A request with an expiry is not carried after it, and
neither is its response delivered.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import NamedTuple

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage
from msgnode.core.messages import Message

from . import topics
from .delivery import Delivery

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
