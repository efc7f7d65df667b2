"""Who of this node takes what somebody of a network sends to an address of ours.

Rules
- A message goes to the hyperty that has written to this person last, if it is there; else to the
  one that lookups.py finds for the user. An address that is lent is its borrower's.
- Who of this node writes there has a name by the verified identity of the session, or is lent one.
- A user there may send so many messages a minute; the bound is on what is known, not on users.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import Any

from msgnode.core.bounded_cache import BoundedCache
from msgnode.core.errors import Forbidden, NodeError, Unavailable
from msgnode.core.messages import Message

from .address_pool import AddressPool, is_lent
from .lookups import Found, UserLookups, remember
from .network import Answer, Here, LegacySettings, NotSupported, shown

REMEMBERED_BYTES = 1024 * 1024
"""Of names here and there, which each message needs."""
MAX_HELD = 1_000
"""Messages from there that wait for a look-up."""
BURST = 10

Said = Callable[[int, str], None]
"""Is called with the final code of a message, and a reason for people."""


class Parties:
    """One instance per network.

    Args:
        here: this node.
        pool: the addresses that are lent.
        user_of: finds the user of this node that has a name there, "" if it is nobody's.
        name_of: the name that a user of this node has there, "" if users have none.
        settings: of the network.
        clock: a monotonic clock, in seconds.
        lends_to_all: whether who was not written to may write to an address that is lent.
    """

    def __init__(
        self,
        here: Here,
        pool: AddressPool,
        user_of: Callable[[str], str],
        name_of: Callable[[str], str],
        settings: LegacySettings,
        clock: Callable[[], float],
        lends_to_all: bool = False,
    ) -> None:
        self._here = here
        self._pool = pool
        self._user_of = BoundedCache(user_of, REMEMBERED_BYTES, getsizeof).__getitem__
        self._name_of = BoundedCache(name_of, REMEMBERED_BYTES, getsizeof).__getitem__
        self._settings = settings
        self._lends_to_all = lends_to_all
        self._clock = clock
        self.lookups = UserLookups(here, clock)
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._talks: OrderedDict[tuple[str, str], str] = OrderedDict()  # theirs, ours -> hyperty
        self._borrowers: OrderedDict[str, str] = OrderedDict()  # name -> hyperty
        self._held = 0

    def name_of(self, sender: str) -> str:
        """The name that a sender of this node has there. Raises NodeError."""
        identity = self._here.identity_of(sender)
        name = self._name_of(identity.user_url) if identity and identity.user_url else ""
        if name:
            return name
        if not self._settings.pool:
            raise Forbidden(f"{self._settings.domain} shows who writes: log in first.")
        runtime = self._here.runtime_of(sender)
        if not runtime:
            raise Unavailable(f"{sender[:200]} has no session any more.")
        return self._pool.lend(runtime)

    def wrote(self, their: str, name: str, hyperty: str) -> None:
        """Note that a hyperty has written to, or called, somebody there, as this name."""
        remember(self._talks, (their, name), hyperty)
        if is_lent(name):
            remember(self._borrowers, name, hyperty)

    def is_within_rate(self, their: str) -> bool:
        """Whether somebody there has not sent too much within a minute; it is counted."""
        per_minute, now = self._settings.per_minute, self._clock()
        most = float(max(BURST, per_minute))
        left, at = self._rates.get(their, (most, now))
        left = min(most, left + (now - at) * per_minute / 60.0)
        remember(self._rates, their, (left - 1 if left >= 1 else left, now))
        if left < 1:
            self._here.refused(f"{their[:200]} sends more than {per_minute} a minute")
        return left >= 1

    def may_be(self, name: str) -> bool:
        """Whether a name may be of a user here, or is of the pool."""
        return is_lent(name) or bool(self._user_of(name))

    def find(
        self,
        their: str,
        name: str,
        then: Callable[[str], None],
        fresh: bool = False,
        is_call: bool = False,
    ) -> None:
        """Find the hyperty that takes what somebody there sends to a name of ours, "" if none does.

        Args:
            their: the address here of who sends.
            name: of ours.
            then: called with the hyperty, perhaps at once.
            fresh: whether what is remembered does not do.
            is_call: whether it is a call, which need not be for who takes messages.
        """
        if is_lent(name):
            then(self._borrower(their, name))
            return
        user = self._user_of(name)
        known = "" if is_call else self._talks.get((their, name), "")
        if not user or self._held >= MAX_HELD:
            then(self._none(their, name))
        elif known and not fresh and not self.lookups.is_looking(user):
            then(known)
        else:
            if not is_call:
                self._talks.pop((their, name), None)
            self._held += 1

            def found(found: Found) -> None:
                self._held -= 1
                then((found.called if is_call else found.hyperty) or self._none(their, name))

            self.lookups.find(user, found, fresh or is_call)

    def _none(self, their: str, name: str) -> str:
        """Count that nobody here takes what somebody there sends; nothing is passed on there."""
        self._here.refused(f"nobody here is {shown(name)}, to whom {their[:200]} sends")
        return ""

    def _borrower(self, their: str, name: str) -> str:
        """The hyperty that has an address which is lent."""
        other = self._borrowers.get(name, "") if self._lends_to_all else ""
        hyperty = self._talks.get((their, name), other)
        runtime = self._pool.runtime_of(name)
        if runtime and hyperty and runtime == self._here.runtime_of(hyperty):
            return hyperty
        self._here.refused(f"{name} is lent to nobody who takes anything from {their[:200]}")
        return ""

    def nobody(self, name: str) -> NodeError:
        """Why nobody takes what is sent to a name of ours: a policy, or there is none."""
        user = "" if is_lent(name) else self._user_of(name)
        if user and self.lookups.is_refused(user):
            return Forbidden("This node takes nothing from there.")
        return Answer(480, "Nobody is there.")

    def deliver(self, their: str, name: str, text: str, said: Said) -> None:
        """Give a message to whom it is for; `said` is called with why nobody takes it, too."""
        self.find(their, name, partial(self._deliver, their, name, text, said, False))

    def _deliver(
        self, their: str, name: str, text: str, said: Said, is_fresh: bool, hyperty: str
    ) -> None:
        if not hyperty:
            nobody = self.nobody(name)
            said(nobody.code, nobody.description)
            return

        def answered(code: int, body: dict[str, Any]) -> None:
            if code < 200:
                return
            if code in (404, 503) and not is_fresh and not is_lent(name):
                again = partial(self._deliver, their, name, text, said, True)
                self.find(their, name, again, fresh=True)
                return
            said(code, str(body.get("description") or body.get("desc") or ""))

        value = {"type": "chat", "content": text}
        self._here.ask("create", their, hyperty, {"value": value}, answered)


def written_in(message: Message) -> str:
    """The text of a message of a runtime; "" for an event of an object, which has no form there.

    Raises:
        NotSupported: it is neither.
    """
    text = text_in(message.fields())
    if not text and message.type != "update":
        raise NotSupported("Only text passes there: it is in `value` or `value.content`.")
    return text


def text_in(body: dict[str, Any]) -> str:
    """The text of a chat message, "" if it has none.

    >>> text_in({"value": {"content": "hello"}}), text_in({"value": "hello"}), text_in({})
    ('hello', 'hello', '')
    """
    value = body.get("value")
    if isinstance(value, dict):
        value = value.get("content", value.get("text"))
    return value if isinstance(value, str) else ""
