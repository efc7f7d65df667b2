"""A SIP network: the gateway as user agents behind an outbound proxy that its operator runs.

Rules
- One flow to the proxy carries everything (sip_flow.py). The addresses that are lent are accounts
  at the registrar; so is `gateway`, if the users of this node have a domain there: the proxy passes
  what is for that domain to the flow of this account, with the user as it was.
- A message is answered by its final response. One is under way to an address at a time (RFC 3428,
  section 8), which keeps the order; the others wait, each at most ten seconds for its turn.
- If the response is 500 or 503 with Retry-After, as of a proxy that has more than it can do, the
  message is sent again after that time, within its ten seconds. Those behind it wait.
- A flow on which nothing has come for 20 seconds is tried with OPTIONS, which each proxy answers.
- From is what somebody claims: it is never taken for an identity, and an address of ours in it is
  refused.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from typing import Any

from msgnode.core.errors import BadGateway, GatewayTimeout, NodeError, Unavailable
from msgnode.core.messages import Message, error_body

from .address_pool import AddressPool, is_lent
from .lookups import entry_of, user_asked
from .network import (
    CALL,
    LENT,
    MEDIA,
    POSING_ALARM,
    Answer,
    Here,
    LegacySettings,
    Lost,
    NotAdmitted,
    NotSupported,
    TooLarge,
    shown,
)
from .parties import Parties, written_in
from .sip_addresses import GATEWAY, SipAddresses
from .sip_calls import ALLOW, CODES, SipCalls
from .sip_flow import SipFlow
from .sip_media import MEDIA_ALARM, LeftMedia, Media, Rtpengine
from .sip_messages import MAX_BODY, SDP, TEXT, Incoming, address_of, number_of, uri, uri_in
from .sip_transactions import LOST, Outgoing, Served, Transactions

QUIET_SECONDS, PING_SECONDS, LOOK_SECONDS = 20.0, 10.0, 0.25
REGISTER_SECONDS, REGISTER_AGAIN, REGISTERING = 600, 30.0, 50
"""How long an account is registered; when it is tried again; so many at a time."""
MAX_MIN_EXPIRES = 86_400
WINDOW, WINDOW_BYTES, PER_ADDRESS = 1_000, 4 * 1024 * 1024, 250
WAIT_SECONDS, ATTEMPTS = 10.0, 3
MAX_FINDING = 200
"""Users there that are looked up at a time."""
_ANSWERS = {400: 400, 403: 403, 404: 404, 406: 488, 413: 413, 486: 486, 501: 415, 603: 603}
"""What is said there; others are 480, since a 5xx would have a proxy leave this node alone."""


@dataclass(eq=False, slots=True)
class _Account:
    """One registration: `at` is when it is due, `place` where it was registered last."""

    name: str
    call_id: str
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    seconds: int = REGISTER_SECONDS
    at: float = 0.0
    place: str = ""
    is_registered: bool = False


@dataclass(eq=False, slots=True)
class _Text:
    """A message to a URI that waits for its turn, at most until then, or for its answer."""

    message: Message
    request: Outgoing
    until: float
    attempts: int = 0
    is_sent: bool = False
    not_before: float = 0.0

    def due(self, now: float) -> float:
        """When it is to be looked at next."""
        if self.is_sent:
            return math.inf
        return self.not_before if self.not_before > now else self.until


class SipNetwork:
    """One instance per network that this worker serves. Implements LegacyNetwork.

    Args:
        settings: of the network.
        here: this node.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, settings: LegacySettings, here: Here, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.addresses = SipAddresses(here.own, settings.domain, settings.component)
        self.pool = AddressPool(settings.pool, here, clock)
        self._settings = settings
        self._here = here
        self._clock = clock
        self._parties = Parties(
            here,
            self.pool,
            self.addresses.user_of,
            self.addresses.name_of,
            settings,
            clock,
            lends_to_all=True,
        )
        self._transactions = Transactions(
            lambda account: settings.secret.replace("{user}", account),
            self._took,
            lambda ack: self._dialogs.took_ack(ack),
            lambda served: self._dialogs.took_cancel(served),
            here.refused,
            clock,
        )
        self._left = LeftMedia(here, clock)
        self._media = self._media_at(settings.media) if settings.media else Media()
        self._dialogs: SipCalls = SipCalls(
            here, self, self._transactions, self._parties, self._media, clock
        )
        self.calls = self._dialogs.calls
        self.restores = {LENT: self.pool.restore, CALL: self.calls.restore,
                         MEDIA: self._left.restore}  # fmt: skip
        self._flow: SipFlow | None = None
        self._end: Lost | None = None
        self._mark = secrets.token_hex(5)  # our Call-IDs begin with it
        names = [*self.pool.names, *([GATEWAY] if settings.component else [])]
        self._accounts = [_Account(name, self._call_id()) for name in names]
        self._registering = self._finding = 0
        self._is_live = False
        self._pinged_at = self._due = 0.0
        self._lines: dict[str, deque[_Text]] = {}  # by URI
        self._waiting = self._bytes = 0

    def _media_at(self, place: str) -> Media:
        return Rtpengine(place, self._left.make_mark(place), self._alarm_media)

    def _alarm_media(self, text: str) -> None:
        self._here.refused(text)
        self._here.raise_alarm(MEDIA_ALARM, text)

    def _call_id(self) -> str:
        """A new id, which is known as ours when it comes back."""
        return f"{self._mark}{secrets.token_hex(10)}"

    # --- the connection ---------------------------------------------------------------------------

    async def serve(self) -> None:
        """Connect, and serve until the connection ends. Raises Lost."""
        settings = self._settings
        if not self._accounts:
            raise NotAdmitted("it has neither addresses to lend nor a domain of this node's users")
        flow = SipFlow(settings.transport, self._transactions.took, self._here.wake)
        self._pinged_at = 0.0
        try:
            await flow.open(settings.host, settings.port)
            self._flow, self._due = flow, 0.0
            self._transactions.begin(flow.write, f"SIP/2.0/{flow.via} {flow.here}")
            for each in self._accounts:
                each.is_registered, each.at = False, 0.0
            self._register()
            while True:
                await self._here.ready()
                await flow.take()
        except Lost as error:
            why, self._end = self._end, None
            raise why or error from None
        finally:
            self._flow, self._is_live, self._registering = None, False, 0
            self._transactions.lost()
            self._dialogs.lost()
            self._media.close()
            self._lost()
            await flow.close()

    def _give_up(self, why: Lost) -> None:
        """End the connection for a reason."""
        self._end = why
        self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        if self._flow is not None:
            self._flow.abort()

    @property
    def has_room(self) -> bool:
        """Whether a message may be sent now."""
        is_full = self._waiting >= WINDOW or self._bytes >= WINDOW_BYTES
        return self._is_live and self._flow is not None and not self._flow.is_full and not is_full

    @property
    def due(self) -> float:
        """When `tick` has something to do next; calls are looked at again and again."""
        calls = self._clock() + LOOK_SECONDS if self._dialogs.is_busy else math.inf
        return min(self._due, self._transactions.due, self.pool.due, self._left.due, calls)

    def tick(self) -> None:
        """Look at what has a time limit."""
        now = self._clock()
        self._transactions.tick()
        if self._flow is not None:
            self._register()
            self._keep_alive(self._flow, now)
        for target in list(self._lines):
            self._advance(target)
        self._dialogs.tick()
        self._left.tick()
        self.pool.sweep()
        waits = [line[0].due(now) for line in self._lines.values()]
        if self._flow is not None:
            silent = (self._pinged_at, PING_SECONDS) if self._pinged_at else (
                self._transactions.heard_at, QUIET_SECONDS)  # fmt: skip
            waits += [sum(silent), *(each.at for each in self._accounts)]
        self._due = min(waits, default=math.inf)

    def _keep_alive(self, flow: SipFlow, now: float) -> None:
        if self._transactions.heard_at > self._pinged_at:
            self._pinged_at = 0.0
        if self._pinged_at and now - self._pinged_at > PING_SECONDS:
            self._give_up(Lost("the server has not answered for ten seconds"))
        elif not self._pinged_at and now - self._transactions.heard_at > QUIET_SECONDS:
            self._pinged_at = now
            target = f"sip:{self._settings.domain}"
            self._transactions.send(self.request("OPTIONS", target, ""), lambda *_: None)

    # --- registration -----------------------------------------------------------------------------

    def _register(self) -> None:
        """Register the accounts that are due, some at a time."""
        now = self._clock()
        for account in self._accounts:
            if self._registering >= REGISTERING or self._flow is None:
                return
            if account.at <= now:
                self._registering += 1
                account.at = math.inf
                self._register_one(account, self._flow)

    def _register_one(self, account: _Account, flow: SipFlow) -> None:
        place = f"<{self.contact_of(account.name)}>"
        contacts = [("Contact", f"{place};expires={account.seconds}")]
        if account.place and account.place != place:
            contacts.append(("Contact", f"{account.place};expires=0"))
        account.place = place
        at_home = uri(account.name, self._settings.domain)
        headers = [
            ("From", f"<{at_home}>;tag={secrets.token_hex(6)}"), ("To", f"<{at_home}>"),
            ("Call-ID", account.call_id), *contacts, ("Expires", str(account.seconds)),
        ]  # fmt: skip
        registrar = f"sip:{self._settings.domain}"
        request = Outgoing("REGISTER", registrar, headers, account=account.name)
        request.numbers = account.numbers
        self._transactions.send(request, partial(self._registered, account, flow))

    def _registered(
        self, account: _Account, flow: SipFlow, code: int, answer: Incoming | None
    ) -> None:
        """Take what the registrar says."""
        if flow is not self._flow:
            return
        self._registering -= 1
        now, self._due = self._clock(), 0.0
        least = answer.number_in("min-expires") if answer is not None else None
        if 200 <= code < 300 and answer is not None:
            account.is_registered = True
            account.at = now + 0.8 * self._granted(account, answer)
            if not self._is_live and all(each.is_registered for each in self._accounts):
                self._begin()
        elif code == 423 and least is not None and account.seconds < least <= MAX_MIN_EXPIRES:
            account.seconds, account.at = least, 0.0
        elif code in (401, 403, 404, 407):
            why = shown(answer.reason) if answer is not None else ""
            self._give_up(NotAdmitted(f"the registrar refuses {account.name} ({code} {why})"))
        elif account.is_registered:
            self._here.refused(f"the registrar does not renew {account.name} ({code})")
            account.at = now + REGISTER_AGAIN
        else:
            self._give_up(Lost(f"the registrar does not take {account.name} ({code or 'lost'})"))
        self._register()

    def _granted(self, account: _Account, answer: Incoming) -> int:
        """For how many seconds an account is registered."""
        expires = answer.number_in("expires")
        for each in answer.all("contact"):
            found = address_of(each)
            if found is not None and f"<{found.uri}>" == account.place:
                said = number_of(found.parameters.get("expires") or "")
                expires = expires if said is None else said
        return max(1, account.seconds if expires is None else expires)

    def _begin(self) -> None:
        """Go on where the last connection ended."""
        self._is_live = True
        for target in list(self._lines):
            self._advance(target)
        self._here.live()
        self._dialogs.begin()

    def contact_of(self, name: str) -> str:
        """Where an account is on this flow."""
        flow = self._flow
        place, parameter = (flow.here, flow.parameter) if flow is not None else ("", "tcp")
        return f"{uri(name, 'x').removesuffix('x')}{place};transport={parameter}"

    # --- to the network ---------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Convert a message and put it on the wire. Raises NodeError if that cannot be."""
        if self.calls.take(message):
            return
        if message.type == "read":
            self._discover(message, self.addresses.uri_of(user_asked(message)))
            return
        target = self.addresses.uri_of(message.recipients[0])
        text = written_in(message)
        if not text:
            return
        body = text.encode(errors="replace")
        if len(body) > MAX_BODY:
            raise TooLarge(f"The text has {len(body):,} bytes, and may have {MAX_BODY:,}.")
        name = self._parties.name_of(message.sender)
        if len(self._lines.get(target, ())) >= PER_ADDRESS:
            raise Unavailable(f"{PER_ADDRESS} messages to {target} wait for an answer.")
        self._parties.wrote(message.recipients[0], name, message.sender)
        request = self.request("MESSAGE", target, name)
        request.body, request.type_ = body, f"{TEXT};charset=utf-8"
        self._put(_Text(message, request, self._clock() + WAIT_SECONDS))

    def subscribe(self, message: Message) -> None:
        """Refuse a request for the presence of users there."""
        raise NotSupported("A SIP network does not say who is there.")

    def request(self, method: str, target: str, name: str) -> Outgoing:
        """A request outside a call; `name` is of ours, "" for the gateway itself."""
        lent, domain = is_lent(name), self._settings.domain
        account = name if lent else self._accounts[-1].name
        host = domain if lent or not name else self._settings.component
        sender = uri(name or account, host)
        headers = [("From", f"<{sender}>;tag={secrets.token_hex(6)}"), ("To", f"<{target}>"),
                   ("Call-ID", self._call_id())]  # fmt: skip
        return Outgoing(method, target, headers, account=account)

    def _put(self, text: _Text) -> None:
        """Add a message to those to its URI; it is sent at once if there is no other."""
        line = self._lines.setdefault(text.request.uri, deque())
        line.append(text)
        self._waiting, self._bytes = self._waiting + 1, self._bytes + len(text.request.body)
        self._due = min(self._due, text.until)
        if len(line) == 1:
            self._advance(text.request.uri)

    def _advance(self, target: str) -> None:
        """Answer what has waited too long for its turn, and send the message whose turn it is."""
        now = self._clock()
        while (line := self._lines.get(target)) and line[0].until <= now and not line[0].is_sent:
            why = f"{line[0].message.recipients[0][:200]} could not be reached in time."
            self._answer_first(line, error_body(GatewayTimeout(why)))
        if not line or not self._is_live or line[0].is_sent or line[0].not_before > now:
            return
        text = line[0]
        text.attempts, text.is_sent = text.attempts + 1, True
        self._transactions.send(text.request, partial(self._answered, line))

    def _answered(self, line: deque[_Text], code: int, answer: Incoming | None) -> None:
        if code < 200 or self._waits_again(line[0], code, answer):
            return  # provisional; or lost, and _lost looks at it; or later
        text, body = line[0], {"code": 200, "desc": "received" if code == 200 else "sent"}
        if code >= 300:
            body = error_body(self.fault_of(code, answer, text.message))
        self._answer_first(line, body)
        self._advance(text.request.uri)

    def _waits_again(self, text: _Text, code: int, answer: Incoming | None) -> bool:
        """Whether a message is sent again, since there is more than can be done there."""
        pause = answer.number_in("retry-after") if code in (500, 503) and answer else None
        at = self._clock() + max(1, pause or 0)
        if pause is None or at >= text.until:
            return False
        text.is_sent, text.attempts, text.not_before = False, 0, at
        self._due = min(self._due, at)
        return True

    def _answer_first(self, line: deque[_Text], body: dict[str, Any]) -> None:
        """Answer the first message of those to a URI, and take it out."""
        text = line.popleft()
        self._waiting, self._bytes = self._waiting - 1, self._bytes - len(text.request.body)
        if not line:
            del self._lines[text.request.uri]
        self._here.answer(text.message, body)

    def fault_of(self, code: int, answer: Incoming | None, message: Message) -> NodeError:
        """A final response, as it is answered here."""
        to = message.recipients[0][:200]
        if answer is None:
            return GatewayTimeout(f"{to} has not answered in time.")
        why = " ".join(filter(None, (str(code), shown(answer.reason))))
        return Answer(
            504 if code == 408 else CODES.get(code, 502), f"{to} cannot be reached ({why})."
        )

    def _lost(self) -> None:
        """Keep what the flow may have lost for the next one; stored messages come back anyway."""
        self._due = 0.0
        lines, self._lines, self._waiting, self._bytes = self._lines, {}, 0, 0
        for text in chain.from_iterable(lines.values()):
            if self._here.is_stored(text.message):
                continue
            if text.attempts >= ATTEMPTS:
                fault = BadGateway(f"{self._settings.domain} ends flows at this message.")
                self._here.answer(text.message, error_body(fault))
                continue
            if text.attempts:
                text.until, text.is_sent = self._clock() + WAIT_SECONDS, False
            self._put(text)

    def _discover(self, message: Message, target: str) -> None:
        """Ask whether there is a user, who may be asked anything."""
        found = uri_in(target)
        url = self.addresses.address_of(found) if found is not None else ""
        user = f"user://{self._settings.domain}/{target.removeprefix('sip:')}"

        def said(code: int, answer: Incoming | None) -> None:
            self._finding -= code == LOST or code >= 200
            if code in (404, 408, 410, 480, 484, 503, 604, LOST):
                fault = self.fault_of(code, answer, message)
                self._here.answer(message, error_body(fault))
            elif code >= 200:
                self._here.answer(message, entry_of(message, url, user))

        if self._finding >= MAX_FINDING:
            raise Unavailable("Too many users are looked up there.")
        self._finding += 1
        self._transactions.send(self.request("OPTIONS", target, ""), said)

    # --- from the network -------------------------------------------------------------------------

    def _took(self, served: Served) -> None:
        """Take a request."""
        request = served.request
        if request.to_tag or request.method == "BYE":
            self._dialogs.took(served)
        elif request.number_in("max-forwards") == 0:
            self._here.refused("a request that has come a long way, as in a loop")
            self._transactions.answer(served, 483)
        elif required := request.headers.get("require"):
            unsupported = ("Unsupported", ", ".join(required))
            self._transactions.answer(served, 420, headers=[unsupported])
        elif request.call_id.startswith(self._mark):
            self._here.refused("a request of this node came back")
            self._transactions.answer(served, 482)
        elif request.method == "OPTIONS":
            self._transactions.answer(served, 200, headers=[ALLOW, ("Accept", f"{SDP}, {TEXT}")])
        elif request.method not in ("MESSAGE", "INVITE"):
            self._transactions.answer(served, 405, headers=[ALLOW])
        elif not self._is_posing(served):
            self._took_new(served)

    def _is_posing(self, served: Served) -> bool:
        """Refuse who says that he is of this node; whether he does."""
        sender = served.request.sender
        if sender is None or not self.addresses.is_ours(sender.uri.user or "", sender.uri.host):
            return False
        who = shown(str(sender.uri))
        self._here.refused(f"somebody there says that he is {who}")
        self._here.raise_alarm(POSING_ALARM, f"Somebody there says that he is {who}, of this node.")
        self._transactions.answer(served, 403)
        return True

    def _took_new(self, served: Served) -> None:
        """Take a message or a call to an address of ours."""
        request = served.request
        sender = request.sender
        their = self.addresses.address_of(sender.uri) if sender is not None else ""
        asked = uri_in(request.uri)
        name = (asked.user if asked is not None else "") or ""
        if not their:
            self._transactions.answer(served, 403, "Nobody can be answered there")
        elif not self._parties.may_be(name):
            self._here.refused(f"{shown(name)} is of nobody here")
            self._transactions.answer(served, 404)
        elif request.method == "MESSAGE" and request.media_type != TEXT:
            self._transactions.answer(served, 415, headers=[("Accept", TEXT)])
        elif not self._parties.is_within_rate(their):
            self._transactions.answer(served, 480, "Too many messages", [("Retry-After", "60")])
        elif request.method == "INVITE":
            self._dialogs.took_invite(served, their, name)
        else:
            text = request.body.decode(errors="replace")
            self._parties.deliver(their, name, text, partial(self._delivered, served))

    def _delivered(self, served: Served, code: int, why: str) -> None:
        if code < 300:
            self._transactions.answer(served, 200)
        else:
            self._transactions.answer(served, _ANSWERS.get(code, 480), why)
