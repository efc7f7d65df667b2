"""The reporter's side of a data object: the one copy that may be changed.

Rules
- Each change has the next number, and goes to `<object>/changes` at once.
- Who asks to subscribe is judged by the application (`on_subscription`), or admitted; who was
  invited, or observes already, is not asked about again, unless another runtime asks in his name.
  Only observers may read the object and add children.
- Children come to `<object>/children/`. The reporter takes or refuses each, and tells all observers
  of it with a number like any change's, so that they miss none and believe nobody else. What is
  sent again, because the answer was lost, is done once.
- After a connection came back the last change is repeated: who missed it takes it, others drop it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from msgnode.runtime.python.bus import Bus
from msgnode.runtime.python.messages import Message, answer_to, body_of

from .changes import MAX_OBJECT, is_same, size_of
from .children import Child, ChildEvent, Children, Done, event_of
from .errors import SyncError
from .observed import ObservedDict, observe
from .talk import Body, Decision, InTime, Item, Listeners, ask, decided, respond

MAX_OBSERVERS = 10_000

Judge = Callable[[Body], bool | None | Awaitable[bool | None]]


class DataObjectReporter:
    """One object that this hyperty reports; made by `Syncher.create`.

    Args:
        hyperty: URL of the hyperty.
        bus: of its runtime.
        manager: address of the runtime's sync manager.
        end: called when the object is deleted.
        stored: `resource`, `schema`, `value` (name, data, version, children, …), and the
            `observers` of before.

    Attributes:
        data: the object. Change it as any dict.
        version: of the last change.
        is_ended: whether it was deleted, or its syncher or runtime closed.
    """

    def __init__(
        self,
        hyperty: str,
        bus: Bus,
        manager: str,
        end: Callable[[], Awaitable[None]],
        stored: Body,
    ) -> None:
        value: Body = dict(stored["value"])
        self._raw: dict[str, Any] = value.pop("data")
        self._children = Children()
        self._children.replace(value.pop("childrenObjects", {}))
        self._last_modified: str = value.pop("lastModified", "") or _now()
        self.version: int = value.pop("version", 0)
        self.url: str = stored["resource"]
        self.schema: str = stored.get("schema", "")
        self.name: str = value.get("name", "")
        self.data: ObservedDict = observe(self._raw, self)
        self.reporter = self._me = hyperty
        self._bus = bus
        self._manager = manager
        self._end = end
        self._head = {**value, "url": self.url, "reporter": hyperty, "confirmsChildren": True}
        self._size = size_of(self._raw)
        self._observers: dict[str, str] = dict(stored.get("observers", []))
        self._invited: set[str] = set()
        self._done = Done()
        self._child_listeners = Listeners(bus)
        self._in_time = InTime(bus)
        self._last: Body | None = None
        self._judge: Judge | None = None
        self._read_judge: Judge | None = None
        self.is_ended = False

    @property
    def observers(self) -> list[str]:
        """The hyperties that observe it."""
        return list(self._observers)

    @property
    def children(self) -> list[Child]:
        """Its children, in the order in which they came."""
        return self._children.all()

    def on_subscription(self, judge: Judge) -> None:
        """Judge who subscribes.

        Args:
            judge: `judge({"hyperty", "identity", "isAsserted"})` returns False or raises to refuse;
                it may be a coroutine function. `isAsserted`: the node that brought it vouches for
                the identity.
        """
        self._judge = judge

    def on_read(self, judge: Judge) -> None:
        """Judge who reads without observing: `judge({"from"})` returns True to let him."""
        self._read_judge = judge

    def on_child(self, listener: Callable[[ChildEvent], object]) -> Item:
        """Hear of children."""
        return self._child_listeners.add(listener)

    async def add_child(self, value: Any, id_: str = "") -> str:
        """Add a child of one's own; its id."""
        id_ = id_ or f"{self._me}#{uuid.uuid4()}"
        self._take_child("create", {"resource": id_, "value": value}, self._me)
        return id_

    async def update_child(self, id_: str, value: Any) -> None:
        """Change a child."""
        self._take_child("update", {"resource": id_, "value": value}, self._me)

    async def remove_child(self, id_: str) -> None:
        """Take a child out."""
        self._take_child("delete", {"resource": id_}, self._me)

    async def invite(self, addresses: str | Iterable[str]) -> dict[str, int]:
        """Invite hyperties; the code of each one's answer: below 300 is a yes."""
        asked = [addresses] if isinstance(addresses, str) else list(addresses)
        codes = await asyncio.gather(*(self._invite(address) for address in asked))
        return dict(zip(asked, codes, strict=True))

    async def _invite(self, address: str) -> int:
        self._invited.add(address)
        body = {
            "resume": False,
            "resource": self.url,
            "schema": self.schema,
            "value": self._metadata(),
            "authorise": [address],
        }
        head = {"type": "create", "from": self._me, "to": self._manager}
        try:
            told = await ask(self._bus, {**head, "body": body})
        except SyncError as error:
            self._invited.discard(address)
            return error.code
        return int(told["code"])

    async def delete(self) -> None:
        """End the object: its observers are told, its address is free."""
        self.is_ended = True
        await self._end()

    # --- for the syncher --------------------------------------------------------------------------

    def received(self, message: Message) -> None:
        """What is sent to the object itself."""
        if message["type"] == "read":
            self._read(message)
        elif message["type"] != "response":
            text = "A data object can be read; other messages go to its parts."
            self._bus.post_message(answer_to(message, 400, text))

    def received_child(self, message: Message) -> None:
        """What is sent to its children."""
        kind, sender = message["type"], message["from"]
        if kind not in ("create", "update", "delete"):
            return

        def decide() -> Body:
            if sender not in self._observers:
                raise SyncError(403, f"{sender} does not observe this object.")
            body = body_of(message)
            if not self._done.has(sender, body.get("once")):
                self._take_child(kind, body, sender)
            self._done.add(sender, body.get("once"))
            return {"code": 200, "source": self._me}

        self._in_time.answer(message, decide)

    def forwarded(self, message: Message) -> None:
        """The runtime asks for somebody: subscribe or unsubscribe."""
        asked = body_of(message)
        who, by = asked["from"], asked.get("source") or asked["from"]
        if asked["type"] == "unsubscribe":
            self._observers.pop(who, None)
            respond(self._bus, message, {"code": 200})
            return

        def admit(admitted: bool | None) -> Body:
            if admitted is False:
                raise SyncError(403, "The reporter does not admit this observer.")
            if self.is_ended:
                raise SyncError(404, "The object has ended.")
            self._observers[who] = by
            head, parts = self._value()
            if parts:
                head["responses"] = len(parts) + 1  # the observer reads them
            return {"code": 200, "schema": self.schema, "value": head}

        def decide() -> Decision:
            is_observer = who in self._observers
            is_known = self._observers[who] == by if is_observer else who in self._invited
            if not (is_known or is_observer) and len(self._observers) >= MAX_OBSERVERS:
                text = f"A data object has at most {MAX_OBSERVERS} observers."
                raise SyncError(503, text)
            if is_known or self._judge is None:
                return admit(True)
            known = {name: asked.get(name) for name in ("identity", "isAsserted")}
            return decided(self._judge({"hyperty": who, **known}), admit)

        self._in_time.answer(message, decide)

    def announce(self) -> None:
        """It is reported again: observers that know later changes of before read it."""
        known = ("version", "lastModified", "incarnation")
        head = {name: value for name, value in self._metadata().items() if name in known}
        self._last = {"source": self._me, **head}
        self._post(self._last)

    def repeat(self) -> None:
        """A connection came back, or something was lost on it."""
        if self._last is not None and not self.is_ended:
            self._post(self._last)

    def ended(self) -> None:
        """Decide nothing any more, and take no changes: nobody would hear of them."""
        self.is_ended = True
        self._in_time.close()

    # --- changes (Sink of the observed data) ------------------------------------------------------

    def admit(self, part: Any) -> None:
        """Raise if the part cannot be taken in."""
        size = size_of(part) + 100
        if self._size + size > MAX_OBJECT:
            self._size = size_of(self._raw)
        if self._size + size > MAX_OBJECT:
            raise OverflowError(f"A data object has at most {MAX_OBJECT} bytes.")
        self._size += size

    def changed(self, change: Body) -> None:
        """A change has been made."""
        self._publish({"version": self.version + 1, **change})

    def _publish(self, change: Body) -> None:
        self.version += 1
        self._last_modified = _now()
        self._last = {"source": self._me, "lastModified": self._last_modified, **change}
        if incarnation := self._head.get("incarnation"):
            # None of objects stored before there was one.
            self._last["incarnation"] = incarnation
        self._post(self._last)

    def _post(self, body: Body) -> None:
        head = {"type": "update", "from": self.url, "to": f"{self.url}/changes"}
        self._bus.post_message({**head, "body": body})

    def _take_child(self, kind: str, told: Body, sender: str) -> None:
        if self.is_ended:
            raise SyncError(404, "The object has ended.")
        id_ = told.get("resource")
        known = self._children.get(id_) if isinstance(id_, str) else None
        if known is not None and sender not in (known.source, self._me):
            raise SyncError(403, "A child is its maker's, or its reporter's.")
        if kind == "update" and known is None:
            raise SyncError(404, "There is no such child.")
        if kind == "delete":
            if known is not None:  # else said twice
                self._children.delete(known.id)
                self._tell_child(event_of("delete", known))
            return
        value = told.get("value")
        try:
            if size_of(value) > MAX_OBJECT:
                raise OverflowError(f"A child has at most {MAX_OBJECT} bytes.")
            child = self._children.put(id_, known.source if known else sender, value)
        except OverflowError as error:
            raise SyncError(413, str(error)) from None
        except TypeError as error:
            raise SyncError(400, str(error)) from None
        if known is None or not is_same(known.value, child.value):  # else said twice
            self._tell_child(event_of("create" if known is None else "update", child))

    def _tell_child(self, event: ChildEvent) -> None:
        change = {"childVersion": self.version + 1, "childSource": event.source}
        value = {} if event.type == "delete" else {"value": event.value}
        self._publish({**change, "resource": event.id, **value})
        self._child_listeners.tell(event)

    # --- reading ----------------------------------------------------------------------------------

    def _metadata(self) -> Body:
        return {**self._head, "version": self.version, "lastModified": self._last_modified}

    def _value(self) -> tuple[Body, list[Body]]:
        """The whole: its head, and the parts of its children that do not go with it."""
        parts = self._children.parts()
        head = {**self._metadata(), "data": self._raw}
        if len(parts) > 1:
            return head, parts
        return {**head, "childrenObjects": parts[0] if parts else {}}, []

    def _read(self, message: Message) -> None:
        sender = message["from"]
        if sender in self._observers or sender in self._observers.values():
            respond(self._bus, message, self._told_whole(message))
            return

        def tell(may_read: bool | None) -> Body:
            if may_read is not True:
                raise SyncError(403, f"{sender} does not observe this object.")
            return self._told_whole(message)

        def decide() -> Decision:
            return decided(self._read_judge({"from": sender}) if self._read_judge else False, tell)

        self._in_time.answer(message, decide)

    def _told_whole(self, message: Message) -> Body:
        """The last part of the answer, with which nobody waits any longer; others are sent."""
        head, parts = self._value()
        if not parts:
            return {"code": 200, "value": head}
        first = {**head, "responses": len(parts) + 1}
        respond(self._bus, message, {"code": 100, "value": first})
        for part in parts[:-1]:
            respond(self._bus, message, {"code": 100, "value": {"childrenObjects": part}})
        return {"code": 200, "value": {"childrenObjects": parts[-1]}}


def _now() -> str:
    """The time as JavaScript writes it, so that such texts can be compared."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
