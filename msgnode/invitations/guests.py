"""Guests: sessions without an identity that may speak because a user of this domain invited them.

docs/reference/runtime.md, section 8.5. If an identity is required (ADMISSION=identified), a session
without one may speak to exactly what it was invited to, until that ends:

    create -> the inviter's hyperty, body.value.invitation = <name>    accepted, by this session
    any message -> that hyperty; the resource, and what is below it
    subscribe, unsubscribe -> .../sm, naming only parts of the resource

Anything else from a guest is refused with 403; from others, with 401 as usual.

Rules
- An invitation is accepted when the sender is identified: before his `from`, the policies and the
  route are looked at, which may still refuse the message.
- A session whose identity this node verifies is no guest: it speaks as it is, never accepts, and
  the end of an invitation does not send it away.
- The worker of a session reads once what it has accepted, and again every EVERY seconds, so that
  deleted rows no longer count. A message waits for that (Pending) for at most SECONDS; then it is
  answered 503.
- A session may try MAX_TRIES names. A name that gave it nothing may be tried again after EVERY
  seconds, because the inviter may have reopened the invitation.
- When a right ends, the guest's subscriptions by it end too, and its runtime is told of a gap.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from msgnode.bus.ports import Listener
from msgnode.core.errors import BadMessage, Forbidden, TooMany, Unavailable
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.identity.pending import waiting_for
from msgnode.storage.database_threads import DatabaseThreads
from msgnode.subscriptions import rules

from . import sent, wire
from .sent import Right

log = logging.getLogger(__name__)

EVERY = 5.0
SECONDS = 3.0
MAX_TRIES = 10
_OVERLAP = 600.0
"""Seconds for which ended rights are checked again, as their session may have moved meanwhile."""
_TOLD = 2.0
"""Seconds for which the database is not asked again after it did not answer."""
_Key = tuple[str, str]


class _Guest:
    """What a session may speak to, and which names it has tried."""

    def __init__(self) -> None:
        self.rights: list[Right] = []
        self.tried: dict[str, float] = {}  # when each may be tried again

    def may_try(self, name: str, now: float) -> bool:
        """Whether the database is to be asked about a name."""
        if name not in self.tried:
            return True
        return now >= self.tried[name] and not any(each.ends > now for each in self.rights)


class Subscriptions(Protocol):
    """The subscription manager."""

    addresses: tuple[str, ...]

    def of(self, session: Listener, /) -> Iterable[str]:
        """The subscriptions of a session."""
        ...

    def end(self, address: str, session: Listener, /) -> None:
        """End one of them."""
        ...


class Guests:
    """One instance per worker; the authenticator's Guests (identity.ports.Guests).

    Args:
        threads: runs database calls.
        sessions: the sessions of this worker, by id.
        subscriptions: the subscription manager.
        missed: tells a session of a gap.
        max_addresses: most addresses in a request to it.
        accepted: called with a session that has accepted an invitation.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        threads: DatabaseThreads,
        sessions: dict[str, Any],
        subscriptions: Subscriptions,
        missed: Callable[[str], None],
        max_addresses: int,
        accepted: Callable[[Listener], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._threads = threads
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._missed = missed
        self._max_addresses = max_addresses
        self._accepted = accepted
        self._clock = clock
        self._guests: dict[str, _Guest] = {}  # by session id; also of who asked and is none
        self._asking: dict[_Key, asyncio.Future[None]] = {}
        self._unknown: dict[_Key, str] = {}
        self.steps: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many sessions are guests; may be asked from another thread."""
        now = self._clock()
        return sum(_last(each) > now for each in tuple(self._guests.values()))

    def may_say(self, message: Message, session: Listener) -> bool:
        """Whether a session without an identity may send this, because it was invited.

        Raises:
            Pending: that is being looked up.
            Forbidden: it is a guest, or has tried to be one, and was not invited to this.
            Unavailable: the database does not answer.
        """
        name = _presented(message)
        guest, now = self._guests.get(session.id), self._clock()
        if guest is None or (name and guest.may_try(name, now)):
            if guest is not None and name not in guest.tried and len(guest.tried) >= MAX_TRIES:
                self.steps["refused"] += 1
                raise Forbidden("This session has tried too many invitations.")
            raise self._asked(session, name, message.recipients[0])
        rights = [each for each in guest.rights if each.ends > now]
        if rights and all(self._is_covered(to, message, rights) for to in message.recipients):
            return True
        if rights or guest.rights or guest.tried:
            self.steps["refused"] += 1
        if rights:
            named = ", ".join(each.resource or each.hyperty for each in rights)
            raise Forbidden(f"This session may speak to what it was invited to alone: {named}.")
        if guest.rights or guest.tried:
            raise Forbidden(
                "The invitation does not exist, has ended, or belongs to another runtime."
            )
        return False

    def forget(self, session_id: str) -> None:
        """The session has ended, or is with another worker."""
        self._guests.pop(session_id, None)

    def closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd."""
        self.forget(session.id)

    async def watch(self) -> None:
        """End expired rights. Runs until cancelled; without the database it tries again."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.look()
            except Exception as error:
                log.warning("It could not be read which invitations have ended: %s", error)

    async def look(self) -> None:
        """Reload the rights of the guests here, and end subscriptions no longer allowed."""
        before = {id_: guest.rights for id_, guest in self._guests.items() if guest.rights}
        over: list[Right] = [each for rights in before.values() for each in rights]

        def read() -> list[Right]:
            over.extend(sent.ended(_OVERLAP))
            return list(sent.of(before))

        now: dict[str, list[Right]] = {}
        for right in await self._threads.run(read):
            now.setdefault(right.session, []).append(right)
        for id_, rights in before.items():
            guest = self._guests.get(id_)
            if guest is not None and guest.rights is rights:  # or it accepted another meanwhile
                guest.rights = now.get(id_, [])[: sent.MAX_RIGHTS] or _ended(rights)
                self.steps["ended"] += _has_ended(rights) < _has_ended(guest.rights)
        for right in over:
            if right not in now.get(right.session, ()):
                self._end_below(right)

    # --- steps ------------------------------------------------------------------------------------

    def _is_covered(self, to: str, message: Message, rights: list[Right]) -> bool:
        if to != self._subscriptions.addresses[0]:
            return any(each.covers(to) for each in rights)
        if message.type not in ("subscribe", "unsubscribe"):
            return False
        asked = rules.wanted(message.fields(), self._max_addresses)
        named = (*asked.exact, *asked.optional)
        return all(any(each.covers(address) for each in rights) for address in named)

    def _asked(self, session: Listener, name: str, to: str) -> Pending:
        """Look up, and accept if a name is given. Raises Unavailable."""
        key = (session.id, name)
        if why := self._unknown.get(key):
            raise Unavailable(why)
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.ensure_future(self._find(key, session, to))
            self._asking[key] = asking
        return waiting_for("Whether the session was invited", asking)

    async def _find(self, key: _Key, session: Listener, to: str) -> None:
        id_, name = key

        def find() -> tuple[bool, list[Right]]:
            accepted = bool(name) and sent.accept(name, to, session.runtime_url, id_)
            return accepted, list(sent.of((id_,)))

        try:
            accepted, rights = await asyncio.wait_for(self._threads.run(find), SECONDS)
        except Exception as error:
            if not isinstance(error, TooMany):
                log.warning("It could not be told whether a session was invited: %r", error)
            self._tell(key, "Whether this session was invited cannot be told just now.")
        else:
            if id_ not in self._sessions:
                self._tell(key, "The session has ended.")
                return
            guest = self._guests.setdefault(id_, _Guest())
            guest.rights = rights[: sent.MAX_RIGHTS] or _ended(guest.rights)
            if name:
                guest.tried[name] = self._clock() + EVERY
            if accepted:
                self.steps["admitted"] += 1
                self._accepted(session)
        finally:
            del self._asking[key]

    def _tell(self, key: _Key, why: str) -> None:
        """Refuse what asks this again soon."""
        self._unknown[key] = why
        asyncio.get_running_loop().call_later(_TOLD, self._unknown.pop, key, None)

    def _end_below(self, right: Right) -> None:
        session = self._sessions.get(right.session)
        if session is None or session.speaker.identity is not None:
            return
        guest = self._guests.get(right.session)
        now, rights = self._clock(), guest.rights if guest is not None else []
        others = [each for each in rights if each.ends > now]
        ended = [
            address
            for address in self._subscriptions.of(session)
            if right.covers(address) and not any(each.covers(address) for each in others)
        ]
        for address in ended:
            self._subscriptions.end(address, session)
        if ended:
            self._missed(session.id)


def _last(guest: _Guest) -> float:
    """When the last of its rights ends."""
    return max((each.ends for each in guest.rights), default=0.0)


def _has_ended(rights: list[Right]) -> bool:
    return not any(each.ends for each in rights)


def _ended(rights: list[Right]) -> list[Right]:
    """Ended rights, so that their session is told why it is refused."""
    return [each._replace(ends=0.0) for each in rights[:1]]


def _presented(message: Message) -> str:
    """The name of the invitation that a message accepts, "" if it accepts none."""
    if message.is_response or len(message.recipients) != 1:
        return ""
    if b'"invitation"' not in bytes(message.body):
        return ""
    with suppress(BadMessage):
        value = message.fields().get("value")
        name = value.get("invitation") if isinstance(value, dict) else None
        if isinstance(name, str) and len(name) <= wire.MAX_NAME:
            return name
    return ""
