"""The transactions of one flow (RFC 3261, section 17), both ways, with the digest of requests.

Rules
- A request is answered once: by a final response, or 408 after 32 seconds; LOST if the flow ends.
  A call may ring for three minutes. All 2xx of one call are passed on, for 32 seconds.
- A challenge is answered once; again only if it was answered from memory, or calls itself stale. So
  a wrong password is tried once.
- A request that comes again gets the same answer again, and is passed on once.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from .sip_messages import (
    VERSION,
    Challenge,
    Incoming,
    challenge_in,
    response,
    written,
)

COOKIE = "z9hG4bK"
TIMEOUT_SECONDS, RING_SECONDS = 32.0, 200.0
LOST = 0
"""The code of a request whose flow has ended before a final response."""
MAX_OPEN, MAX_ANSWERED = 3_000, 1_000
"""Transactions at a time in each direction, and answers that are kept; the oldest go first."""

Answered = Callable[[int, Incoming | None], None]
"""Is called with the code of a response, and the response; None if there is none."""


@dataclass(eq=False, slots=True)
class Outgoing:
    """A request of ours.

    Attributes:
        method, uri: of its first line.
        headers: From, To, Call-ID and what else it has.
        account: whose password answers a challenge.
        numbers: gives the number of each attempt: that of its dialog, if it has one.
        branch, number: of the latest attempt.
    """

    method: str
    uri: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    type_: str = ""
    account: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    branch: str = ""
    number: int = 0


@dataclass(eq=False, slots=True)
class _Client:
    request: Outgoing
    said: Answered
    until: float
    cached: bool  # whether it answers a challenge from memory
    answered: int = 0  # challenges
    has_final: bool = False


@dataclass(eq=False, slots=True)
class Served:
    """A request of theirs; `tag` is ours, `code` that of the latest answer."""

    request: Incoming
    tag: str
    until: float
    key: tuple[str, str]
    code: int = 0
    answer: bytes = b""


class Transactions:
    """One instance per network; it outlives flows.

    Args:
        password: the password of an account.
        on_request: called with each new request, but for ACK.
        on_ack: called with an ACK of a 2xx.
        on_cancel: called with a request that is withdrawn before it was answered.
        refused: counts what cannot be carried.
        clock: a monotonic clock, in seconds.

    Attributes:
        heard_at: when something has come last.
        due: when `tick` has something to do next, or earlier.
    """

    def __init__(
        self,
        password: Callable[[str], str],
        on_request: Callable[[Served], None],
        on_ack: Callable[[Incoming], None],
        on_cancel: Callable[[Served], None],
        refused: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.heard_at = 0.0
        self.due = math.inf
        self._password = password
        self._on_request, self._on_ack, self._on_cancel = on_request, on_ack, on_cancel
        self._refused = refused
        self._clock = clock
        self._write: Callable[[bytes], None] = lambda _: None
        self._via = ""
        self._clients: OrderedDict[tuple[str, str], _Client] = OrderedDict()
        self._served: dict[tuple[str, str], Served] = {}  # not answered yet
        self._over: OrderedDict[tuple[str, str], Served] = OrderedDict()  # answered
        self._challenges: OrderedDict[tuple[str, bool], tuple[str, Challenge]] = OrderedDict()

    def begin(self, write: Callable[[bytes], None], via: str) -> None:
        """Use a flow; `via` is the beginning of our Via on it."""
        self._write, self._via, self.heard_at = write, via, self._clock()

    def lost(self) -> None:
        """Note that the flow has ended."""
        self._write = lambda _: None
        self._served.clear()
        self._over.clear()
        clients, self._clients = self._clients, OrderedDict()
        for each in clients.values():
            if not each.has_final:
                each.said(LOST, None)

    # --- requests of ours -------------------------------------------------------------------------

    def send(self, request: Outgoing, said: Answered) -> None:
        """Send a request; `said` is called with what is answered."""
        self._send(_Client(request, said, 0.0, _asker(request) in self._challenges))

    def _send(self, client: _Client) -> None:
        request = client.request
        request.branch = f"{COOKIE}{secrets.token_hex(10)}"
        request.number = next(request.numbers)
        headers = list(request.headers)
        if found := self._challenges.get(_asker(request)):
            name, challenge = found
            password, salt = self._password(request.account), secrets.token_hex(8)
            headers.append((name, challenge.answer(
                request.account, password, request.method, request.uri, salt)))  # fmt: skip
        client.until = self._clock() + TIMEOUT_SECONDS
        self.due = min(self.due, client.until)
        self._clients[request.branch, request.method] = client
        if len(self._clients) > MAX_OPEN:
            self._give_up(self._clients.popitem(last=False)[1])
        self._write(self._made(request, request.method, headers, request.body))

    def _made(
        self, request: Outgoing, method: str, headers: Iterable[tuple[str, str]], body: bytes = b""
    ) -> bytes:
        """A request with the branch and the number of another, or of itself."""
        named = (("Via", f"{self._via};branch={request.branch};rport"), ("Max-Forwards", "70"),
                 *headers, ("CSeq", f"{request.number} {method}"))  # fmt: skip
        type_ = request.type_ if body else ""
        return written(f"{method} {request.uri} {VERSION}", named, body, type_)

    def cancel(self, request: Outgoing) -> None:
        """Withdraw a request that has had a provisional response."""
        key = (request.branch, request.method)
        if key in self._clients:
            self._clients[request.branch, "CANCEL"] = _Client(
                request, lambda *_: None, self._clock() + TIMEOUT_SECONDS, cached=False
            )
            self._write(self._made(request, "CANCEL", _of_its_call(request)))
            self._clients[key].until = self._clock() + TIMEOUT_SECONDS

    def acknowledge(self, ack: Outgoing, number: int) -> None:
        """Send the ACK of a 2xx."""
        ack.branch, ack.number = f"{COOKIE}{secrets.token_hex(10)}", number
        self._write(self._made(ack, "ACK", ack.headers))

    def _took_response(self, message: Incoming) -> None:
        key = (message.branch, message.method)
        client = self._clients.get(key)
        if client is None:
            self._refused("a response to nothing that was sent")
            return
        request, code = client.request, message.code
        if code < 200:
            if not client.has_final:
                if request.method == "INVITE":
                    client.until = self._clock() + RING_SECONDS
                client.said(code, message)
        elif 200 <= code < 300 and request.method == "INVITE" and key[1] == "INVITE":
            if not client.has_final:
                client.has_final, client.until = True, self._clock() + TIMEOUT_SECONDS
            client.said(code, message)
        else:
            del self._clients[key]
            if key[1] == "INVITE":
                parties = [each for each in _of_its_call(request) if each[0] != "To"]
                ack = (*parties, ("To", message.first("to")))
                self._write(self._made(request, "ACK", ack))
            if client.has_final or key[1] != request.method:
                return
            if code not in (401, 407) or not self._answers(client, message):
                client.has_final = True
                client.said(code, message)

    def _answers(self, client: _Client, message: Incoming) -> bool:
        """Answer a challenge; whether it is answered."""
        challenge, asker = challenge_in(message), _asker(client.request)
        self._challenges.pop(asker, None)
        may = not client.answered or (challenge is not None and challenge.is_stale)
        if challenge is None or not client.request.account or not may or client.answered > 1:
            return False
        name = "Authorization" if message.code == 401 else "Proxy-Authorization"
        self._challenges[asker] = (name, challenge)
        if len(self._challenges) > MAX_OPEN:
            self._challenges.popitem(last=False)
        client.answered += 0 if client.cached else 1
        client.cached = False
        self._send(client)
        return True

    def _give_up(self, client: _Client) -> None:
        if not client.has_final:
            client.has_final = True
            client.said(408, None)

    # --- what comes -------------------------------------------------------------------------------

    def took(self, message: Incoming) -> None:
        """Take a message."""
        self.heard_at = self._clock()
        if message.code:
            if not message.fault:
                self._took_response(message)
            else:
                self._refused(f"a response: {message.fault}")
        elif not message.method or not message.first("via"):
            self._refused("what is no SIP")
        elif message.fault:
            self._refused(f"a request: {message.fault}")
            if message.method != "ACK":
                self._write(response(message, 400, reason=message.fault))
        else:
            self._took_request(message)

    def _took_request(self, message: Incoming) -> None:
        key = (message.transaction, message.method)
        invite = self._known((message.transaction, "INVITE"))
        if message.method == "ACK":
            if invite is None or invite.code < 300:
                self._on_ack(message)
            return
        if (known := self._known(key)) is not None:
            if known.answer:
                self._write(known.answer)
            return
        if len(self._served) >= MAX_OPEN:
            self._refused("more requests at a time than are served")
            self._write(response(message, 480, "", "Too many requests"))
            return
        until = self._clock() + TIMEOUT_SECONDS
        self.due = min(self.due, until)
        served = self._served[key] = Served(message, secrets.token_hex(8), until, key)
        if message.method != "CANCEL":
            self._on_request(served)
            return
        self.answer(served, 200 if invite is not None else 481)
        if invite is not None and invite.code < 200:
            self.answer(invite, 487)
            self._on_cancel(invite)

    def _known(self, key: tuple[str, str]) -> Served | None:
        return self._served.get(key) or self._over.get(key)

    def answer(
        self,
        served: Served,
        code: int,
        reason: str = "",
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        type_: str = "",
    ) -> None:
        """Answer a request; after a final answer nothing more is sent."""
        if served.code >= 200:
            return
        served.code = code
        served.answer = response(served.request, code, served.tag, reason, headers, body, type_)
        if code >= 200:
            if served.request.method != "INVITE":
                served.request = Incoming(served.request.method)  # only the answer is needed
            self._served.pop(served.key, None)
            self._over[served.key] = served
            if len(self._over) > MAX_ANSWERED:
                self._over.popitem(last=False)
        served.until = self._clock() + (TIMEOUT_SECONDS if code >= 200 else RING_SECONDS)
        self._write(served.answer)

    def again(self, served: Served) -> None:
        """Send the answer of a request again, because it was not acknowledged."""
        self._write(served.answer)

    def tick(self) -> None:
        """Look at what has a time limit."""
        now = self._clock()
        for key in [each for each, client in self._clients.items() if client.until <= now]:
            self._give_up(self._clients.pop(key))
        for kept in [each for each, served in self._served.items() if served.until <= now]:
            del self._served[kept]
        while self._over and next(iter(self._over.values())).until <= now:
            self._over.popitem(last=False)
        limits = [each.until for each in self._clients.values()]
        limits += [each.until for each in (*self._served.values(), *self._over.values())]
        self.due = min(limits, default=math.inf)


def _asker(request: Outgoing) -> tuple[str, bool]:
    """Who asks for a password: the registrar and the proxy may be two."""
    return request.account, request.method == "REGISTER"


def _of_its_call(request: Outgoing) -> list[tuple[str, str]]:
    """The headers that say which call a request is of, for its ACK and its CANCEL."""
    return [each for each in request.headers if each[0] in ("From", "To", "Call-ID", "Route")]
