"""runtime.invitations: conversations that the caller hosts.

The callee is invited at the endpoint that his card names, and comes to the caller's domain.

    await runtime.invitations.receive(invited)                        # the callee
    sent = await runtime.invitations.send("bob@example.org", hyperty)  # the caller
    if sent.is_accepted_by(message): ...                               # once, before it expires
    await runtime.invitations.withdraw(sent)                           # or not any more

Rules
- Both are logged in at home: the home node keeps the endpoint, signs what is sent, and posts it.
- The application hears of an invitation only if the caller's domain has signed it: who invites whom
  to what, and which code leads there. Until it expires no other code is loaded for that domain.
- Each is heard once, and that it was withdrawn once after it. AT_ONCE are checked at a time; what
  comes meanwhile is dropped and counted, as forged ones are.
- A domain that the settings do not name is asked only if it looks like a public one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgnode.core import addresses

from .arguments import check_address, check_function, wrong
from .cards import Card, CardError, Cards
from .listeners import Listening
from .message_bus import MessageBus
from .messages import Message, body_of

AT_ONCE = 4
MAX_SEEN = 1_000
MAX_SECONDS = 600.0
"""That an invitation may be good for."""
_PUBLIC = re.compile(
    r"([a-z0-9_-]+\.)+(?!(local|localhost|internal|localdomain|test)$)[a-z][a-z0-9-]*"
)


class InvitationError(Exception):
    """The home node refuses.

    Attributes:
        code: 401 for who is not logged in, 404 where the node takes no invitations, 409 an
            accepted one cannot be withdrawn, 410 an endpoint that is none any more, 429 too many,
            504 an endpoint that does not answer.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where callers leave invitations; `expires` is in seconds since the epoch."""

    url: str
    user_url: str
    expires: float


@dataclass(frozen=True, slots=True)
class Invitation:
    """Somebody of another domain invites.

    Attributes:
        user: the caller's user URL; `domain` is his.
        hyperty: where he is to be answered: a `create` with this `invitation` in its value.
        invitation: the name of it, known to caller and callee alone.
        expires: seconds since the epoch.
        resource: what he invites to, "" if he does not say.
    """

    user: str
    domain: str
    hyperty: str
    invitation: str
    expires: float
    resource: str = ""


@dataclass(slots=True)
class Sent:
    """An invitation that was sent; `location` is where the callee's node has it."""

    invitation: str
    expires: float
    location: str = ""
    is_accepted: bool = False
    _is_open: bool = field(default=True, repr=False)

    def is_accepted_by(self, message: Message) -> bool:
        """Whether a message accepts it; true once, before it expires."""
        value = body_of(message).get("value")
        is_it = (
            self._is_open
            and message["type"] != "response"
            and isinstance(value, dict)
            and value.get("invitation") == self.invitation
            and time.time() < self.expires
        )
        if is_it:
            self._is_open, self.is_accepted = False, True
        return is_it

    def close(self) -> None:
        """Nothing accepts it any more."""
        self._is_open = False


_Key = TypeVar("_Key")
Invited = Callable[[Invitation], object]
Expect = Callable[[str, tuple[str, ...], float], None]


class Invitations:
    """Of one runtime.

    Args:
        bus: the runtime's.
        domain: the home domain.
        cards: checks what domains assert.
        card_of: finds the card of a user.
        is_listed: whether the settings name the catalogue of a domain.
        expect: told which code may be loaded for a domain, and until when.
    """

    def __init__(
        self,
        bus: MessageBus,
        domain: str,
        cards: Cards,
        card_of: Callable[[str], Awaitable[Card]],
        is_listed: Callable[[str], bool],
        expect: Expect,
    ) -> None:
        self._bus = bus
        self._url = f"{bus.runtime_url}/invitations"
        self._domain = domain
        self._cards = cards
        self._card_of = card_of
        self._is_listed = is_listed
        self._expect = expect
        self._listening: Listening | None = None
        self._invited: Invited | None = None
        self._withdrawn: Invited | None = None
        self._user_url = ""
        self._checking: set[asyncio.Task[None]] = set()
        self._seen: dict[tuple[str, str], float] = {}  # caller and name -> when it expires
        self._open: dict[str, Invitation] = {}  # by name; the application has heard of these
        self._over: dict[str, float] = {}  # name -> until when it is not to be heard: withdrawn

    async def receive(
        self, invited: Invited, hyperty: str = "", withdrawn: Invited | None = None
    ) -> Endpoint:
        """Be invited from now on; asking again renews it.

        Args:
            invited: called with each Invitation.
            hyperty: what callers may also call directly, an address that this session holds.
            withdrawn: called with one that its caller withdraws before it expires.

        Raises:
            InvitationError: the home node refuses.
        """
        check_function("invited", invited)
        value = await self._ask("subscribePush", {"hyperty": hyperty} if hyperty else {})
        self._withdrawn = withdrawn
        self._invited, self._user_url = invited, str(value["userURL"])
        if self._listening is None:
            self._listening = self._bus.add_listener(self._url, self._hear)
        return Endpoint(str(value["endpoint"]), self._user_url, float(value["expires"]))

    async def stop(self) -> None:
        """Be invited no longer; what waits at the endpoint goes with it. Raises InvitationError."""
        self.close()
        await self._ask("unsubscribePush", {})

    def close(self) -> None:
        """Hear of nothing more; the endpoint stays."""
        self._invited = self._withdrawn = None
        if self._listening is not None:
            self._listening.remove()
            self._listening = None
        for task in self._checking:
            task.cancel()

    async def send(
        self,
        user: str | Card,
        hyperty: str,
        seconds: float = 60,
        resource: str = "",
        stay: float = 0,
    ) -> Sent:
        """Invite somebody of another domain.

        Args:
            user: bob@example.org, a user URL, or a card.
            hyperty: the address here at which he is to answer, which this session holds.
            seconds: how long it can be accepted, 1 to 600.
            resource: what he is invited to: an object that this session holds.
            stay: for how long he may stay once he has accepted, where the node knows him by nothing
                else; at least until it expires.

        Raises:
            CardError: he has no card (404), or one that names no endpoint (410).
            InvitationError: the home node refuses, or his endpoint does.
        """
        if not isinstance(user, (str, Card)):
            raise wrong("user", "bob@example.org, a user URL, or a card", user)
        check_address("hyperty", hyperty)
        card = await self._card_of(user) if isinstance(user, str) else user
        if not card.endpoint:
            raise CardError(
                410, f"{card.user_url} cannot be invited: no runtime of his asks for it."
            )
        params: dict[str, Any] = {"endpoint": card.endpoint, "user": card.user_url}
        params |= {"hyperty": hyperty, "seconds": seconds}
        params |= {"resource": resource} if resource else {}
        params |= {"stay": stay} if stay else {}
        value = await self._ask("sendInvitation", params)
        location = str(value.get("location", ""))
        return Sent(str(value["invitation"]), float(value["expires"]), location)

    async def withdraw(self, sent: Sent) -> bool:
        """Nobody can accept an invitation any more; again and again if need be.

        Returns:
            Whether the callee's node has taken note.

        Raises:
            InvitationError: it was accepted (409), or the home node refuses.
        """
        if not sent.is_accepted:
            params = {"invitation": sent.invitation}
            params |= {"location": sent.location} if sent.location else {}
            value = await self._ask("withdrawInvitation", params)
        if sent.is_accepted:  # perhaps meanwhile
            raise InvitationError(409, "The invitation was accepted before it was withdrawn.")
        sent.close()
        return value.get("told") is True

    async def end(self, sent: Sent) -> None:
        """Nobody can accept it any more, and who has is sent away. Raises InvitationError."""
        await self._ask("endInvitation", {"invitation": sent.invitation})
        sent.close()

    async def reopen(self, sent: Sent) -> None:
        """Who has accepted it is sent away, and somebody else may. Raises InvitationError."""
        await self._ask("reopenInvitation", {"invitation": sent.invitation})
        sent._is_open, sent.is_accepted = True, False

    async def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        message = {"type": "execute", "from": self._url, "to": f"domain://idm.{self._domain}"}
        answer = await self._bus.request({**message, "body": {"method": method, "params": params}})
        body = body_of(answer)
        if body.get("code") != 200:
            raise InvitationError(int(body.get("code", 500)), str(body.get("description", "")))
        value = body.get("value")
        return value if isinstance(value, dict) else {}

    def _hear(self, message: Message) -> None:
        is_node = message["from"] == f"domain://idm.{self._domain}"
        if is_node and message["type"] == "delete":
            self._end(body_of(message).get("value"), message)
        if message["type"] != "update" or not is_node:
            return
        if len(self._checking) >= AT_ONCE:
            text = "More invitations came than are checked at a time."
            self._bus.report("invitations.flood", text, message)
            return
        task = asyncio.create_task(self._take(message))
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)

    async def _take(self, message: Message) -> None:
        try:
            invitation = await self._checked(body_of(message))
        except Exception as error:  # whatever it is that strangers have written
            self._bus.report("invitations.refused", str(error), message, error)
            return
        if invitation is None or self._invited is None:
            return
        self._call(self._invited, invitation, message)

    def _call(self, listener: Invited, invitation: Invitation, message: Message) -> None:
        try:
            listener(invitation)
        except Exception as error:
            self._bus.report("listener.failed", f"A listener failed: {error}", message, error)

    def _end(self, value: object, message: Message) -> None:
        """A caller has withdrawn one, which may be on its way or being checked still."""
        name = value.get("invitation") if isinstance(value, dict) else None
        if not isinstance(name, str) or name in self._over:
            return
        now = time.time()
        self._over = _kept(self._over, now)
        self._over[name] = now + MAX_SECONDS
        invitation = self._open.pop(name, None)
        if invitation is not None and invitation.expires > now and self._withdrawn is not None:
            self._call(self._withdrawn, invitation, message)

    async def _checked(self, body: Mapping[str, Any]) -> Invitation | None:
        """The invitation, if it is one; None if it has been heard. Raises CardError."""
        value, identity = body.get("value"), body.get("identity")
        if not isinstance(value, dict) or not isinstance(identity, dict):
            raise CardError(502, "The invitation has not its form.")
        hyperty, expires = str(body.get("from")), value.get("expires")
        name, resource = str(value.get("invitation")), value.get("resource")
        now = time.time()
        if not isinstance(expires, int | float) or expires <= now:
            raise CardError(410, "The invitation has expired.")
        if body.get("to") != self._user_url:
            raise CardError(502, "The invitation is for somebody else.")
        domain = addresses.parse(hyperty).home
        if not self._is_listed(domain) and not _PUBLIC.fullmatch(domain):
            raise CardError(502, f"{domain[:200]} is no public domain.")
        card = await self._cards.checked(str(identity.get("assertion")), domain)
        signed = [card.claims.get(each) for each in ("invitation", "from", "to", "resource")]
        if (
            signed != [name, hyperty, self._user_url, resource]
            or card.expires != expires
            or card.protostub != body.get("protostub")
        ):
            raise CardError(502, "What the caller's domain has signed is another invitation.")
        if (hyperty, name) in self._seen or name in self._over:
            return None
        self._seen = _kept(self._seen, now)
        self._seen[hyperty, name] = float(expires)
        if card.digests and domain != self._domain:
            self._expect(domain, card.digests, float(expires))
        until = float(expires)
        it = Invitation(card.user_url, domain, hyperty, name, until, str(resource or ""))
        self._open = {each.invitation: each for each in self._open.values() if each.expires > now}
        if len(self._open) >= MAX_SEEN:
            del self._open[next(iter(self._open))]
        self._open[name] = it
        return it


def _kept(ends: dict[_Key, float], now: float) -> dict[_Key, float]:
    """What is not over, with room for one more."""
    kept = {key: until for key, until in ends.items() if until > now}
    while len(kept) >= MAX_SEEN:
        del kept[next(iter(kept))]
    return kept
