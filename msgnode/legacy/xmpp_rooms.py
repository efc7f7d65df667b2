"""Rooms of an XMPP server (XEP-0045) as data objects: who observes one here is an occupant there.

    comm://legacy.example/picnic@rooms.legacy.example    picnic@rooms.legacy.example
    subscribe to its /subscription                       a join, under the name of the user
    create to its /children/                             a message to all
    update of its /changes                               what anybody wrote, and who is there
    delete of its /changes                               the room, or our last occupant, is gone

Rules
- The room's order is that of the object: what is written here counts when the room sends it back.
- Each occupant of ours gets a copy of everything; that of who has been there longest counts.
- Who is removed there is refused 403 from then on, and joins again only by observing it again. So
  does everybody after the connection to the server was lost: nothing is joined by itself.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from msgnode.core import addresses
from msgnode.core.errors import (
    BadGateway,
    Forbidden,
    GatewayTimeout,
    NodeError,
    NotFound,
    Unavailable,
)
from msgnode.core.messages import Message, error_body

from .network import Here, NotSupported
from .parties import Parties, text_in
from .xmpp_addresses import Jid, XmppAddresses, prepared, unescaped
from .xmpp_errors import error_in
from .xmpp_stream import COMPONENT, Element, Gateway, cleaned, tag, text_of

MUC = "http://jabber.org/protocol/muc"
MAX_ROOMS, MAX_OCCUPANTS, MAX_UNSAID, MAX_SHOWN = 100, 200, 200, 500
"""Rooms; occupants of ours in each, messages of ours under way, and names that are shown."""
ANSWER_SECONDS, LOOK_SECONDS = 10.0, 5.0
MAX_NAMES = 9
"""Names that are tried for one who joins: the room has given his to somebody else."""
_SCHEME = "comm://"


@dataclass(eq=False, slots=True)
class Occupant:
    """One of ours: `asked` is the request to join until it is answered."""

    hyperty: str
    runtime: str
    jid: str
    name: str
    asked: Message | None
    until: float
    tries: int = 1


@dataclass(eq=False, slots=True)
class Room:
    """A room with occupants of ours; `unsaid` are their messages that have not come back."""

    jid: Jid
    url: str
    incarnation: str = field(default_factory=lambda: secrets.token_hex(6))
    version: int = 0
    ours: dict[str, Occupant] = field(default_factory=dict)  # by hyperty
    names: dict[str, None] = field(default_factory=dict)
    unsaid: dict[str, tuple[Message, float]] = field(default_factory=dict)

    def occupant(self, jid: str) -> Occupant | None:
        """The one of ours with an address there."""
        return next((each for each in self.ours.values() if each.jid == jid), None)

    @property
    def listener(self) -> Occupant | None:
        """The one whose copies count."""
        return next((each for each in self.ours.values() if each.asked is None), None)

    @property
    def value(self) -> dict[str, Any]:
        """The object, as who observes it is told."""
        return {
            "url": self.url, "reporter": self.url, "name": self.jid.local, "version": self.version,
            "incarnation": self.incarnation, "confirmsChildren": True, "childrenObjects": {},
            "data": {"name": self.jid.local, "participants": list(self.names)},
        }  # fmt: skip


class XmppRooms:
    """One instance per network.

    Args:
        mapped: maps addresses.
        here: this node.
        gateway: the network.
        parties: who of this node has which name there.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        mapped: XmppAddresses,
        here: Here,
        gateway: Gateway,
        parties: Parties,
        clock: Callable[[], float],
    ) -> None:
        self._mapped = mapped
        self._here = here
        self._gateway = gateway
        self._parties = parties
        self._clock = clock
        self._rooms: dict[str, Room] = {}  # by address there
        self._looks_at = 0.0

    def has(self, jid: Jid) -> bool:
        """Whether somebody there is a room, or in a room, that one of ours has joined."""
        return jid.bare in self._rooms

    # --- from runtimes here -----------------------------------------------------------------------

    def take(self, message: Message) -> bool:
        """Take a message of a runtime to a room; whether it is one. Raises NodeError."""
        to = message.recipients[0]
        if not to.startswith(_SCHEME):
            return False
        jid, part = self._room_in(to)
        body = message.fields()
        if part == "subscription" and message.type in ("subscribe", "unsubscribe"):
            who = str(body.get("subscriber") or body.get("source") or message.sender)
            take = self._join if message.type == "subscribe" else self._leave
            self._here.when_known((who,), partial(self._guarded, take, message, jid, who))
            return True
        room = self._rooms.get(jid.bare)
        occupant = room.ours.get(message.sender) if room is not None else None
        if room is None or occupant is None or occupant.asked is not None:
            raise Forbidden(f"Who is not in {jid.bare} hears and says nothing there.")
        if message.type == "read" and not part:
            self._here.answer(message, {"code": 200, "value": room.value})
        elif message.type == "create" and part.partition("/")[0] == "children":
            self._say(message, room, occupant, body)
        else:
            raise NotSupported("To a room, text is written: a child with `content`.")
        return True

    def _room_in(self, address: str) -> tuple[Jid, str]:
        """The room of an address, and what it is of the room's object. Raises NotFound."""
        name, _, part = addresses.parse(address).path.removeprefix("/").partition("/")
        local, at, service = name.partition("@")
        is_here = service.endswith(f".{self._mapped.domain}") and service != self._mapped.component
        if not (at and is_here and prepared(local) == local and quote(service) == service):
            raise NotFound(f"{address[:200]} is no room: one is {_SCHEME}{self._mapped.domain}/"
                           f"<name>@<service of rooms below {self._mapped.domain}>.")  # fmt: skip
        return Jid(local, service), part

    def is_granted(self, resources: Any) -> bool:
        """Whether addresses that are subscribed are parts of rooms, which are heard by joining."""
        return bool(resources) and all(str(each).startswith(_SCHEME) for each in resources)

    def _guarded(
        self, take: Callable[[Message, Jid, str], None], message: Message, jid: Jid, who: str
    ) -> None:
        try:
            take(message, jid, who)
        except NodeError as error:
            self._here.answer(message, error_body(error))

    def _join(self, message: Message, jid: Jid, who: str) -> None:
        runtime = self._here.runtime_of(who)
        if not runtime or runtime != self._here.runtime_of(message.sender):
            raise Forbidden("Who observes a room is a hyperty of the runtime that asks.")
        room = self._rooms.get(jid.bare)
        if room is None:
            if len(self._rooms) >= MAX_ROOMS:
                raise Unavailable("Too many rooms have been joined.")
            room = Room(jid, f"{_SCHEME}{self._mapped.domain}/{jid.bare}")
        known = room.ours.get(who)
        if known is not None and known.until == math.inf:
            self._here.answer(message, {"code": 200, "value": room.value})
            return
        if len(room.ours) >= MAX_OCCUPANTS:
            raise Unavailable(f"{jid.bare} has been joined too often.")
        local = self._parties.name_of(message.sender)
        place = f"{local}@{self._mapped.component}/{secrets.token_hex(6)}"
        occupant = Occupant(who, runtime, place,
                            unescaped(local.rpartition("%")[0] or local), message,
                            self._clock() + ANSWER_SECONDS)  # fmt: skip
        self._rooms[jid.bare] = room
        room.ours[who] = occupant
        self._enter(room, occupant)

    def _enter(self, room: Room, occupant: Occupant) -> None:
        name = occupant.name if occupant.tries == 1 else f"{occupant.name}-{occupant.tries}"
        head = {"from": occupant.jid, "to": f"{room.jid}/{name}"}
        history = tag("history", {"maxstanzas": "0"})
        self._gateway.put("presence", head, tag("x", {"xmlns": MUC}, history))

    def _leave(self, message: Message, jid: Jid, who: str) -> None:
        room = self._rooms.get(jid.bare)
        if room is not None and (occupant := room.ours.get(who)) is not None:
            if occupant.runtime != self._here.runtime_of(message.sender):
                raise Forbidden("A hyperty of another runtime observes the room.")
            self._go(room, occupant)
        self._here.answer(message, {"code": 200})

    def _go(self, room: Room, occupant: Occupant) -> None:
        """Have one of ours leave a room; what comes until it says so still counts."""
        head = {"type": "unavailable", "from": occupant.jid, "to": f"{room.jid}/{occupant.name}"}
        self._gateway.put("presence", head)
        occupant.until = self._clock() + ANSWER_SECONDS

    def _say(self, message: Message, room: Room, occupant: Occupant, body: dict[str, Any]) -> None:
        if not (text := cleaned(text_in(body))):
            raise NotSupported("To a room, text is written: it is in `value.content`.")
        if len(room.unsaid) >= MAX_UNSAID:
            raise Unavailable(f"{MAX_UNSAID} messages to {room.jid} are under way.")
        id_ = f"g-{secrets.token_hex(9)}"
        head = {"type": "groupchat", "id": id_, "from": occupant.jid, "to": str(room.jid)}
        self._gateway.put("message", head, tag("body", {}, text_of(text)))
        room.unsaid[id_] = (message, self._clock() + ANSWER_SECONDS)

    # --- from rooms -------------------------------------------------------------------------------

    def took(self, element: Element, their: Jid, ours: Jid) -> None:
        """Take a stanza of a room, or of somebody in it."""
        room = self._rooms[their.bare]
        occupant = room.occupant(str(ours))
        if occupant is None:
            return
        type_ = element.get("type")
        if element.name == f"{COMPONENT} message":
            if type_ == "error":
                self._unsaid(room, element.get("id"), error_body(error_in(element, their.bare)))
            elif type_ == "groupchat" and occupant is room.listener and their.resource:
                self._heard(room, element, their.resource)
        elif element.name == f"{COMPONENT} presence":
            self._took_presence(element, room, occupant, their.resource)

    def _took_presence(self, element: Element, room: Room, occupant: Occupant, name: str) -> None:
        found = element.find(f"{MUC}#user x")
        codes = {each.get("code") for each in found.children} if found is not None else set()
        type_ = element.get("type")
        if type_ == "error":
            fault = error_in(element, room.jid.bare)
            if fault.code == 409 and occupant.asked is not None and occupant.tries < MAX_NAMES:
                occupant.tries += 1
                self._enter(room, occupant)
            else:
                self._drop(room, occupant, error_body(fault))
        elif "110" in codes and type_ == "unavailable":
            self._drop(room, occupant, error_body(Forbidden(f"{room.jid} has sent you away.")))
        elif "110" in codes and occupant.asked is not None:
            asked, occupant.asked, occupant.name = occupant.asked, None, name
            occupant.until = math.inf
            if "201" in codes:  # it is new, and locked until it is configured
                form = tag("x", {"xmlns": "jabber:x:data", "type": "submit"})
                owner = tag("query", {"xmlns": f"{MUC}#owner"}, form)
                self._gateway.ask(str(room.jid), occupant.jid, owner)
            self._show(room, name, True)
            self._here.answer(asked, {"code": 200, "value": room.value})
        elif occupant is (room.listener or occupant):
            self._show(room, name, type_ != "unavailable")

    def _show(self, room: Room, name: str, is_there: bool) -> None:
        """Note that somebody is in a room, or no more."""
        if is_there == (name in room.names) or (is_there and len(room.names) >= MAX_SHOWN):
            return
        if is_there:
            room.names[name] = None
        else:
            del room.names[name]
        if room.listener is not None:
            self._tell(room, "version", {"attribute": "participants", "value": list(room.names)})

    def _heard(self, room: Room, element: Element, name: str) -> None:
        """Pass on what somebody has written, in the room's order."""
        body = element.find(f"{COMPONENT} body")
        own = next((each for each in room.ours.values() if each.name == name), None)
        if body is None or not body.text:
            return
        source = own.hyperty if own is not None else f"{room.url}/{quote(name)}"
        id_ = element.get("id")
        message = room.unsaid[id_][0] if own is not None and id_ in room.unsaid else None
        if message is None and not self._parties.is_within_rate(source):
            return
        said = message.fields() if message is not None else {}
        child = str(said.get("resource"))
        if not child.startswith(f"{source}#"):  # another's would be changed by it
            child = f"{source}#{secrets.token_hex(8)}"
        value = {"type": "chat", "content": body.text, "name": name}
        told = {"resource": child, "value": said.get("value", value), "childSource": source}
        self._tell(room, "childVersion", told)
        if message is not None:
            self._unsaid(room, id_, {"code": 200})

    def _tell(self, room: Room, numbered: str, change: dict[str, Any]) -> None:
        room.version += 1
        body = {numbered: room.version, "incarnation": room.incarnation, "source": room.url}
        self._here.tell(room.url, f"{room.url}/changes", body | change)

    def _unsaid(self, room: Room, id_: str, answer: dict[str, Any]) -> None:
        message, _ = room.unsaid.pop(id_, (None, 0.0))
        if message is not None:
            self._here.answer(message, answer)

    def _drop(self, room: Room, occupant: Occupant, why: dict[str, Any]) -> None:
        """Forget one of ours; with the last one the object ends for those who observe it here."""
        room.ours.pop(occupant.hyperty, None)
        if occupant.asked is not None:
            self._here.answer(occupant.asked, why)
        elif not any(each.asked is None for each in room.ours.values()):
            changes, source = f"{room.url}/changes", {"source": room.url}
            sender = f"{room.url}/subscription"
            self._here.ask("delete", sender, changes, source, lambda *_: None)
        self._show(room, occupant.name, False)
        if not room.ours:
            del self._rooms[room.jid.bare]
            for id_ in list(room.unsaid):
                self._unsaid(room, id_, why)

    # --- in time ----------------------------------------------------------------------------------

    def lost(self) -> None:
        """Forget all, as the server does: who observes one reads, is refused, and joins again."""
        rooms, self._rooms = self._rooms, {}
        fault = error_body(BadGateway(f"The connection to {self._mapped.domain} was lost."))
        for room in rooms.values():
            for occupant in room.ours.values():
                if occupant.asked is not None:
                    self._here.answer(occupant.asked, fault)
            for id_ in list(room.unsaid):
                self._unsaid(room, id_, fault)

    @property
    def due(self) -> float:
        """When `tick` has something to do next."""
        return self._looks_at if self._rooms else math.inf

    def tick(self) -> None:
        """Look at what has a time limit, and whether runtimes have gone."""
        now = self._clock()
        if now < self._looks_at:
            return
        self._looks_at = now + LOOK_SECONDS
        for room in list(self._rooms.values()):
            silent = error_body(GatewayTimeout(f"{room.jid} has not answered."))
            for id_ in [each for each, (_, until) in room.unsaid.items() if until <= now]:
                self._unsaid(room, id_, silent)
            for occupant in list(room.ours.values()):
                if occupant.until <= now:
                    self._drop(room, occupant, silent)
                elif occupant.until == math.inf and not self._here.runtime_of(occupant.hyperty):
                    self._here.if_gone(occupant.runtime, partial(self._go, room, occupant))
