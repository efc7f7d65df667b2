"""An XMPP network: the gateway as an external component of its operator's server (XEP-0114).

Rules
- A message is answered 200 `sent` when the server has taken it (xmpp_unacknowledged.py), or by what
  the server says of it. With receipts, `received`; `sent` if none comes within five seconds.
- Users of this node have addresses by their verified name (xmpp_addresses.py). Who is not logged in
  is lent an address (address_pool.py), or cannot write.
- An error is never answered; neither are headlines, nor what comes back from our own domain.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from msgnode.core import addresses
from msgnode.core.errors import (
    BadMessage,
    GatewayTimeout,
    NodeError,
    NotFound,
)
from msgnode.core.messages import Message, error_body

from .address_pool import AddressPool, is_lent
from .jingle import FEATURES, JINGLE
from .lookups import entry_of, user_asked
from .network import CALL, CONTACT, LENT, Here, LegacySettings, shown
from .parties import Parties, written_in
from .xmpp_addresses import Jid, XmppAddresses, jid_of
from .xmpp_calls import MESSAGES, XmppCalls, is_about_a_call
from .xmpp_errors import error_element, error_in
from .xmpp_presence import XmppPresence
from .xmpp_rooms import XmppRooms
from .xmpp_stream import (
    COMPONENT,
    ComponentStream,
    Element,
    cleaned,
    stanza,
    tag,
    text_of,
)
from .xmpp_unacknowledged import Unacknowledged

PING_SECONDS, QUIET_SECONDS = 10.0, 30.0
"""A ping that is not answered, and silence before one: the server is frozen, or the network cut."""
MAX_ASKED = 200
"""Questions of ours there."""

_RECEIPTS = "urn:xmpp:receipts"
_DISCO = "http://jabber.org/protocol/disco#info"
_ITEMS = "http://jabber.org/protocol/disco#items"
_PING = "urn:xmpp:ping"
Said = Callable[[Element | None], None]
"""Is called with the answer of the server, None if none comes."""


class XmppNetwork:
    """One instance per network that this worker serves. Implements LegacyNetwork.

    Args:
        settings: of the network.
        here: this node.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, settings: LegacySettings, here: Here, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.addresses = XmppAddresses(here.own, settings.domain, settings.component)
        self.pool = AddressPool(settings.pool, here, clock)
        self._settings = settings
        self._here = here
        self._clock = clock
        self._stream: ComponentStream | None = None
        self._parties = Parties(
            here, self.pool, self._user_of, self.addresses.local_of, settings, clock
        )
        self._presence = XmppPresence(self.addresses, here, self._parties.lookups, self)
        self._sent = Unacknowledged(
            settings.domain, here, self._ping, clock, settings.wants_receipts
        )
        self._jingle = XmppCalls(self.addresses, here, self, self._parties, clock)
        self._rooms = XmppRooms(self.addresses, here, self, self._parties, clock)
        self._number = 0
        self._heard_at = 0.0
        self._asked: OrderedDict[str, tuple[Said, float, str]] = OrderedDict()  # with who is asked
        self.restores = {LENT: self.pool.restore, CALL: self._jingle.calls.restore,
                         CONTACT: self._presence.restore}  # fmt: skip

    # --- the connection ---------------------------------------------------------------------------

    async def serve(self) -> None:
        """Connect, and serve until the connection ends. Raises Lost."""
        settings = self._settings
        stream = ComponentStream(settings.component, self._took, self._here.wake)
        try:
            await stream.open(settings.host, settings.port, settings.secret)
            self._stream, self._heard_at = stream, self._clock()
            self._sent.again(stream.send)
            self._presence.renew()
            self._here.live()
            self._jingle.calls.end_lost()
            while True:
                await self._here.ready()
                await stream.take()
        finally:
            if self._stream is not None:
                self._sent.lost()
            self._stream = None
            self._rooms.lost()
            await stream.close(b"</stream:stream>")

    def abort(self) -> None:
        """End the connection at once."""
        if self._stream is not None:
            self._stream.abort()

    @property
    def has_room(self) -> bool:
        """Whether a message may be sent now."""
        return self._stream is not None and not self._stream.is_full and not self._sent.is_full

    @property
    def due(self) -> float:
        """When `tick` has something to do next."""
        due = [self._sent.due(self._stream is not None), self._jingle.calls.due, self.pool.due,
               self._rooms.due]  # fmt: skip
        if self._asked:
            due.append(next(iter(self._asked.values()))[1])
        if self._stream is not None:
            pinged_at = self._sent.pinged_at
            silent = (self._heard_at, QUIET_SECONDS) if pinged_at is None else (
                pinged_at, PING_SECONDS)  # fmt: skip
            due += [sum(silent), self._clock() + self._presence.due]
        return min(due)

    def tick(self) -> None:
        """Look at what has a time limit."""
        now = self._clock()
        self._sent.expire(self._stream is not None)
        if self._stream is not None:
            pinged_at = self._sent.pinged_at
            if pinged_at is not None and now - pinged_at > PING_SECONDS:
                self._here.refused("the server has not answered a ping")
                self._stream.abort()
            elif pinged_at is None and now - self._heard_at > QUIET_SECONDS:
                self._sent.ping()
            self._presence.watch()
        while self._asked and next(iter(self._asked.values()))[1] <= now:
            self._asked.popitem(last=False)[1][0](None)
        self._jingle.calls.tick()
        self._rooms.tick()
        self.pool.sweep()

    def put(self, name: str, attributes: dict[str, Any], *inside: str) -> None:
        """Send a stanza, if the network is live."""
        made = stanza(self._settings.component, name, attributes, *inside)
        if self._stream is not None:
            self._stream.send(made)

    def _ping(self) -> str:
        """Ping the server; return the id, "" if it cannot be reached."""
        id_ = self._next_id("p")
        of_server = {"from": self._settings.component, "to": self._settings.domain}
        self.put("iq", {"type": "get", "id": id_, **of_server}, tag("ping", {"xmlns": _PING}))
        return id_ if self._stream is not None else ""

    def _next_id(self, kind: str) -> str:
        self._number += 1
        return f"{kind}{self._number}"

    # --- to the network ---------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Convert a message and put it on the wire. Raises NodeError if that cannot be."""
        if self._rooms.take(message) or self._jingle.calls.take(message):
            return
        if message.type == "read":
            self._discover(message, self.addresses.jid(user_asked(message)))
            return
        their = self.addresses.jid(message.recipients[0])
        if not (text := written_in(message)):
            return
        if not (text := cleaned(text)):
            raise BadMessage("The text has no character that XML has.")
        local = self._parties.name_of(message.sender)
        id_ = self._sent.id_of(message)
        receipt = tag("request", {"xmlns": _RECEIPTS}) if self._settings.wants_receipts else ""
        sender = f"{local}@{self._settings.component}"
        head = {"type": "chat", "id": id_, "to": str(their), "from": sender}
        body = tag("body", {}, text_of(text))
        made = stanza(self._settings.component, "message", head, body, receipt)
        self._parties.wrote(self.addresses.address(their), local, message.sender)
        if self._stream is not None:
            self._stream.send(made)
        self._sent.add(id_, message, made, their.bare)

    def subscribe(self, message: Message) -> None:
        """Take a request to the subscription manager of the network's domain."""
        body = message.fields()
        if self._rooms.is_granted(body.get("resources") or body.get(message.type)):
            self._here.granted(message, {"code": 200})
        else:
            self._presence.subscribe(message)

    def _discover(self, message: Message, their: Jid) -> None:
        """Ask the server whether there is a user."""

        def said(answer: Element | None) -> None:
            fault: NodeError
            if answer is None:
                fault = GatewayTimeout(f"{self._settings.domain} has not answered.")
            elif answer.get("type") == "error":
                fault = error_in(answer, their.bare)
                fault = NotFound(fault.description) if fault.code == 501 else fault
            else:
                url, user = self.addresses.address(their), f"user://{their.domain}/{their.bare}"
                self._here.answer(message, entry_of(message, url, user))
                return
            self._here.answer(message, error_body(fault))

        query = tag("query", {"xmlns": _DISCO})
        self.ask(their.bare, self._settings.component, query, said, "get")

    def ask(
        self, to: str, sender: str, inside: str, said: Said | None = None, type_: str = "set"
    ) -> None:
        """Send a request; `said` is called with its answer, None if none comes in time."""
        if said is not None and (self._stream is None or len(self._asked) >= MAX_ASKED):
            said(None)
            return
        id_ = self._next_id("q")
        if said is not None:
            self._asked[id_] = (said, self._clock() + PING_SECONDS, to)
        self.put("iq", {"type": type_, "id": id_, "to": to, "from": sender}, inside)

    # --- from the network -------------------------------------------------------------------------

    def _took(self, element: Element) -> None:
        """Take a stanza."""
        self._heard_at = self._clock()
        their, ours = jid_of(element.get("from")), jid_of(element.get("to"))
        if self._rooms.has(their) and ours.domain == self._settings.component:
            self._rooms.took(element, their, ours)
        elif their.domain != self._settings.domain or ours.domain != self._settings.component:
            self._here.refused(f"a stanza of {shown(str(their))} to {shown(str(ours))}")
        elif element.name == f"{COMPONENT} message":
            self._took_message(element, their, ours)
        elif element.name == f"{COMPONENT} iq":
            self._took_iq(element, their, ours)
        elif element.name == f"{COMPONENT} presence":
            is_ours = ours.bare == self._settings.component
            if is_ours or self._parties.is_within_rate(self.addresses.address(their)):
                self._presence.took(element, their, ours, is_lent(ours.local))

    def _took_iq(self, element: Element, their: Jid, ours: Jid) -> None:
        id_, type_ = element.get("id"), element.get("type")
        if type_ in ("result", "error"):
            asked = self._asked.get(id_)
            if asked is not None and asked[2] == str(their):
                del self._asked[id_]
                asked[0](element)
            elif str(their) == self._settings.domain:
                self._sent.passed(id_)
            return
        head = {"type": "result", "id": id_, "from": str(ours), "to": str(their)}
        if (jingle := element.find(f"{JINGLE} jingle")) is not None:
            begins = jingle.get("action") == "session-initiate"
            if begins and not self._parties.is_within_rate(self.addresses.address(their)):
                self.put("iq", head | {"type": "error"}, error_element(429))
                return
            if self._jingle.took_iq(element, their, ours):
                return
        names = {each.name for each in element.children}
        if type_ != "get" or not names & {f"{_DISCO} query", f"{_ITEMS} query", f"{_PING} ping"}:
            head["type"] = "error"
            self.put("iq", head, error_element(501))
        elif f"{_PING} ping" in names:
            self.put("iq", head)
        elif f"{_ITEMS} query" in names:
            self.put("iq", head, tag("query", {"xmlns": _ITEMS}))
        else:
            kind = ("client", "web") if ours.local else ("gateway", "xmpp")
            of = {"category": kind[0], "type": kind[1], "name": "Messaging Node"}
            spoken = (_DISCO, _RECEIPTS, MESSAGES, *FEATURES)
            features = [tag("feature", {"var": each}) for each in spoken]
            self.put("iq", head, tag("query", {"xmlns": _DISCO}, tag("identity", of), *features))

    def _took_message(self, element: Element, their: Jid, ours: Jid) -> None:
        type_ = element.get("type")
        if type_ == "error":
            fault_of = partial(error_in, element)
            is_known = self._sent.refused(element.get("id"), their.bare, fault_of)
            if not is_known and not self._jingle.took_message(element, their, ours):
                self._here.refused("an error about nothing that was sent")
            return
        if (receipt := element.find(f"{_RECEIPTS} received")) is not None:
            self._sent.received(receipt.get("id"), their.bare)
            return
        if is_about_a_call(element):
            if self._parties.is_within_rate(self.addresses.address(their)):
                self._jingle.took_message(element, their, ours)
            return
        body = element.find(f"{COMPONENT} body")
        if type_ in ("headline", "groupchat") or body is None or not body.text:
            return
        address = self.addresses.address(their)
        if not address:
            self._refuse(element, 403)
        elif not self._parties.is_within_rate(address):
            self._refuse(element, 429)
        else:
            said = partial(self._delivered, element, their)
            self._parties.deliver(address, ours.local, body.text, said)

    def _user_of(self, local: str) -> str:
        """The user of this node who has an address there, "" if none has."""
        user = self.addresses.user_of(local)
        return user if user and addresses.parse(user).home != self._settings.domain else ""

    def _delivered(self, element: Element, their: Jid, code: int, why: str) -> None:
        """Say what has become of a message from there."""
        if code >= 400:
            self._refuse(element, code, why)
        elif element.find(f"{_RECEIPTS} request") is not None and element.get("id"):
            received = tag("received", {"xmlns": _RECEIPTS, "id": element.get("id")})
            sender = jid_of(element.get("to")).bare
            head = {"from": sender, "to": str(their), "id": self._next_id("c")}
            self.put("message", head, received)

    def _refuse(self, element: Element, code: int, text: str = "") -> None:
        """Tell somebody there that his message was not taken."""
        head = {"type": "error", "id": element.get("id")}
        parties = {"from": element.get("to"), "to": element.get("from")}
        self.put("message", {**head, **parties}, error_element(code, text))
