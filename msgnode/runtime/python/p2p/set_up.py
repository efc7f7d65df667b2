"""Setting connections up, from both sides: dialling another runtime, and being dialled by one.

Rules
- Nothing of a set-up outlives it: what was claimed at the node is given back, and a channel that
  did not open in time is closed.
- Both sides may invite at once: one invitation is refused 409, and its sender waits for the other.
  The same one gives way if it had been taken before.
- A runtime with which a set-up failed is left alone for a while.
- Who invites has proved nothing yet: until he has confirmed it, or read our answer in the name of
  his runtime (the field), nothing that is known of that runtime changes.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.qos import IceServers, Qos, QosRefused

from .remote_runtime import Peer, plain
from .rtc import PROTOCOL, BadDescription, RtcConnection
from .settings import P2PSettings
from .signalling import ConnectionObject, Invited, RemoteObject, SetUpError, Talk, within
from .states import (
    NO_RETURN,
    Event,
    Handled,
    Quarantine,
    State,
    runtime_of_handler,
    stays_requester,
)


class Peers(Protocol):
    """The peers of a runtime, as a set-up needs them."""

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The other runtimes that are known, by runtime URL."""
        ...

    def of(self, runtime: str, handler: str) -> Peer | None:
        """The peer that has this handler."""
        ...

    def peer(self, runtime: str, handler: str, instance: str = "") -> Peer | None:
        """The peer of a runtime, a new one if it is not known; None if there are too many."""
        ...

    def signals(self, peer: Peer, stub: str) -> None:
        """A peer's connection is signalled with this stub. Raises SetUpError."""
        ...

    async def claim(self, peer: Peer) -> None:
        """Have what is sent to a requester of ours delivered here. Raises SetUpError."""
        ...

    def failed(self, peer: Peer, until: float, code: int) -> None:
        """A set-up has failed, or is not begun; its runtime is left alone until then."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the runtime."""
        ...

    def is_over(self) -> bool:
        """Whether the runtime closes."""
        ...


@dataclass(eq=False, slots=True)
class SetUp:
    """One connection that is being set up, by either side.

    Attributes:
        peer: whose; None while he has proved nothing.
        made, remote: our object, and the other side's where it is the field's.
        answer: what answers our invitation.
        attempt: which of the peer's set-ups it is.
        task: that handles an invitation.
    """

    epoch: str
    peer: Peer | None = None
    attempt: int = 0
    task: asyncio.Task[None] | None = None
    rtc: RtcConnection | None = None
    made: ConnectionObject | None = None
    remote: RemoteObject | None = None
    answer: asyncio.Future[Invited] | None = None
    opened: asyncio.Event = field(default_factory=asyncio.Event)


class SetUps:
    """The set-ups of one runtime.

    Args:
        qos: gives TURN servers, where the settings ask for some.
    """

    def __init__(
        self, peers: Peers, settings: P2PSettings, bus: MessageBus, talk: Talk, qos: Qos | None
    ) -> None:
        self._peers = peers
        self._settings = settings
        self._bus = bus
        self._talk = talk
        self._qos = qos
        self._handled = Handled()
        self._quarantine = Quarantine(settings.timers.quarantine)
        self._objects: dict[str, ConnectionObject] = {}
        self._awaiting: dict[str, SetUp] = {}  # by our requester's URL: who waits for D

    # --- dialling ---------------------------------------------------------------------------------

    def dial(self, peer: Peer) -> None:
        """Set a connection up, unless there is one, or it is no time for one."""
        now = asyncio.get_running_loop().time()
        is_busy = peer.state in (State.CREATED, State.IN_PROGRESS) or peer.dialling is not None
        is_settled = not peer.link.is_open and not peer.is_on_channel
        if self._peers.is_over() or is_busy or not is_settled:
            return
        until = self._quarantine.until(peer.runtime)
        if until > now:
            self._peers.failed(peer, until, 0)
        else:
            peer.dialling = self._peers.spawn(self._request(peer))

    async def _request(self, peer: Peer) -> None:
        """Set a connection up as requester."""
        timers, talk = self._settings.timers, self._talk
        peer.begin(True, peer.via, peer.handler)
        began, making = time.time(), SetUp(secrets.token_hex(8), peer, peer.attempt)
        making.answer = asyncio.get_running_loop().create_future()
        self._awaiting[peer.via] = making
        try:
            async with asyncio.timeout(timers.set_up):
                self._peers.signals(peer, peer.handler)
                rtc = await self._new_rtc(making)
                described = await rtc.offer()
                await self._peers.claim(peer)
                made = self._object(making, peer.via, peer.handler, peer.runtime, described)
                await made.offer(began + timers.set_up)
                peer.enter(Event.ANSWERED)
                announced = await making.answer
                if announced.is_field:
                    await rtc.accept(await self._observed(making, announced.url, "answer"))
                else:
                    await talk.confirm(peer.via, peer.handler, making.epoch, announced.url)
                    await rtc.accept(await talk.described(announced.url, peer.via))
                self._take_candidates(making)
                await within(timers.set_up, making.opened)
        except (SetUpError, BadDescription, TimeoutError) as error:
            if isinstance(error, SetUpError) and error.code == 409:  # it invites us, too
                self._await_invitation(peer)
            else:
                code = error.code if isinstance(error, SetUpError) else 0
                self._failed(peer, str(error) or "The channel did not open in time.", code)
        finally:
            peer.dialling = None
            if self._awaiting.get(peer.via) is making:
                del self._awaiting[peer.via]
            self._end(making)

    def _object(
        self, making: SetUp, stub: str, to: str, runtime: str, described: Mapping[str, str]
    ) -> ConnectionObject:
        url = self._talk.new_object(stub)
        making.made = made = ConnectionObject(
            self._talk, url, making.epoch, stub, to, runtime, dict(described)
        )
        self._objects[url] = made
        return made

    async def _observed(self, making: SetUp, url: str, kind: str) -> Any:
        """The description of the other side's object, whenever it comes. Raises SetUpError."""
        own = making.peer.via if making.peer is not None else self._talk.handler
        making.remote = RemoteObject(self._talk, url, own, kind)
        return await making.remote.description()

    def _take_candidates(self, making: SetUp) -> None:
        if making.remote is not None and making.rtc is not None:
            making.remote.give_candidates(making.rtc.add_candidate)

    def _await_invitation(self, peer: Peer) -> None:
        """The other side's invitation counts; it has the time of a set-up to come about."""
        peer.enter(Event.GLARE, "glare")
        attempt = peer.attempt

        async def wait() -> None:
            await asyncio.sleep(self._settings.timers.set_up)
            if peer.attempt == attempt:
                self._failed(peer, "The other side's invitation did not come about.")

        self._peers.spawn(wait())

    def _failed(self, peer: Peer, text: str, code: int = 0) -> None:
        if peer.state in (State.CREATED, State.IN_PROGRESS):
            until = self._quarantine.failed(peer.runtime, asyncio.get_running_loop().time())
            peer.enter(Event.BROKEN, text)
            self._peers.failed(peer, until, code)

    def _end(self, making: SetUp) -> None:
        if making.remote is not None:
            making.remote.free()
        if making.made is not None:
            self._objects.pop(making.made.url, None)
            making.made.free()
        if making.rtc is not None and not making.opened.is_set():
            making.rtc.close()

    async def _new_rtc(self, making: SetUp) -> RtcConnection:
        """A connection; what is reserved for it is given back when it is closed."""
        servers: Sequence[Mapping[str, Any]] = self._settings.ice_servers
        reserved: IceServers | None = None
        if self._settings.reserve and self._qos is not None:
            reserved = await self._qos.ice_servers(["data"], servers)
            servers = reserved.configuration["iceServers"]
        making.rtc = rtc = RtcConnection(servers, self._settings.relay_only)
        if reserved is not None:
            rtc.on_end = partial(self._give_back, reserved)

        def open_() -> None:
            if making.peer is None or making.attempt != making.peer.attempt:
                return  # nobody has read what opens it, or it must not come about any more
            making.opened.set()
            self._handled.end(making)
            self._quarantine.lift(making.peer.runtime)
            making.peer.opened(rtc, making.epoch, making.remote is not None)

        rtc.on_open = open_
        return rtc

    def _give_back(self, reserved: IceServers) -> None:
        async def release() -> None:
            try:
                await reserved.release()
            except QosRefused as refusal:
                self._bus.report("qos.not-released", f"A reservation stays for its time: {refusal}")

        self._peers.spawn(release())

    # --- being dialled ----------------------------------------------------------------------------

    def invited(self, message: Message, invited: Invited) -> None:
        """Take an invitation. Raises SetUpError."""
        own = self._bus.runtime_url
        self._check_protocol(invited)
        is_named = invited.is_field or runtime_of_handler(invited.handler) == invited.runtime
        is_own_stub = runtime_of_handler(invited.stub) in ("", invited.runtime)
        if not (is_named and is_own_stub) or plain(own) == plain(invited.runtime):
            raise SetUpError(403, "An invitation names the runtime that it is of.")
        known = self._peers.of(invited.runtime, invited.handler)
        live = sum(each.link.is_open for each in self._peers.peers.values() if each is not known)
        named, now = (plain(invited.runtime), invited.stub), asyncio.get_running_loop().time()
        is_too_many = self._handled.is_too_many(*named, invited.is_field, live, now)
        if is_too_many or self._peers.is_over():
            raise SetUpError(429, "This runtime takes no more connections at the moment.")
        is_dialled = known is not None and known.dialling is not None
        if is_dialled and stays_requester(own, invited.runtime):
            raise SetUpError(409, "glare")
        self._talk.answer(message, 200)
        making = SetUp(invited.epoch)
        self._handled.begin(making, plain(invited.runtime), invited.is_field)
        making.task = self._peers.spawn(self._handle(making, invited))

    def _check_protocol(self, invited: Invited) -> None:
        if invited.is_field and not self._settings.field_peers:
            raise SetUpError(501, f"This runtime sets up connections of {PROTOCOL} alone.")

    async def _handle(self, making: SetUp, invited: Invited) -> None:
        """Set a connection up as handler."""
        timers, talk = self._settings.timers, self._talk
        try:
            async with asyncio.timeout(timers.set_up):
                if not invited.is_field:
                    await talk.confirm(talk.handler, invited.handler, invited.epoch, invited.url)
                    self._begin(making, invited)
                rtc = await self._new_rtc(making)
                if invited.is_field:
                    offered = await self._observed(making, invited.url, "offer")
                else:
                    offered = await talk.described(invited.url, talk.handler)
                described = await rtc.answer(offered)
                self._take_candidates(making)
                made = self._object(making, talk.handler, invited.stub, invited.runtime, described)
                if invited.is_field:
                    made.on_read = lambda: self._begin(making, invited).enter(Event.ANNOUNCED)
                await made.offer(time.time() + timers.set_up)
                if invited.is_field:
                    await made.was_read.wait()
                if making.peer is not None:
                    making.peer.enter(Event.ANNOUNCED)
                await within(timers.set_up, making.opened)
        except (SetUpError, BadDescription, TimeoutError) as error:
            self._bus.counters["p2p.not-handled"] += 1
            peer = making.peer
            if peer is None and getattr(error, "code", 0) == 404:
                self._handled.denied(plain(invited.runtime))
            if peer is not None and peer.state in (State.CREATED, State.IN_PROGRESS):
                peer.enter(Event.BROKEN, str(error))  # it may have come in the place of one of ours
                self._peers.failed(peer, asyncio.get_running_loop().time(), 0)
        finally:
            self._handled.end(making)
            if making.peer is not None and making.peer.handling is making.task:
                making.peer.handling = None
            self._end(making)

    def _begin(self, making: SetUp, invited: Invited) -> Peer:
        """The inviter is the runtime that he says. Raises SetUpError."""
        peer = self._peers.peer(invited.runtime, invited.handler, invited.instance)
        if peer is None:
            raise SetUpError(429, "This runtime knows too many others at the moment.")
        self._peers.signals(peer, invited.stub)
        is_ours = stays_requester(self._bus.runtime_url, invited.runtime)
        if peer.dialling is not None and is_ours and not invited.is_field:
            raise SetUpError(409, "glare")  # were each to give way, nothing would be left
        if peer.dialling is not None:  # its invitation counts
            peer.dialling.cancel()
            self._await_invitation(peer)
        if peer.handling is not None:
            peer.handling.cancel()  # the other side has begun anew
        making.peer, peer.instance = peer, invited.instance
        peer.handler = invited.handler or peer.handler
        peer.begin(False, self._talk.handler, invited.stub)
        making.attempt, peer.handling = peer.attempt, making.task
        return peer

    def announced(self, peer: Peer | None, message: Message, invited: Invited) -> None:
        """The other side has answered our invitation. Raises SetUpError."""
        self._check_protocol(invited)
        waiting = self._awaiting.get(message["to"])
        if (
            waiting is None
            or peer is None
            or waiting.peer is not peer
            or waiting.answer is None
            or waiting.answer.done()
            or waiting.made is None
            or not waiting.made.was_read.is_set()
            or not (invited.is_field or waiting.epoch == invited.epoch)
        ):
            raise SetUpError(404, "Nobody here waits for this connection.")
        self._talk.answer(message, 200)
        peer.instance = invited.instance
        waiting.answer.set_result(invited)

    def confirm(self, message: Message, said: dict[str, Any]) -> None:
        """Say whether we made an object. Raises SetUpError."""
        made = self._objects.get(str(said.get("resource")))
        if made is None or made.epoch != said.get("epoch"):
            raise SetUpError(404, "This runtime has made no such object.")
        self._talk.answer(message, 200)


# Dialling lost connections again.
#
# Rules
# - Who had set a connection up dials again when it is lost; not when it ended because nobody used
#   it,
#   or nobody may.
# - A try that fails is followed by the next when the other side need not be left alone any more,
#   until there is a channel again, for ten minutes, and at most six times in these. After a refusal
#   (403, 501) there is no other.
# - A set-up that a message asked for, and that failed, is a later message's to ask for again.


FINAL = frozenset({403, 501})
SETTLING = 0.1  # s between two looks at what the last channel left


class Redialling:
    """The tries that are planned, of all connections of one runtime.

    Args:
        dial: sets a connection up, unless it is no time for one.
    """

    def __init__(self, dial: Callable[[Peer], None]) -> None:
        self._dial = dial
        self._timers: dict[Peer, asyncio.TimerHandle] = {}
        self._is_closed = False

    def lost(self, peer: Peer, event: Event) -> None:
        """A live connection has ended."""
        peer.is_lost = peer.is_requester and event not in NO_RETURN
        peer.lost_at = asyncio.get_running_loop().time()
        self._plan(peer, 0.0)

    def failed(self, peer: Peer, until: float, code: int) -> None:
        """A set-up has failed, or is not begun.

        Args:
            peer: whose.
            until: when its runtime need not be left alone any more.
            code: of the refusal; 0 if it was none.
        """
        if code in FINAL:
            peer.is_lost = False
        self._plan(peer, until - asyncio.get_running_loop().time())

    def close(self) -> None:
        """Dial no more."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _plan(self, peer: Peer, least: float) -> None:
        """Plan the next try, which is not before `least` seconds."""
        if not peer.is_lost or peer.has_redial or self._is_closed:
            return
        now, jitter = asyncio.get_running_loop().time(), random.random()  # noqa: S311
        following = peer.redials.next(now, jitter)
        delay = max(following or 0.0, least + jitter if least else 0.0)
        if following is None or now + delay - peer.lost_at > peer.redials.span:
            peer.is_lost = False
            peer.enter(Event.EXHAUSTED)
            return
        peer.has_redial = True
        self._in(delay, peer)

    def _in(self, delay: float, peer: Peer) -> None:
        self._timers[peer] = asyncio.get_running_loop().call_later(delay, self._due, peer)

    def _due(self, peer: Peer) -> None:
        del self._timers[peer]
        if peer.is_on_channel and not peer.link.is_open:
            self._in(SETTLING, peer)  # what the last one left is settled within a resume's time
            return
        peer.has_redial = False
        if peer.is_lost:
            self._dial(peer)
