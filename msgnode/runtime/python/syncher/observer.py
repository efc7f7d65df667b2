"""An observer's copy of a data object. It is for reading; its children may be added to.

Rules
- What was missed is noticed and read again (`follower.py`), also after a connection came back, and
  after a stub said that something was lost.
- Only what the object itself sends is believed, and only by way of its own domain or of home.
- A reporter that is away leaves the copy as it is: `status` is "disconnected" until he can be read.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

from msgnode.core import addresses
from msgnode.runtime.python.bus import Bus
from msgnode.runtime.python.messages import Message, body_of, code_of

from .changes import MAX_OBJECT, apply_change, plain, size_of
from .children import Child, ChildEvent, Children, event_of
from .errors import SyncError
from .follower import Follower
from .observed import ObservedDict, observe
from .talk import Body, Item, Listeners, ask_in_parts, refused

CHILD_RETRIES = 3


class DataObjectObserver:
    """One object that this hyperty observes; made by `Syncher.subscribe`.

    Attributes:
        data: the object as of its last change that is known, for reading.
        status: "live", "disconnected" or "ended".
    """

    def __init__(
        self,
        hyperty: str,
        bus: Bus,
        home: str,
        end: Callable[[], Awaitable[None]],
        subscribe_again: Callable[[], Awaitable[Body]],
        url: str,
    ) -> None:
        self.url = url
        self.schema = ""
        self.name = ""
        self.reporter = ""
        self.status = "live"
        self._raw: dict[str, Any] = {}
        self.data: ObservedDict = observe(self._raw, None)
        self._me = hyperty
        self._bus = bus
        self._domains = (addresses.parse(url).home, home)
        self._end = end
        self._subscribe_again = subscribe_again
        self._size = 0
        self._children = Children()
        self._is_confirming = False
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by child
        self._is_started = self._is_refused = False
        self._follower = Follower(self)
        self._changes, self._child_events = Listeners(bus), Listeners(bus)
        self._statuses = Listeners(bus)

    @property
    def version(self) -> int | None:
        """Of the last change that was applied, if known."""
        return self._follower.version

    @property
    def children(self) -> list[Child]:
        """Its children, in the order in which they came."""
        return self._children.all()

    def on_change(self, listener: Callable[[Body], object]) -> Item:
        """Hear of changes: `attribute`, and `value` unless it was removed; for lists `operation`.

        With `attribute` "" all was read anew.
        """
        return self._changes.add(listener)

    def on_child(self, listener: Callable[[ChildEvent], object]) -> Item:
        """Hear of children."""
        return self._child_events.add(listener)

    def on_status(self, listener: Callable[[str], object]) -> Item:
        """Hear of `status`."""
        return self._statuses.add(listener)

    async def add_child(self, value: Any, id_: str = "") -> str:
        """Add a child; its id, once the reporter has taken it. Raises SyncError."""
        id_ = id_ or f"{self._me}#{uuid.uuid4()}"
        await self._say("create", {"resource": id_, "value": plain(value, is_ours=False)})
        return id_

    async def update_child(self, id_: str, value: Any) -> None:
        """Change a child that one has made. Raises SyncError."""
        await self._say("update", {"resource": id_, "value": plain(value, is_ours=False)})

    async def remove_child(self, id_: str) -> None:
        """Take a child out that one has made. Raises SyncError."""
        await self._say("delete", {"resource": id_})

    async def unsubscribe(self) -> None:
        """Observe it no longer."""
        if self.status != "ended":
            self.ended()
            await self._end()

    # --- for the syncher --------------------------------------------------------------------------

    def received(self, message: Message) -> None:
        """What came to `<object>/changes`."""
        if self.status == "ended":
            return
        body = body_of(message)
        via = body.get("via")
        is_reporters = addresses.is_under(message["from"], self.url)
        if not is_reporters or (via and addresses.parse(via).home not in self._domains):
            self.count("data.forged")
        elif message["type"] == "delete":
            self.ended()
        elif message["type"] == "update":
            self._follower.take(body)

    def received_child(self, message: Message) -> None:
        """What came to `<object>/children/`: it counts where the reporter confirms no children."""
        id_ = body_of(message).get("resource")
        if self._is_confirming or self.status == "ended" or not isinstance(id_, str):
            return
        known = self._children.get(id_)
        if known is not None and known.source != message["from"]:
            return
        value = {k: v for k, v in body_of(message).items() if k == "value"}
        told = {
            "resource": id_,
            **({} if message["type"] == "delete" else {"value": None, **value}),
        }
        self._take_child(told, message["from"])

    def start(self, value: Body, schema: str) -> None:
        """The subscription was granted. Raises SyncError if the value is none."""
        self.schema = schema or str(value.get("schema", ""))
        try:
            self._follower.start(value)
        except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
            text = f"What the reporter of {self.url} says is no data object: {error}"
            raise SyncError(502, text) from error

    def check(self) -> None:
        """A connection came back, or something was lost on it."""
        self._follower.check()

    def disconnected(self) -> None:
        """There is no connection to the object's domain."""
        self._enter("disconnected")

    def ended(self) -> None:
        """Follow it no more."""
        self._follower.stop()
        self._enter("ended")

    async def read_whole(self) -> Body:
        """The object's value, of however many parts it consists."""
        return await ask_in_parts(self._bus, {"type": "read", "from": self._me, "to": self.url})

    # --- Copy of the follower ---------------------------------------------------------------------

    def apply(self, change: Body) -> None:
        """Apply a change; raise if it does not fit."""
        if "childVersion" in change or isinstance(change.get("resource"), str):
            self._take_child(change, str(change.get("childSource", self.reporter)))
            return
        size = size_of(change.get("value"))
        self._size += size
        if self._size > MAX_OBJECT:
            self._size = size_of(self._raw) + size
            if self._size > 2 * MAX_OBJECT:
                raise OverflowError("The object is larger than one may be.")
        apply_change(self._raw, change)
        known = ("attribute", "value", "attributeType", "operation")
        self._changes.tell({name: change[name] for name in known if name in change})

    async def read(self) -> Body:
        """The object's value, from its reporter.

        One that began anew knows no observers, and a node that sent its guest away passes nothing
        on: who is refused asks to be an observer again, until he is one.
        """
        if not self._is_refused:
            try:
                return await self.read_whole()
            except SyncError as error:
                if error.code != 403:
                    raise
                self._is_refused = True
        value = await self._subscribe_again()
        self._is_refused = False
        return await self.read_whole() if value.get("responses") else value

    def adopt(self, value: Body) -> None:
        """Take over the object's value; raise if it is none."""
        data = value.get("data")
        if not isinstance(data, dict):
            raise SyncError(502, "The reporter's object has no data.")
        self._raw = plain(data, is_ours=False)
        self._size = size_of(self._raw)
        self.data = observe(self._raw, None)
        self.name = str(value.get("name") or "")
        self.reporter = str(value.get("reporter") or "")
        self._is_confirming = value.get("confirmsChildren") is True
        children = value.get("childrenObjects")
        events: list[ChildEvent] = []
        if isinstance(children, dict):
            events = self._children.replace(children)
        elif not value.get("responses"):
            events = self._children.replace({})
        self._enter("live")
        is_first, self._is_started = not self._is_started, True
        if is_first:
            return
        self._changes.tell({"attribute": "", "value": self.data})
        for event in events:
            self._child_events.tell(event)

    def unread(self) -> None:
        """A read has failed."""
        self.count("data.unread")
        self._enter("disconnected")

    def count(self, reason: str) -> None:
        """Something was dropped or read again."""
        self._bus.counters[reason] += 1

    def _take_child(self, told: Body, source: str) -> None:
        id_ = told["resource"]
        known = self._children.get(id_)
        if "value" not in told:
            if known is not None:
                self._children.delete(id_)
                self._child_events.tell(event_of("delete", known))
            return
        child = self._children.put(id_, known.source if known else source, told["value"])
        self._child_events.tell(event_of("create" if known is None else "update", child))

    async def _say(self, kind: str, body: Body) -> None:
        if self.status == "ended":
            raise SyncError(404, "The object has ended.")
        to = f"{self.url}/children/"
        message = {"type": kind, "from": self._me, "to": to, "body": body}
        if not self._is_confirming:
            self._bus.post_message(message, lambda _: None)
            self._take_child(body, self._me)
            return
        # One request about a child at a time: one that is sent again would undo a later one.
        asking = self._asking.setdefault(body["resource"], asyncio.Lock())
        async with asking:
            await self._ask({**message, "body": {**body, "once": uuid.uuid4().hex}})

    async def _ask(self, message: Message) -> None:
        if self.status == "ended":
            raise SyncError(404, "The object has ended.")
        try:
            answer = await self._bus.post_message_with_retries(message, CHILD_RETRIES)
        except TimeoutError:
            raise SyncError(408, f"The reporter of {self.url} does not answer.") from None
        if code_of(answer) >= 300:
            raise refused(message, answer)

    def _enter(self, status: str) -> None:
        if self.status not in (status, "ended"):
            self.status = status
            self._statuses.tell(status)
