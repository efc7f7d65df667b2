"""Setting connections up, from both sides: dialling, being dialled, dialling again what was lost.

It follows docs/reference/p2p.md, rows 16-25.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.qos import IceServers, Qos, QosRefused

from .remote_runtime import KnownRuntimes, RemoteRuntime
from .rtc import PROTOCOL, BadDescription, RtcConnection
from .settings import P2PSettings
from .signalling import ConnectionObject, Invited, RemoteObject, SetUpError, Signalling
from .states import Event, InvitationLimits, Quarantine, plain, runtime_of_handler, stays_requester

FINAL = frozenset({403, 501})  # refusals after which there is no other try
SETTLING = 0.1  # s between two looks at what the last channel left
LATE = "The channel did not open in time."
NewRemote = Callable[[str, str], RemoteRuntime | None]


@dataclass(eq=False, slots=True)
class SetUp:
    """One connection that is being set up, by either side.

    Attributes:
        remote: whose; None while he has proved nothing.
        made, observed: our object, and the other side's where it is the field's.
        answer: what answers our invitation.
        attempt: which of the runtime's set-ups it is.
        task: that handles an invitation.
    """

    epoch: str
    remote: RemoteRuntime | None = None
    attempt: int = 0
    task: asyncio.Task[None] | None = None
    rtc: RtcConnection | None = None
    made: ConnectionObject | None = None
    observed: RemoteObject | None = None
    answer: asyncio.Future[Invited] | None = None
    opened: asyncio.Event = field(default_factory=asyncio.Event)


class SetUps:
    """The set-ups of one runtime.

    Args:
        new_remote: makes a remote runtime that is known from now on; None if too many are.
        qos: gives TURN servers, where the settings ask for some.
    """

    def __init__(
        self,
        settings: P2PSettings,
        signalling: Signalling,
        known: KnownRuntimes,
        new_remote: NewRemote,
        qos: Qos | None,
    ) -> None:
        self._settings = settings
        self._bus = signalling.bus
        self._signalling = signalling
        self._known = known
        self._new_remote = new_remote
        self._qos = qos
        self._is_closed = False
        self._limits = InvitationLimits()
        self._quarantine = Quarantine(settings.timers.quarantine)
        self._objects: dict[str, ConnectionObject] = {}
        self._awaiting: dict[str, SetUp] = {}  # by our requester's URL: who waits for D
        self._working: set[asyncio.Task[None]] = set()
        self._redials: dict[RemoteRuntime, asyncio.TimerHandle] = {}

    # --- dialling ---------------------------------------------------------------------------------

    def dial(self, remote: RemoteRuntime) -> None:
        """Set a connection up, unless there is one, or it is no time for one."""
        now = asyncio.get_running_loop().time()
        is_busy = remote.is_setting_up or remote.dialling is not None
        is_settled = not remote.link.is_open and not remote.is_on_channel
        if self._is_closed or is_busy or not is_settled:
            return
        until = self._quarantine.until(remote.runtime)
        if until > now:
            self._plan(remote, until - now)
        else:
            remote.dialling = self._spawn(self._request(remote))

    async def _request(self, remote: RemoteRuntime) -> None:
        """Set a connection up as requester."""
        timers, signalling = self._settings.timers, self._signalling
        remote.begin(True, remote.via, remote.handler)
        began, making = time.time(), SetUp(secrets.token_hex(8), remote, remote.attempt)
        making.answer = asyncio.get_running_loop().create_future()
        self._awaiting[remote.via] = making
        try:
            async with asyncio.timeout(timers.set_up):
                self._signals(remote, remote.handler)
                rtc = await self._new_rtc(making)
                described = await rtc.offer()
                if not remote.is_claimed:
                    await signalling.claim(remote.via)
                    remote.is_claimed = True
                made = self._object(making, remote.via, remote.handler, remote.runtime, described)
                await made.offer(began + timers.set_up)
                remote.enter(Event.ANSWERED)
                announced = await making.answer
                if announced.is_field:
                    await rtc.accept(await self._observed(making, announced.url, "answer"))
                else:
                    await signalling.confirm(
                        remote.via, remote.handler, making.epoch, announced.url
                    )
                    await rtc.accept(await signalling.described(announced.url, remote.via))
                self._take_candidates(making)
                await making.opened.wait()
        except (SetUpError, BadDescription, TimeoutError) as error:
            if isinstance(error, SetUpError) and error.code == 409:  # it invites us, too
                self._await_invitation(remote)
            else:
                code = error.code if isinstance(error, SetUpError) else 0
                self._failed(remote, str(error) or LATE, code)
        finally:
            remote.dialling = None
            if self._awaiting.get(remote.via) is making:
                del self._awaiting[remote.via]
            self._end(making)

    def _object(
        self, making: SetUp, stub: str, to: str, runtime: str, described: Mapping[str, str]
    ) -> ConnectionObject:
        url = self._signalling.new_object(stub)
        making.made = made = ConnectionObject(
            self._signalling, url, making.epoch, stub, to, runtime, dict(described)
        )
        self._objects[url] = made
        return made

    async def _observed(self, making: SetUp, url: str, kind: str) -> Any:
        """The description of the other side's object, whenever it comes. Raises SetUpError."""
        own = making.remote.via if making.remote is not None else self._signalling.handler
        making.observed = RemoteObject(self._signalling, url, own, kind)
        return await making.observed.description()

    def _take_candidates(self, making: SetUp) -> None:
        if making.observed is not None and making.rtc is not None:
            making.observed.give_candidates(making.rtc.add_candidate)

    def _await_invitation(self, remote: RemoteRuntime) -> None:
        """The other side's invitation counts; it has the time of a set-up to come about."""
        remote.enter(Event.GLARE, "glare")
        attempt = remote.attempt

        async def wait() -> None:
            await asyncio.sleep(self._settings.timers.set_up)
            if remote.attempt == attempt:
                self._failed(remote, "The other side's invitation did not come about.")

        self._spawn(wait())

    def _failed(self, remote: RemoteRuntime, text: str, code: int = 0) -> None:
        if remote.is_setting_up:
            now = asyncio.get_running_loop().time()
            until = self._quarantine.failed(remote.runtime, now)
            remote.enter(Event.BROKEN, text)
            remote.is_lost = remote.is_lost and code not in FINAL
            self._plan(remote, until - now)

    def _end(self, making: SetUp) -> None:
        if making.observed is not None:
            making.observed.free()
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
            if making.remote is None or making.attempt != making.remote.attempt:
                return  # nobody has read what opens it, or it must not come about any more
            making.opened.set()
            self._limits.end(making)
            self._quarantine.lift(making.remote.runtime)
            making.remote.opened(rtc, making.epoch, making.observed is not None)

        rtc.on_open = open_
        return rtc

    def _give_back(self, reserved: IceServers) -> None:
        async def release() -> None:
            try:
                await reserved.release()
            except QosRefused as refusal:
                self._bus.report("qos.not-released", f"A reservation stays for its time: {refusal}")

        self._spawn(release())

    # --- being dialled ----------------------------------------------------------------------------

    def invited(self, message: Message, invited: Invited) -> None:
        """Take an invitation. Raises SetUpError."""
        own = self._bus.runtime_url
        self._check_protocol(invited)
        is_named = invited.is_field or runtime_of_handler(invited.handler) == invited.runtime
        is_own_stub = runtime_of_handler(invited.stub) in ("", invited.runtime)
        if not (is_named and is_own_stub) or plain(own) == plain(invited.runtime):
            raise SetUpError(403, "An invitation names the runtime that it is of.")
        known = self._known.of(invited.runtime, invited.handler)
        others = self._known.by_runtime.values()
        live = sum(each.link.is_open for each in others if each is not known)
        named, now = (plain(invited.runtime), invited.stub), asyncio.get_running_loop().time()
        is_too_many = self._limits.is_too_many(*named, invited.is_field, live, now)
        if is_too_many or self._is_closed:
            raise SetUpError(429, "This runtime takes no more connections at the moment.")
        is_dialled = known is not None and known.dialling is not None
        if is_dialled and stays_requester(own, invited.runtime):
            raise SetUpError(409, "glare")
        self._signalling.answer(message, 200)
        making = SetUp(invited.epoch)
        self._limits.begin(making, plain(invited.runtime), invited.is_field)
        making.task = self._spawn(self._handle(making, invited))

    def _check_protocol(self, invited: Invited) -> None:
        if invited.is_field and not self._settings.field_peers:
            raise SetUpError(501, f"This runtime sets up connections of {PROTOCOL} alone.")

    async def _handle(self, making: SetUp, invited: Invited) -> None:
        """Set a connection up as handler."""
        timers, signalling = self._settings.timers, self._signalling
        try:
            async with asyncio.timeout(timers.set_up):
                if not invited.is_field:
                    await signalling.confirm(
                        signalling.handler, invited.handler, invited.epoch, invited.url
                    )
                    self._begin(making, invited)
                rtc = await self._new_rtc(making)
                if invited.is_field:
                    offered = await self._observed(making, invited.url, "offer")
                else:
                    offered = await signalling.described(invited.url, signalling.handler)
                described = await rtc.answer(offered)
                self._take_candidates(making)
                made = self._object(
                    making, signalling.handler, invited.stub, invited.runtime, described
                )
                if invited.is_field:
                    made.on_read = lambda: self._begin(making, invited).enter(Event.ANNOUNCED)
                await made.offer(time.time() + timers.set_up)
                if invited.is_field:
                    await made.was_read.wait()
                if making.remote is not None:
                    making.remote.enter(Event.ANNOUNCED)
                await making.opened.wait()
        except (SetUpError, BadDescription, TimeoutError) as error:
            self._bus.counters["p2p.not-handled"] += 1
            remote = making.remote
            if remote is None and getattr(error, "code", 0) == 404:
                self._limits.denied(plain(invited.runtime))
            if remote is not None and remote.is_setting_up:
                remote.enter(Event.BROKEN, str(error) or LATE)
                self._plan(remote, 0.0)  # it may have come in the place of one of ours
        finally:
            self._limits.end(making)
            if making.remote is not None and making.remote.handling is making.task:
                making.remote.handling = None
            self._end(making)

    def _begin(self, making: SetUp, invited: Invited) -> RemoteRuntime:
        """The inviter is the runtime that he says. Raises SetUpError."""
        remote = self._known.instance(invited.runtime, invited.instance, invited.handler)
        remote = remote or self._new_remote(invited.runtime, invited.handler)
        if remote is None:
            raise SetUpError(429, "This runtime knows too many others at the moment.")
        self._signals(remote, invited.stub)
        is_ours = stays_requester(self._bus.runtime_url, invited.runtime)
        if remote.dialling is not None and is_ours and not invited.is_field:
            raise SetUpError(409, "glare")  # were each to give way, nothing would be left
        if remote.dialling is not None:  # its invitation counts
            remote.dialling.cancel()
            self._await_invitation(remote)
        if remote.handling is not None:
            remote.handling.cancel()  # the other side has begun anew
        making.remote, remote.instance = remote, invited.instance
        remote.handler = invited.handler or remote.handler
        remote.begin(False, self._signalling.handler, invited.stub)
        making.attempt, remote.handling = remote.attempt, making.task
        return remote

    def _signals(self, remote: RemoteRuntime, stub: str) -> None:
        if not self._known.signals(remote, stub):
            raise SetUpError(403, f"{stub} is another runtime's.")

    def announced(self, remote: RemoteRuntime | None, message: Message, invited: Invited) -> None:
        """The other side has answered our invitation. Raises SetUpError."""
        self._check_protocol(invited)
        waiting = self._awaiting.get(message["to"])
        if (
            waiting is None
            or remote is None
            or waiting.remote is not remote
            or waiting.answer is None
            or waiting.answer.done()
            or waiting.made is None
            or not waiting.made.was_read.is_set()
            or not (invited.is_field or waiting.epoch == invited.epoch)
        ):
            raise SetUpError(404, "Nobody here waits for this connection.")
        self._signalling.answer(message, 200)
        remote.instance = invited.instance
        waiting.answer.set_result(invited)

    def confirm(self, message: Message, said: dict[str, Any]) -> None:
        """Say whether we made an object. Raises SetUpError."""
        made = self._objects.get(str(said.get("resource")))
        if made is None or made.epoch != said.get("epoch"):
            raise SetUpError(404, "This runtime has made no such object.")
        self._signalling.answer(message, 200)

    # --- dialling again ---------------------------------------------------------------------------

    def lost(self, remote: RemoteRuntime) -> None:
        """A live connection has ended: it is dialled again, if it is ours to dial."""
        self._plan(remote, 0.0)

    def _plan(self, remote: RemoteRuntime, least: float) -> None:
        """Plan the next try, which is not before `least` seconds."""
        if not remote.is_lost or remote.has_redial or self._is_closed:
            return
        now, jitter = asyncio.get_running_loop().time(), random.random()  # noqa: S311
        following = remote.redials.next(now, jitter)
        delay = max(following or 0.0, least + jitter if least else 0.0)
        if following is None or now + delay - remote.lost_at > remote.redials.span:
            remote.is_lost = False
            remote.enter(Event.EXHAUSTED)
            return
        remote.has_redial = True
        self._redial_in(delay, remote)

    def _redial_in(self, delay: float, remote: RemoteRuntime) -> None:
        loop = asyncio.get_running_loop()
        self._redials[remote] = loop.call_later(delay, self._redial, remote)

    def _redial(self, remote: RemoteRuntime) -> None:
        del self._redials[remote]
        if remote.is_on_channel and not remote.link.is_open:
            self._redial_in(
                SETTLING, remote
            )  # what the last one left is settled in a resume's time
            return
        remote.has_redial = False
        last = self._known.of(remote.runtime)
        is_anothers = last is not None and last is not remote and last.handler == remote.handler
        if remote.is_lost and not is_anothers:  # there, a newer process would answer
            self.dial(remote)

    # --- life -------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the runtime."""
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._bus.report("p2p.failed", f"A P2P set-up broke: {error!r}", error=error)

    async def close(self) -> None:
        """End what is under way, and begin nothing more."""
        self._is_closed = True
        for timer in self._redials.values():
            timer.cancel()
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)
