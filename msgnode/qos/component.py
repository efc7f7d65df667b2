"""The QoS broker connector, domain://qos.<domain>.

Applications query what the network offers, and reserve for their sessions. Every message gets one
answer, 503 without a broker. A reservation belongs to the verified subject that made it, else to
the session.

What a message asks for:

read    `resource` /resources, with `criteria` {cspId, mediaTypes, near}; /reservations, or one of
        them
create  `resource` /reservations, with `value` {flows: [{mediaType}], class, bitrate, seconds,
        cspId, clientName, sessionId, near: [access network of each end]}
update  `resource` /reservations/<id>, with `value` {seconds}: renew
delete  `resource` /reservations/<id>: release
A class may be said as text or as the number of the field's papers (0 audio, 1 video, 2 data).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from msgnode.bus.ports import Body, Component, ComponentInfo, Listener
from msgnode.connectors.asking import ASKING
from msgnode.core.errors import BadMessage, NodeError, Unavailable
from msgnode.core.messages import Message

from .broker import Broker, Criteria, Order, Owner

MAX_FLOWS = 16
MAX_NEAR = 8
MAX_TEXT = 128
MAX_ADDRESS = 600
MAX_BITRATE = 10**10
MAX_SECONDS = 7 * 24 * 3600
_BY_NUMBER = {0: "audio", 1: "video", 2: "data"}


@dataclass(frozen=True, slots=True)
class Inquire:
    """Read the capacity."""

    criteria: Criteria


@dataclass(frozen=True, slots=True)
class Reserve:
    """A new reservation."""

    order: Order


@dataclass(frozen=True, slots=True)
class List:
    """The caller's reservations."""


@dataclass(frozen=True, slots=True)
class Read:
    """One of them."""

    id: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew a reservation for so many seconds; 0: as long as at first."""

    id: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Release:
    """End one."""

    id: str


Request = Inquire | Reserve | List | Read | Renew | Release


def request_of(type_: str, body: Mapping[str, Any]) -> Request:
    """Parse the request in a message. Raises BadMessage, which names the error."""
    kind, id_ = _resource(body)
    match type_, kind, id_:
        case "read", "resources", "":
            return Inquire(_criteria(body.get("criteria")))
        case "read", "reservations", "":
            return List()
        case "read", "reservations", _:
            return Read(id_)
        case "create", "reservations", "":
            return Reserve(_order(_object(body.get("value"), "value")))
        case "update", "reservations", _ if id_:
            return Renew(id_, _seconds(_object(body.get("value") or {}, "value")))
        case "delete", "reservations", _ if id_:
            return Release(id_)
    raise BadMessage(
        "The QoS broker takes read of /resources, /reservations or /reservations/<id>, create of "
        "/reservations, and update and delete of /reservations/<id>."
    )


def _resource(body: Mapping[str, Any]) -> tuple[str, str]:
    resource = body.get("resource", "")
    if not isinstance(resource, str) or len(resource) > MAX_TEXT:
        raise BadMessage("`resource` is a text such as /reservations.")
    kind, _, id_ = resource.strip("/").partition("/")
    return kind, id_


def _criteria(value: Any) -> Criteria:
    if value is None:
        return Criteria()
    fields = _object(value, "criteria")
    return Criteria(
        _optional_text(fields, "cspId", MAX_TEXT),
        _media(fields.get("mediaTypes"), "mediaTypes"),
        _near(fields.get("near")),
    )


def _order(value: Mapping[str, Any]) -> Order:
    flows = value.get("flows", [])
    if not isinstance(flows, list) or len(flows) > MAX_FLOWS:
        raise BadMessage(f"`flows` is a list of at most {MAX_FLOWS} objects with a mediaType.")
    media = _media([_object(flow, "flows").get("mediaType") for flow in flows], "mediaType")
    named = value.get("class")
    order = Order(
        media=media,
        traffic_class="" if named is None else _class(named, "class"),
        bitrate=_number(value, "bitrate", MAX_BITRATE),
        seconds=_seconds(value),
        customer=_optional_text(value, "cspId", MAX_TEXT),
        client_name=_optional_text(value, "clientName", MAX_TEXT),
        about=_optional_text(value, "sessionId", MAX_ADDRESS),
        near=_near(value.get("near")),
    )
    if not order.media and not order.traffic_class:
        raise BadMessage("A reservation needs `flows` with a mediaType, or a `class`.")
    return order


def _seconds(value: Mapping[str, Any]) -> int:
    return _number(value, "seconds", MAX_SECONDS)


def _media(value: Any, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_FLOWS:
        raise BadMessage(f"`{name}` is a list of at most {MAX_FLOWS} classes.")
    return tuple(_class(each, name) for each in value)


def _near(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_NEAR:
        raise BadMessage(f"`near` is a list of at most {MAX_NEAR} names of access networks.")
    if not all(
        isinstance(each, str) and 0 < len(each) <= 64 and "\0" not in each for each in value
    ):
        raise BadMessage("`near` holds names of access networks, 64 characters at most.")
    return tuple(value)


def _class(value: Any, name: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = _BY_NUMBER.get(value)
    if not isinstance(value, str) or not 0 < len(value) <= 16:
        raise BadMessage(f"`{name}` is the name of a traffic class such as audio.")
    return value.lower()


def _number(value: Mapping[str, Any], name: str, most: int) -> int:
    number = value.get(name)
    if number is None:
        return 0
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= most:
        raise BadMessage(f"`{name}` is a whole number from 1 to {most}.")
    return number


def _optional_text(value: Mapping[str, Any], name: str, most: int) -> str:
    text = value.get(name, "")
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > most or "\0" in text:
        raise BadMessage(f"`{name}` is a text of at most {most} characters.")
    return text


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadMessage(
            f"`{name}` holds objects." if name == "flows" else f"`{name}` is an object."
        )
    return value


class QosConnector(Component):
    """Relays to a Broker; see the head of the file.

    Args:
        domain: of the node.
        broker: the one to ask now; None where the node has none.
        refusal: why no credential may be given, "" if it may.
        describe: how the broker is, and its last fault.
        on_asked: hears of each reservation that was asked for: of what class, and the code.
    """

    name = "qos"
    kind = "connector"

    def __init__(
        self,
        domain: str,
        broker: Callable[[], Broker | None],
        refusal: str,
        describe: Callable[[], tuple[str, str]],
        on_asked: Callable[[Listener, str, int], None],
    ) -> None:
        super().__init__((f"domain://qos.{domain}",))
        self._broker = broker
        self._refusal = refusal
        self._returning: set[asyncio.Future[None]] = set()
        self._classes = {"audio", "video", "data"}
        self.requests: Counter[tuple[str, int]] = Counter()
        """Requests by kind, and by the code of the answer."""
        self._describe = describe
        self._on_asked = on_asked

    def update_info(self) -> ComponentInfo:
        """With the state of the broker, and its last fault."""
        self.info.state, fault = self._describe()
        self.info.last_error = fault or self.info.last_error
        return self.info

    def answer(self, message: Message, caller: Listener) -> Awaitable[Body]:
        """Carry a request out, and count it by its outcome."""
        asked = "unreadable"
        try:
            if (broker := self._broker()) is None:
                raise Unavailable("no QoS broker: this node has none (QOS_BROKER)")
            request = request_of(message.type, message.fields())
            asked = type(request).__name__.lower()
            if self._refusal and isinstance(request, Reserve | Renew):
                raise Unavailable(self._refusal)
        except NodeError as refusal:
            self.requests[asked, refusal.code] += 1
            raise
        answer = self._answer(broker, request, _owner(caller))
        return self._counted(asked, answer, request, caller)

    async def _counted(
        self, asked: str, answer: Awaitable[Body], request: Request, caller: Listener
    ) -> Body:
        ASKING.set(caller)
        try:
            body = await answer
        except NodeError as refusal:
            self.requests[asked, refusal.code] += 1
            if isinstance(request, Reserve):
                self._on_asked(caller, self._class_of(request.order), refusal.code)
            raise
        self.requests[asked, 200] += 1
        if isinstance(request, Reserve):
            granted = str(body["value"]["class"])
            self._classes.add(granted)
            self._on_asked(caller, granted, 200)
        return body

    def _class_of(self, order: Order) -> str:
        """The traffic class of an order; "" for several, and for an unknown name."""
        named = {order.traffic_class} if order.traffic_class else set(order.media)
        return next(iter(named)) if len(named) == 1 and named <= self._classes else ""

    async def _answer(self, broker: Broker, request: Request, owner: Owner) -> Body:
        value: Any
        match request:
            case Inquire(criteria):
                value = await broker.inquire(criteria)
            case Reserve(order):
                value = await broker.reserve(order, owner)
            case List():
                value = await broker.list(owner)
            case Read(id_):
                value = await broker.read(id_, owner)
            case Renew(id_, seconds):
                value = await broker.renew(id_, seconds, owner)
            case Release(id_):
                await broker.release(id_, owner)
                return {"code": 200}
            case _:
                assert_never(request)
        return {"code": 200, "value": value}

    def revoke(self, message: Message, body: Body, caller: Listener) -> None:
        """Release a reservation whose answer came too late, because its owner does not know it."""
        value = body.get("value")
        if message.type == "create" and isinstance(value, dict) and "reservationId" in value:
            task = asyncio.ensure_future(self._give_back(value["reservationId"], _owner(caller)))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _give_back(self, id_: str, owner: Owner) -> None:
        if (broker := self._broker()) is not None:
            try:
                await broker.release(id_, owner)
            except NodeError:
                self.info.failed += 1  # it ends when it is not used


def _owner(caller: Listener) -> Owner:
    identity = caller.speaker.identity
    if identity is None:
        return Owner(caller.id, caller.runtime_url)
    return Owner(caller.id, caller.runtime_url, identity.issuer, identity.subject)
