"""MQTT topics and their meaning. Pure.

`<prefix>/<domain>/<device>/out`     frames from a device    `…/in`  frames to it
`<prefix>/<domain>/<device>/status`  `online`, or `offline` by its last will; retained

Sensor topics are the operator's. A row has a topic filter and the address of a data object, in
which `{1}` is replaced by what the filter's first wildcard has matched, `{2}` by the second.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

DEVICE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,127}")
MAX_TOPIC = 1_024
"""Characters of a topic that is read; MQTT allows 65,535 bytes."""
MAX_LEVELS = 100
"""Of a topic that is published on; mosquitto ends a connection that brings 200."""
TOPICS_CHANGED = "mqtt.topics"
"""The control message that the rows of the console have changed."""
_PLACE = re.compile(r"\{(\d+)\}")

ONLINE = b"online"


class DeviceTopic(NamedTuple):
    """The device of a topic, and its kind: `out` or `status`."""

    device: str
    kind: str


class DeviceTopics:
    """The topics of the devices of a domain."""

    def __init__(self, prefix: str, domain: str) -> None:
        self._base = f"{prefix}/{domain}"
        self.filters = (f"{self._base}/+/out", f"{self._base}/+/status")

    def read(self, topic: str) -> DeviceTopic | None:
        """What a topic is; None if it is none of a device's.

        >>> DeviceTopics("rethink", "example.org").read("rethink/example.org/lamp/out")
        DeviceTopic(device='lamp', kind='out')
        """
        base, _, rest = topic.rpartition("/")
        base, _, device = base.rpartition("/")
        if base != self._base or rest not in ("out", "status") or not DEVICE_NAME.fullmatch(device):
            return None
        return DeviceTopic(device, rest)

    def base_of(self, device: str) -> str:
        """The prefix of all topics of a device."""
        return f"{self._base}/{device}/"

    def inbound(self, device: str) -> str:
        """Where frames to a device are published."""
        return f"{self._base}/{device}/in"


def filter_fault(text: str) -> str:
    """Why a text is no topic filter, or "".

    >>> filter_fault("sensors/+/t"), filter_fault("sensors/t+")
    ('', 'has a wildcard beside other characters of a level')
    """
    if not text or len(text) > MAX_TOPIC or "\0" in text:
        return f"must have 1 to {MAX_TOPIC} characters"
    if text.startswith("$"):
        return "begins with $, which is the broker's own"
    levels = text.split("/")
    if any(("+" in each or "#" in each) and len(each) > 1 for each in levels):
        return "has a wildcard beside other characters of a level"
    return "has # before its last level" if "#" in levels[:-1] else ""


def is_publishable(topic: str) -> bool:
    """Whether brokers take a topic: one that they do not may end the connection that brings it.

    >>> is_publishable("sensors/kitchen/set"), is_publishable("sensors/+/set")
    (True, False)
    """
    if not topic or len(topic) > MAX_TOPIC or topic.count("/") > MAX_LEVELS:
        return False
    return topic.isprintable() and "+" not in topic and "#" not in topic


def wildcards(topic_filter: str) -> int:
    """How many wildcards a topic filter has."""
    return sum(each in ("+", "#") for each in topic_filter.split("/"))


def met(topic_filter: str, topic: str) -> tuple[str, ...] | None:
    """What the wildcards of a filter have met in a topic; None if it does not fit.

    >>> met("sensors/+/t", "sensors/kitchen/t"), met("a/#", "a/b/c"), met("a/+", "b/c")
    (('kitchen',), ('b/c',), None)
    """
    found: list[str] = []
    levels = topic.split("/")
    wanted = topic_filter.split("/")
    for number, each in enumerate(wanted):
        if each == "#":
            return (*found, "/".join(levels[number:]))
        if number >= len(levels):
            return None
        if each == "+":
            found.append(levels[number])
        elif each != levels[number]:
            return None
    return tuple(found) if len(levels) == len(wanted) else None


def template_fault(template: str, number: int) -> str:
    """Why a template cannot be filled from so many wildcards, "" if it can."""
    if wrong := [each for each in _PLACE.findall(template) if not 1 <= int(each) <= number]:
        return f"names {{{wrong[0]}}}, and the topic has {number} wildcards"
    rest = _PLACE.sub("", template)
    return "has a brace that stands for nothing" if "{" in rest or "}" in rest else ""


def places(template: str) -> frozenset[int]:
    """The numbers of the wildcards that a template names."""
    return frozenset(int(each) for each in _PLACE.findall(template))


def filled(template: str, parts: tuple[str, ...], escapes: bool) -> str:
    """A template with what the wildcards have met; `escapes` what an address may not have.

    >>> filled("context://d/{1}", ("living room",), True)
    'context://d/living%20room'
    """

    def part(place: re.Match[str]) -> str:
        text = parts[int(place[1]) - 1]
        return quote(text, safe="~") if escapes else text

    return _PLACE.sub(part, template)


def unfilled(template: str, address: str, topic_filter: str) -> tuple[str, ...] | None:
    """What stands in an address for the wildcards of a filter, the reverse of `filled`.

    >>> unfilled("context://d/{1}", "context://d/living%20room", "home/+")
    ('living room',)
    """
    number = wildcards(topic_filter)
    pattern, known = "", set[str]()
    end = 0
    for place in _PLACE.finditer(template):
        name = f"p{place[1]}"
        pattern += re.escape(template[end : place.start()])
        pattern += f"(?P={name})" if name in known else f"(?P<{name}>[^/]+)"
        known.add(name)
        end = place.end()
    found = re.fullmatch(pattern + re.escape(template[end:]), address)
    if found is None:
        return None
    parts = found.groupdict()
    return tuple(unquote(parts.get(f"p{n}", "")) for n in range(1, number + 1))
