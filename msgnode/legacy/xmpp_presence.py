"""Who is there: users of this node for those of an XMPP network, and the other way round.

Rules
- Everybody there may see whether a user of this node is: that is what a contact is for. Policies
  decide over the look-up in the registry, as over any.
- Those who are watched are looked up in turn, each about once a second, some at a time.
- Who has a user as a contact is stored, so that the worker that takes over tells them.
- Users there are subscribed by the gateway itself, once for all who observe them here; so nobody
  there learns who does.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial

from msgnode.core.errors import Forbidden, NodeError, Unavailable
from msgnode.core.messages import Message, error_body

from .lookups import Found, UserLookups
from .network import CONTACT, Here, NotSupported
from .xmpp_addresses import Jid, XmppAddresses
from .xmpp_errors import error_in
from .xmpp_stream import Element, Gateway, tag, text_of

MAX_WATCHED, MAX_CONTACTS = 1_000, 10_000
"""Users there that are watched from here; and contacts of users here, the oldest go first."""
AT_ONCE, WATCH_PAUSE, WATCH_SECONDS = 4, 0.25, 0.7
STATUS = "/status"


class XmppPresence:
    """One instance per network.

    Args:
        addresses: maps addresses.
        here: this node.
        lookups: finds users of this node.
        gateway: the network.
    """

    def __init__(
        self,
        addresses: XmppAddresses,
        here: Here,
        lookups: UserLookups,
        gateway: Gateway,
    ) -> None:
        self._addresses = addresses
        self._here = here
        self._lookups = lookups
        self._gateway = gateway
        self._contacts: OrderedDict[tuple[str, str], None] = OrderedDict()  # user, contact
        self._watchers: OrderedDict[str, dict[str, None]] = OrderedDict()  # the same, by user
        self._shown: dict[str, bool] = {}  # of a user: whether she was said to be there
        self._wanted: dict[str, Message] = {}  # who is subscribed there, by whom

    # --- users there ------------------------------------------------------------------------------

    def subscribe(self, message: Message) -> None:
        """Take a request for the presence of users there."""
        body = message.fields()
        for address in body.get("resources") or body.get(message.type) or ():
            try:
                self._subscribe(message, address)
            except NodeError as error:
                self._here.granted(message, error_body(error))
                return
        if message.type == "unsubscribe":
            self._here.granted(message, {"code": 200})

    def _subscribe(self, message: Message, address: str) -> None:
        if not address.endswith(STATUS):
            raise NotSupported("Of a user there, only /status can be subscribed.")
        their = self._addresses.jid(address.removesuffix(STATUS)).bare
        if message.type == "unsubscribe":
            self._wanted.pop(their, None)
        elif their not in self._wanted and len(self._wanted) >= MAX_WATCHED:
            raise Unavailable("Too many users there are subscribed.")
        else:
            self._wanted[their] = message
        self._send(self._addresses.component, their, message.type)

    def renew(self) -> None:
        """Subscribe users there again: the server has lost the gateway for a while."""
        for their in self._wanted:
            self._send(self._addresses.component, their, "subscribe")

    def _took_answer(self, element: Element, their: Jid, type_: str) -> None:
        """Take what a user there says to the gateway, which has subscribed him."""
        wanted = self._wanted.get(their.bare)
        if wanted is None:
            return
        if type_ == "subscribed":
            self._here.granted(wanted, {"code": 200})
        elif type_ in ("unsubscribed", "error"):
            del self._wanted[their.bare]
            fault: NodeError = Forbidden(f"{their.bare} does not let his presence be seen.")
            if type_ == "error":
                fault = error_in(element, their.bare)
            self._here.granted(wanted, error_body(fault))
        elif type_ in ("", "unavailable"):
            address = self._addresses.address(their)
            value = "disconnected" if type_ else "live"
            self._here.tell(address, f"{address}{STATUS}", {"value": value})

    # --- users here -------------------------------------------------------------------------------

    def took(self, element: Element, their: Jid, ours: Jid, is_lent: bool) -> None:
        """Take a presence.

        Args:
            element: the stanza.
            their: who sends it.
            ours: who it is for.
            is_lent: whether that is an address that is lent, which nobody can have as a contact.
        """
        type_ = element.get("type")
        if ours.bare == self._addresses.component:
            self._took_answer(element, their, type_)
            return
        user = self._addresses.user_of(ours.local)
        if type_ == "unsubscribe":
            self._forget(user, their.bare)
            self._send(ours.bare, their.bare, "unsubscribed")
        elif type_ not in ("subscribe", "probe"):
            return
        elif is_lent or not user:
            gone = "unsubscribed" if type_ == "subscribe" else "unavailable"
            self._send(ours.bare, their.bare, gone)
        else:
            if type_ == "subscribe":
                self._send(ours.bare, their.bare, "subscribed")
            self._begin_watch(user, ours, their)

    def _begin_watch(self, user: str, ours: Jid, their: Jid) -> None:
        """Say whether a user of ours is there, now and when that changes."""
        if (user, their.bare) not in self._contacts:
            self._here.keep(CONTACT, user, their.bare)
        self.restore(user, their.bare)
        if len(self._contacts) > MAX_CONTACTS:
            self._forget(*next(iter(self._contacts)))
        self._lookups.find(user, partial(self._show, user, ours.bare, [their.bare]), fresh=True)

    def restore(self, user: str, contact: str) -> None:
        """Take somebody there as a contact of a user here."""
        self._contacts[user, contact] = None
        self._contacts.move_to_end((user, contact))
        self._watchers.setdefault(user, {})[contact] = None

    def _forget(self, user: str, contact: str) -> None:
        if self._contacts.pop((user, contact), self) is not None:
            return
        self._here.keep(CONTACT, user, contact, is_kept=False)
        del self._watchers[user][contact]
        if not self._watchers[user]:
            del self._watchers[user]
            self._shown.pop(user, None)

    def _show(self, user: str, ours: str, to: list[str], found: Found) -> None:
        """Say whether a user is there; she has one resource, whatever she is connected with."""
        is_live = self._shown[user] = bool(found.hyperty)
        for each in to:
            if is_live:
                self._send(f"{ours}/node", each, "", "live")
            else:
                self._send(f"{ours}/node", each, "unavailable")

    @property
    def due(self) -> float:
        """When `watch` has something to do next, in seconds from now."""
        return WATCH_PAUSE if self._watchers else math.inf

    def watch(self) -> None:
        """Look whether some of those who are watched have come or gone."""
        for _ in range(min(AT_ONCE, len(self._watchers))):
            user = next(iter(self._watchers))
            self._watchers.move_to_end(user)
            if self._lookups.age(user) >= WATCH_SECONDS and not self._lookups.is_looking(user):
                self._lookups.find(user, partial(self._show_change, user), fresh=True)

    def _show_change(self, user: str, found: Found) -> None:
        watchers = self._watchers.get(user)
        if watchers and self._shown.get(user) != bool(found.hyperty):
            ours = f"{self._addresses.local_of(user)}@{self._addresses.component}"
            self._show(user, ours, list(watchers), found)

    def _send(self, sender: str, to: str, type_: str = "", status: str = "") -> None:
        inside = tag("status", {}, text_of(status)) if status else ""
        self._gateway.put("presence", {"type": type_, "from": sender, "to": to}, inside)
