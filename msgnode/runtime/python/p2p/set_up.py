"""Setting connections up, from both sides: dialling another runtime, and being dialled by one.

Rules
- Nothing of a set-up outlives it: what was claimed at the node is given back, and a channel that
  did not open in time is closed.
- Both sides may invite at once: one invitation is refused 409, and its sender waits for the other.
- A runtime with which a set-up failed is left alone for a while.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.qos import IceServers, Qos, QosRefused

from .known_peers import plain
from .peer import Peer
from .rtc import BadDescription, RtcConnection
from .settings import P2PSettings
from .signalling import ConnectionObject, Invited, SetUpError, Talk, within
from .states import Event, Invitations, Quarantine, State, runtime_of_handler, stays_requester


class Peers(Protocol):
    """The peers of a runtime, as a set-up needs them."""

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The other runtimes that are known, by runtime URL."""
        ...

    def peer(self, runtime: str, handler: str) -> Peer | None:
        """The peer of a runtime, a new one if it is not known; None if there are too many."""
        ...

    def signals(self, peer: Peer, stub: str) -> None:
        """A peer's connection is signalled with this stub. Raises SetUpError."""
        ...

    async def claim(self, peer: Peer) -> None:
        """Have what is sent to a requester of ours delivered here. Raises SetUpError."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the runtime."""
        ...

    def is_over(self) -> bool:
        """Whether the runtime closes."""
        ...


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
        self._invitations = Invitations()
        self._quarantine = Quarantine()
        self._objects: dict[str, ConnectionObject] = {}
        self._answers: dict[str, asyncio.Future[Invited]] = {}  # by epoch: who waits for D

    # --- dialling ---------------------------------------------------------------------------------

    def dial(self, peer: Peer) -> None:
        """Set a connection up, unless there is one, or it is no time for one."""
        now = asyncio.get_running_loop().time()
        is_busy = peer.state in (State.CREATED, State.IN_PROGRESS) or peer.dialling is not None
        is_settled = not peer.link.is_open and not peer.is_on_channel
        if self._peers.is_over() or is_busy or not is_settled:
            return
        if self._quarantine.until(peer.runtime) <= now:
            peer.dialling = self._peers.spawn(self._request(peer))

    async def _request(self, peer: Peer) -> None:
        """Set a connection up as requester."""
        timers, talk = self._settings.timers, self._talk
        peer.begin(True, peer.via, peer.handler)
        began, epoch = time.time(), secrets.token_hex(8)
        rtc: RtcConnection | None = None
        opened = asyncio.Event()
        answered = self._answers[epoch] = asyncio.get_running_loop().create_future()
        made: ConnectionObject | None = None
        try:
            async with asyncio.timeout(timers.set_up):
                self._peers.signals(peer, peer.handler)
                rtc = await self._new_rtc(peer, epoch, opened)
                described = await rtc.offer()
                await self._peers.claim(peer)
                url = talk.new_object(peer.via)
                made = ConnectionObject(
                    talk, url, epoch, peer.via, peer.handler, peer.runtime, described
                )
                self._objects[url] = made
                await made.offer(began + timers.set_up)
                peer.enter(Event.ANSWERED)
                announced = await answered
                await talk.confirm(peer.via, peer.handler, epoch, announced.url)
                await rtc.accept(await talk.described(announced.url, peer.via))
                await within(timers.set_up, opened)
        except (SetUpError, BadDescription, TimeoutError) as error:
            if isinstance(error, SetUpError) and error.code == 409:  # it invites us, too
                self._await_invitation(peer)
            else:
                self._failed(peer, str(error) or "The channel did not open in time.")
        finally:
            peer.dialling = None
            self._answers.pop(epoch, None)
            self._end_set_up(made, rtc, opened)

    def _await_invitation(self, peer: Peer) -> None:
        """The other side's invitation counts; it has the time of a set-up to come about."""
        peer.enter(Event.GLARE, "glare")
        attempt = peer.attempt

        async def wait() -> None:
            await asyncio.sleep(self._settings.timers.set_up)
            if peer.attempt == attempt:
                self._failed(peer, "The other side's invitation did not come about.")

        self._peers.spawn(wait())

    def _failed(self, peer: Peer, text: str) -> None:
        if peer.state in (State.CREATED, State.IN_PROGRESS):
            self._quarantine.failed(peer.runtime, asyncio.get_running_loop().time())
            peer.enter(Event.BROKEN, text)

    def _end_set_up(
        self, made: ConnectionObject | None, rtc: RtcConnection | None, opened: asyncio.Event
    ) -> None:
        if made is not None:
            self._objects.pop(made.url, None)
            made.free()
        if rtc is not None and not opened.is_set():
            rtc.close()

    async def _new_rtc(self, peer: Peer, epoch: str, opened: asyncio.Event) -> RtcConnection:
        """A connection; what is reserved for it is given back when it is closed."""
        servers: Sequence[Mapping[str, Any]] = self._settings.ice_servers
        reserved: IceServers | None = None
        if self._settings.reserve and self._qos is not None:
            reserved = await self._qos.ice_servers(["data"], servers)
            servers = reserved.configuration["iceServers"]
        rtc = RtcConnection(servers, self._settings.relay_only)
        if reserved is not None:
            rtc.on_end = partial(self._give_back, reserved)

        def open_() -> None:
            opened.set()
            self._quarantine.lift(peer.runtime)
            peer.opened(rtc, epoch)

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
        if runtime_of_handler(invited.handler) != invited.runtime or plain(own) == plain(
            invited.runtime
        ):
            raise SetUpError(403, "An invitation names the runtime that it is of.")
        known = self._peers.peers.get(plain(invited.runtime))
        live = sum(each.link.is_open for each in self._peers.peers.values() if each is not known)
        now = asyncio.get_running_loop().time()
        if self._invitations.is_too_many(invited.runtime, live, now) or self._peers.is_over():
            raise SetUpError(429, "This runtime takes no more connections at the moment.")
        if known is not None and known.dialling is not None:
            if stays_requester(own, invited.runtime):
                raise SetUpError(409, "glare")
            known.dialling.cancel()
            self._await_invitation(known)
        self._talk.answer(message, 200)
        self._peers.spawn(self._handle(invited))

    async def _handle(self, invited: Invited) -> None:
        """Set a connection up as handler."""
        timers, talk = self._settings.timers, self._talk
        rtc: RtcConnection | None = None
        made: ConnectionObject | None = None
        opened = asyncio.Event()
        peer: Peer | None = None
        try:
            async with asyncio.timeout(timers.set_up):
                await talk.confirm(talk.handler, invited.handler, invited.epoch, invited.url)
                peer = self._peers.peer(invited.runtime, invited.handler)
                if peer is None:
                    raise SetUpError(429, "This runtime knows too many others at the moment.")
                self._peers.signals(peer, invited.stub)
                peer.begin(False, talk.handler, invited.stub)
                rtc = await self._new_rtc(peer, invited.epoch, opened)
                offered = await talk.described(invited.url, talk.handler)
                described = await rtc.answer(offered)
                url = talk.new_object(talk.handler)
                made = ConnectionObject(
                    talk,
                    url,
                    invited.epoch,
                    talk.handler,
                    invited.stub,
                    invited.runtime,
                    described,
                )
                self._objects[url] = made
                await made.offer(time.time() + timers.set_up)
                peer.enter(Event.ANNOUNCED)
                await within(timers.set_up, opened)
        except (SetUpError, BadDescription, TimeoutError) as error:
            self._bus.counters["p2p.not-handled"] += 1
            if peer is not None and peer.state in (State.CREATED, State.IN_PROGRESS):
                peer.enter(Event.BROKEN, str(error))
        finally:
            self._end_set_up(made, rtc, opened)

    def announced(self, peer: Peer | None, message: Message, invited: Invited) -> None:
        """The other side has answered our invitation. Raises SetUpError."""
        waiting = self._answers.get(invited.epoch)
        if peer is None or waiting is None or peer.via != message["to"] or waiting.done():
            raise SetUpError(404, "Nobody here waits for this connection.")
        self._talk.answer(message, 200)
        waiting.set_result(invited)

    def confirm(self, message: Message, said: dict[str, Any]) -> None:
        """Say whether we made an object. Raises SetUpError."""
        made = self._objects.get(str(said.get("resource")))
        if made is None or made.epoch != said.get("epoch"):
            raise SetUpError(404, "This runtime has made no such object.")
        self._talk.answer(message, 200)
