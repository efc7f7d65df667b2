"""The QoS broker connector, domain://qos.<domain>.

Applications query what the network offers, and reserve for their sessions; requests.py has the
forms. Every message gets one answer, 503 without a broker. A reservation belongs to the verified
subject that made it, else to the session.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, assert_never

from msgnode.bus.ports import Body, Component, ComponentInfo, Listener
from msgnode.core.errors import NodeError, Unavailable
from msgnode.core.messages import Message

from .broker import Broker, Order, Owner
from .requests import Inquire, List, Read, Release, Renew, Request, Reserve, request_of


class QosConnector(Component):
    """Relays to a Broker; see the head of the file.

    Args:
        domain: of the node.
        broker: None where the node has none.
        refusal: why no credential may be given, "" if it may.
        describe: how the broker is, and its last fault.
        on_asked: hears of each reservation that was asked for: of what class, and the code.
    """

    name = "qos"
    kind = "connector"

    def __init__(
        self,
        domain: str,
        broker: Broker | None,
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
            if self._broker is None:
                raise Unavailable("no QoS broker: this node has none (QOS_BROKER)")
            request = request_of(message.type, message.fields())
            asked = type(request).__name__.lower()
            if self._refusal and isinstance(request, Reserve | Renew):
                raise Unavailable(self._refusal)
        except NodeError as refusal:
            self.requests[asked, refusal.code] += 1
            raise
        answer = self._answer(self._broker, request, _owner(caller))
        return self._counted(asked, answer, request, caller)

    async def _counted(
        self, asked: str, answer: Awaitable[Body], request: Request, caller: Listener
    ) -> Body:
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
        if self._broker is not None:
            try:
                await self._broker.release(id_, owner)
            except NodeError:
                self.info.failed += 1  # it ends when it is not used


def _owner(caller: Listener) -> Owner:
    identity = caller.speaker.identity
    if identity is None:
        return Owner(caller.id, caller.runtime_url)
    return Owner(caller.id, caller.runtime_url, identity.issuer, identity.subject)
