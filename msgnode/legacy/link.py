"""The link of this node to one legacy network, at the worker that has its claim.

    connecting -> live -> waiting -> connecting      (back-off: 0.25 to 30 s)
    connecting -> refused -> connecting              (not admitted: every five minutes)

Rules
- Queue, classes, deadlines and stored messages are those of a peer (msgnode/federation); messages
  leave the queue only while the network is live and has room.
- What comes from there is checked as a peer's: it speaks for its own domain, to this node alone.
- A request of somebody there that nobody here answers is answered 504 after fifteen seconds;
  an answer that is provisional prolongs that.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from msgnode.bus.holders import Holders
from msgnode.bus.ports import Listener
from msgnode.core import messages
from msgnode.core.back_off import BackOff
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage, NodeError, Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.federation.exchange import NotCarried, PeerExchange, Store
from msgnode.federation.held_subscriptions import HeldSubscriptions, Observed
from msgnode.federation.peer_session import KeptSession, PeerSessions, VouchedFor
from msgnode.federation.queue import MessageClass, PeerQueue, class_of
from msgnode.federation.states import CONNECTING, LIVE, STOPPED, WAITING
from msgnode.sessions.frame_connection import is_final

from .network import Answered, Conflicted, Here, LegacyNetwork, Lost, NotAdmitted, shown

REFUSED = "refused"
REFUSED_ALARM = "legacy-refused"
QUEUE_MESSAGES, QUEUE_BYTES = 1_000, 4 * 1024 * 1024
REFUSED_SECONDS, CONFLICT_SECONDS = 300.0, 5.0
"""A server may ban who tries a wrong secret often; a worker that has died is noticed in a while."""
ASK_SECONDS = 15.0
MAX_ASKED = 2_000
"""Most requests from there that wait for an answer of this node."""
_LEAST_PAUSE, _STOP_SECONDS = 0.05, 2.0
"""Seconds between two runs of the timer: what is due and cannot be done yet keeps nobody busy."""


@dataclass(frozen=True, slots=True)
class LegacyPeer:
    """The names of a network here: its domain, its session's runtime URL, and the node's there.

    `is_trusted`: what it says of who writes is a verified identity.
    """

    domain: str
    stub_url: str
    runtime_url: str
    is_trusted: bool = False

    @property
    def vouched_for(self) -> VouchedFor | None:
        """Whose a message is, as the network says; None if that is not believed."""
        return self._vouched_for if self.is_trusted else None

    def _vouched_for(self, message: Message) -> Identity | None:
        scheme, _, rest = message.sender.partition(f"://{self.domain}/")
        if not rest or scheme in ("comm", "runtime"):  # neither a room nor the gateway is anybody
            return None
        subject = f"{unquote(rest.partition('/')[0])}@{self.domain}"
        url = f"user://{self.domain}/{rest.partition('/')[0]}@{self.domain}"
        return Identity(f"{scheme}:{self.domain}", subject, subject, self.domain, user_url=url)


class Kept(Protocol):
    """What is known of a network to whichever worker serves it."""

    async def read(self) -> list[tuple[str, str, str]]:
        """All of it: kind, address here, address there."""
        ...

    def write(self, kind: str, here: str, there: str, is_kept: bool) -> None:
        """Store one, or delete it. Never blocks."""
        ...


@dataclass(frozen=True, slots=True)
class Around:
    """What a link uses of the worker.

    Attributes:
        own: this node's domain.
        opener: opens the network's session.
        observed: is told the results of subscriptions there.
        kept: what is known to the worker that serves the network next.
        holders: asks the other workers who has an address.
        owner_of: finds the session that has an address, if it is known here.
        raise_alarm, clear_alarm: of the node.
        stored_seconds: how long a stored message waits.
    """

    own: str
    opener: PeerSessions
    observed: Observed
    kept: Kept
    holders: Holders
    owner_of: Callable[[str], Listener | None]
    raise_alarm: Callable[[str, str, str], None]
    clear_alarm: Callable[[str, str], None]
    stored_seconds: float


class _Asked(NamedTuple):
    said: Answered
    until: float


class LegacyLink:
    """One instance per network that this worker serves; also the network's Here.

    Args:
        peer: the names of the network.
        around: of the worker.
        make: makes the network.
        store: the messages stored for the network.
    """

    sandbox = None
    failures_in_a_row = 0
    """A network has no sandbox that fails, but figures and alarms ask."""

    def __init__(
        self,
        peer: LegacyPeer,
        around: Around,
        make: Callable[[Here], LegacyNetwork],
        store: Store | None = None,
    ) -> None:
        self.peer = peer
        self.own = around.own
        self.state = CONNECTING
        self.last_error = ""
        self._around = around
        self._session = KeptSession(around.opener, peer, self._outgoing, self._session_closed)
        queue = PeerQueue(QUEUE_MESSAGES, QUEUE_BYTES, stored_seconds=around.stored_seconds)
        self.exchange = PeerExchange(around.own, peer.domain, queue, self._session.say, store=store)
        self.subscriptions = HeldSubscriptions(
            peer.domain, peer.runtime_url, self._post, around.observed, self.wake
        )
        self.network = make(self)
        self._asked: OrderedDict[str, _Asked] = OrderedDict()
        self._number = 0
        self._retries = BackOff(0.25, 30.0)
        self._hurries = asyncio.Event()
        self._is_stopped = self._is_restored = self._is_woken = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf

    def carrier(self) -> dict[str, Any]:
        """What carries the messages, for display."""
        return {"way": "gateway"}

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the network until cancelled or stopped."""
        self._task = asyncio.current_task()
        if not self._is_restored:
            for kind, ours, theirs in await self._around.kept.read():
                if (restore := self.network.restores.get(kind)) is not None:
                    restore(ours, theirs)
            self._is_restored = True
        self._look()
        try:
            while not self._is_stopped:
                try:
                    await self._session.open()
                except NodeError as error:
                    self._enter(WAITING, f"its session was refused: {error.description}")
                    await self._wait(self._retries.failed())
                    continue
                self._enter(CONNECTING)
                await self._wait(await self._serve())
        finally:
            await self._leave()

    async def _serve(self) -> float:
        """Serve one connection until its end; return the seconds until the next."""
        try:
            await self.network.serve()
            why, seconds = "it has ended", self._retries.failed()
        except NotAdmitted as error:
            why, seconds = str(error), REFUSED_SECONDS
            self.raise_alarm(REFUSED_ALARM, f"{self.peer.domain}: {error}")
        except Conflicted as error:
            why, seconds = str(error), CONFLICT_SECONDS
        except Lost as error:
            why, seconds = str(error), self._retries.failed()
        except Exception as error:
            FAULTS.note("legacy network", error)
            why, seconds = f"the gateway has failed: {type(error).__name__}", self._retries.failed()
        self.exchange.counters.restarts += 1
        self._enter(REFUSED if seconds == REFUSED_SECONDS else WAITING, why)
        self.exchange.send_again(f"The connection to {self.peer.domain} has ended: {why}.")
        self._set_timer()  # what waits for the next one has limits
        return seconds

    async def stop(self) -> None:
        """Leave the network to another worker."""
        self._is_stopped = True
        self.abort()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_STOP_SECONDS)

    def abort(self) -> None:
        """Stop serving the network at once."""
        self._is_stopped = True
        self.network.abort()
        if self._task is not None:
            self._task.cancel()

    def hurry(self) -> None:
        """Try to connect at once, without waiting."""
        self._retries.reset()
        self._hurries.set()

    def restart(self) -> None:
        """Connect anew, for an operator."""
        self.hurry()
        self.network.abort()

    async def _wait(self, seconds: float) -> None:
        self._hurries.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurries.wait()

    def _session_closed(self) -> None:
        if self._session.has_ended:
            self.restart()

    async def _leave(self) -> None:
        self._enter(STOPPED)
        self._set_timer()
        self.exchange.fail_all(f"{self.peer.domain} is not served at the moment.")
        await self._session.close()

    def _look(self) -> None:
        """Do what is due, and set the timer for what is due next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with FAULTS.kept_to("legacy network"):
            self._do_what_is_due()
        self._set_timer()

    def _set_timer(self) -> None:
        """Have `_look` be called when something is due, or a second earlier: timers cost time."""
        due = min(self.exchange.due, self.network.due)
        if self._asked:
            due = min(due, next(iter(self._asked.values())).until)
        if self.state == LIVE:
            due = min(due, self.subscriptions.due)
        if self.state == STOPPED:
            due = math.inf
        if self._timer is not None and not self._looks_at <= due <= self._looks_at + 1.0:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._looks_at = due
            if due < math.inf:
                after = max(_LEAST_PAUSE, due - time.monotonic())
                self._timer = asyncio.get_running_loop().call_later(after, self._look)

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        self.exchange.expire(self.last_error if self.state != LIVE else "")
        while self._asked and next(iter(self._asked.values())).until <= now:
            self._asked.popitem(last=False)[1].said(504, {"description": "Nobody has answered."})
        self.network.tick()
        self._pump()

    def _enter(self, state: str, error: str = "") -> None:
        if error:
            self.last_error = error[:300]
        if state == LIVE and self.state != LIVE:
            self.last_error = ""
        self.state = state

    # --- to the network ---------------------------------------------------------------------------

    def _outgoing(self, frame: bytes) -> None:
        """Process a frame for the network's session."""
        try:
            message = messages.parse_unmarked(frame)
        except InvalidFrame:
            return
        to = message.recipients[0]
        if message.is_response and (asked := self._asked.get(message.id_key)) is not None:
            if is_final(message):
                del self._asked[message.id_key]
            else:
                self._asked[message.id_key] = asked._replace(until=time.monotonic() + ASK_SECONDS)
                self._asked.move_to_end(message.id_key)
            try:
                body = message.fields()
            except BadMessage:
                body = {"code": 502, "description": "The answer cannot be read."}
            code = body.get("code")
            asked.said(code if isinstance(code, int) else 200, body)
            self.wake()
            return
        if message.is_response or to.startswith((self.peer.stub_url, self.peer.runtime_url)):
            return
        kept = self.subscriptions.kept(message)
        if kept is None:
            self._session.say(messages.reply(message, {"code": 200}))
            return
        self.when_known((kept.sender,), partial(self._put, kept))

    def _put(self, message: Message) -> None:
        self.exchange.put(message)
        self.wake()

    def _pump(self) -> None:
        """Send what waits, as far as the network takes it."""
        if self.state != LIVE:
            return
        self.subscriptions.pump()
        while self.network.has_room and (message := self.exchange.take_message()) is not None:
            try:
                self.network.send(message)
            except NodeError as error:
                self.answer(message, messages.error_body(error))
            except Exception as error:
                FAULTS.note("legacy network", error)
                fault = Unavailable("The gateway has failed at this message.")
                self.answer(message, messages.error_body(fault))

    def _post(self, frame: bytes) -> None:
        message = messages.parse(frame)
        try:
            self.network.subscribe(message)
        except NodeError as error:
            is_end = message.type == "unsubscribe"  # of nothing
            self.granted(message, {"code": 200} if is_end else messages.error_body(error))

    # --- Here -------------------------------------------------------------------------------------

    def identity_of(self, address: str) -> Identity | None:
        """The verified identity at an address of this node."""
        session = self._around.owner_of(address)
        return session.speaker.identity if session is not None else None

    def runtime_of(self, address: str) -> str:
        """The runtime that has an address of this node, "" if none has."""
        session = self._around.owner_of(address)
        return session.runtime_url if session is not None else ""

    def when_known(self, addresses: Collection[str], then: Callable[[], None]) -> None:
        """Call `then` once it is known here which sessions have these, at whatever worker."""
        self._number += 1
        try:
            self._around.holders.find((self.peer.domain, self._number), addresses)
        except Pending as fact:
            fact.when_known(then)
        else:
            then()

    def if_gone(self, runtime: str, then: Callable[[], None]) -> None:
        """Call `then` once it is certain that a runtime has no session at any worker."""
        key = (self.peer.domain, runtime)

        def look() -> None:
            with suppress(NodeError, Pending):  # it is asked again
                self._around.holders.find_runtime(key, runtime)
                if not self.runtime_of(runtime):
                    then()

        try:
            self._around.holders.find_runtime(key, runtime)
        except Pending as fact:
            fact.when_known(look)
        except NodeError:
            return
        else:
            if not self.runtime_of(runtime):
                then()

    def is_stored(self, message: Message) -> bool:
        """Whether a message is kept here until it is answered."""
        return class_of(message) is MessageClass.STORED

    def live(self) -> None:
        """Note that the network has admitted this node."""
        self._retries.succeeded()
        self._around.clear_alarm(REFUSED_ALARM, self.peer.domain)
        self._enter(LIVE)
        self.subscriptions.renew()
        self.wake()

    async def ready(self) -> None:
        """Note that what has come was taken, and wait until this node takes more of the network."""
        self.wake()
        await self._session.ready()

    def wake(self) -> None:
        """Note that something waits, the network takes more, or has a time limit that it had not.

        It is looked at once for all that happens in a turn of the loop.
        """
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._woken)

    def _woken(self) -> None:
        self._is_woken = False
        with FAULTS.kept_to("legacy network"):
            self._pump()
        self._set_timer()

    def answer(self, message: Message, body: dict[str, Any]) -> None:
        """Answer a message that was sent there, in place of who is there."""
        code = body.get("code", 200)
        if code >= 400:
            self.exchange.out.failed(f"{code} {body.get('description', '')}")
        if class_of(message) in (MessageClass.REQUEST, MessageClass.STORED):
            reply = messages.parse(messages.reply(message, body))
            with suppress(NotCarried):  # it was answered 503 or 504 meanwhile
                self._session.say(self.exchange.taken_in(reply).frame, message=reply)

    def ask(self, type_: str, sender: str, to: str, body: dict[str, Any], said: Answered) -> None:
        """Carry a request of somebody there; `said` is called once with a final answer."""
        if len(self._asked) >= MAX_ASKED:
            said(503, {"description": "Too many requests of this network wait for an answer."})
            return
        message = self._made(type_, sender or f"{self.peer.stub_url}/gateway", to, body)
        if message is None:
            said(403, {"description": "The message cannot be carried."})
            return
        self._asked[message.id_key] = _Asked(said, time.monotonic() + ASK_SECONDS)
        self.wake()
        self._session.say(message.frame, message)

    def tell(self, sender: str, to: str, body: dict[str, Any]) -> None:
        """Carry an update of somebody there, which is not answered."""
        message = self._made("update", sender, to, body)
        if message is not None:
            self._session.say(message.frame, message)

    def _made(self, type_: str, sender: str, to: str, body: dict[str, Any]) -> Message | None:
        """A message as the network's, None if it is not carried."""
        self._number += 1
        head = {"id": str(self._number), "type": type_, "from": sender, "to": to, "body": body}
        try:
            message = messages.parse(msgspec.json.encode(head))
            if not sender.startswith(self.peer.stub_url):
                self.exchange.taken_in(message)
        except (InvalidFrame, NotCarried) as error:
            self.refused(str(error))
            return None
        return message

    def granted(self, message: Message, body: dict[str, Any]) -> None:
        """Say what has become of a subscription that this node wanted there."""
        self.subscriptions.take(messages.parse(messages.reply(message, body)))

    def refused(self, why: str) -> None:
        """Count something of the network that is not carried."""
        why = shown(why)
        self.exchange.refused_here(why)
        self.last_error = f"refused: {why}"

    def keep(self, kind: str, here: str, there: str, is_kept: bool = True) -> None:
        """Have something known to the worker that serves the network next, or no longer."""
        self._around.kept.write(kind, here, there, is_kept)

    def raise_alarm(self, kind: str, text: str) -> None:
        """Raise an alarm about the network."""
        self._around.raise_alarm(kind, self.peer.domain, text)
