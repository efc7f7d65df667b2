"""The other runtimes that a runtime knows: what it has with each, and for how long it knows them.

It follows docs/reference/p2p.md, rows 26-29.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgnode.core import addresses
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.messages import (
    Message,
    answer_to,
    body_of,
    code_of,
    is_answerable,
    without_marks,
)

from .field_link import FieldLink
from .frames import content_of
from .link import Link, Way
from .rtc import RtcConnection
from .senders import NodePath, Verdict, Whereabouts, without_bytes
from .settings import P2PTimers
from .signalling import Signalling, count
from .states import (
    HANDLER,
    NO_RETURN,
    REQUESTER,
    SETTING_UP,
    Event,
    Redials,
    State,
    after,
    keep_newest,
    plain,
)

MAX_UNANSWERED = 10_000  # requests that came on the channel and are not answered
EVENTS = {"idle": Event.IDLE, "forbidden": Event.FORBIDDEN}


class Connection(NamedTuple):
    """What the runtime knows of its connection with one other.

    Attributes:
        runtime: the other's URL.
        stub: ours, whose `/status` tells of it.
        state: the last that was told.
        way: of what is sent now, "node" or "channel"; "fencing" and "resuming" in between.
    """

    runtime: str
    stub: str
    state: str
    way: str


class Shared(NamedTuple):
    """What a runtime has for all others: its signalling, the way through the node, the registry."""

    signalling: Signalling
    node: NodePath
    whereabouts: Whereabouts
    timers: P2PTimers


class RemoteRuntime:
    """One other runtime: the state of the connection with it, its channel, its link.

    It is the outlet of its link.

    Attributes:
        via: the URL of our requester stub, which marks what came on the channel.
        own, theirs: the stubs' URLs that the current connection is signalled between.
        instance: which of the runtimes of this URL it is, "" if it has not said so.
        is_lost, lost_at: its connection was, then, and is wanted again.
        has_redial: which is planned.
        on_lost: called when its live connection has ended.
    """

    def __init__(self, shared: Shared, runtime: str, handler: str) -> None:
        self.runtime = runtime
        self.handler = handler
        domain = addresses.parse(runtime).domain
        self.via = f"runtime://{domain}/p2prequester/{uuid.uuid4()}"
        self.own = self.theirs = self.instance = ""
        self.state = State.NONE
        self.desc = ""  # why it is in that state, if anything is known
        self.is_requester = True
        self.link: Link | FieldLink = Link(self, shared.timers)
        self.redials = Redials()
        self.dialling: asyncio.Task[None] | None = None
        self.handling: asyncio.Task[None] | None = None
        self.unanswered: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.is_claimed = False
        self.listening: Listening | None = None  # for what comes to `via`
        self.stubs: OrderedDict[str, None] = OrderedDict()  # of theirs, newest last
        self.used_at = 0.0
        self.attempt = 0  # which set-up
        self.is_lost = False
        self.lost_at = 0.0
        self.has_redial = False
        self.on_lost: Callable[[], None] = lambda: None
        self._bus = shared.signalling.bus
        self._signalling, self._node, self._whereabouts, self._timers = shared
        self._rtc: RtcConnection | None = None
        self._is_replacing = False
        self._timer: asyncio.TimerHandle | None = None

    # --- state ------------------------------------------------------------------------------------

    def begin(self, is_requester: bool, own: str, theirs: str) -> None:
        """A new connection is to be set up."""
        self.is_requester, self.own, self.theirs = is_requester, own, theirs
        self.state = State.NONE
        self.attempt += 1
        self.enter(Event.DEPLOYED)

    def enter(self, event: Event, desc: str = "") -> None:
        """Something happened; who listens to the status of the stub or of our runtime is told."""
        state = after(REQUESTER if self.is_requester else HANDLER, self.state, event)
        if state is self.state:
            return
        self.state, self.desc = state, desc
        if state is State.ENDED:
            return
        stub, runtime = self.stub, self._bus.runtime_url
        said = {"value": str(state)} | ({"desc": desc} if desc else {})
        for sender, about in (
            (stub, {"resource": self.runtime}),
            (runtime, {"resource": stub, "peer": self.runtime}),
        ):
            told = {"type": "update", "from": sender, "to": f"{sender}/status"}
            self._bus.tell({**told, "body": {**said, **about}})

    @property
    def stub(self) -> str:
        """Our stub that the connection is of."""
        return self.via if self.is_requester else self._signalling.handler

    @property
    def is_setting_up(self) -> bool:
        """Whether a connection is being set up."""
        return self.state in SETTING_UP

    @property
    def is_on_channel(self) -> bool:
        """Whether what is sent does not simply go through the node."""
        return self.link.way is not Way.NODE

    @property
    def is_busy(self) -> bool:
        """Whether it is in use, or about to be."""
        is_dialled = self.handling is not None or self.dialling is not None
        return self.link.is_open or self.is_on_channel or is_dialled

    def is_needed(self) -> bool:
        """Whether it must not be forgotten: something is under way, or about to be."""
        is_busy = self.is_setting_up or self.state is State.LIVE
        is_dialled = self.dialling is not None or self.has_redial
        return is_busy or is_dialled or self.link.is_open or not self.link.is_quiet()

    # --- the channel ------------------------------------------------------------------------------

    @property
    def is_field(self) -> bool:
        """Whether the other side's stub is the field's."""
        return isinstance(self.link, FieldLink)

    def opened(self, rtc: RtcConnection, epoch: str, is_field: bool = False) -> None:
        """The channel of a connection is open; it replaces an older one."""
        old, self._rtc = self._rtc, rtc
        if old is not None:
            old.close()
        rtc.on_frame = lambda frame: self._do(self.link.frame, frame)
        rtc.on_low = lambda: self._do(self.link.pump)
        rtc.on_close = lambda: self._do(self.link.lost, "closed")
        self._is_replacing = True
        if is_field is not self.is_field:
            self.link.abandon()
            self.link = (FieldLink if is_field else Link)(self, self._timers)
        self._do(self.link.opened, epoch)
        self._is_replacing = self.is_lost = False
        self.enter(Event.OPENED)

    def send(self, message: Message, size: int, is_for_node: bool = False) -> None:
        """Send a message in its turn; `is_for_node`: through the node, as its request came."""
        self.used_at = now = asyncio.get_running_loop().time()
        self.link.send(message, size, now, is_for_node)
        self._arm()

    def answer(self, message: Message, size: int) -> None:
        """Answer what came on the channel."""
        keep_newest(self.unanswered, _key(message), None, MAX_UNANSWERED)
        self.send(message, size)

    def fence_again(self, address: str) -> None:
        """Let nothing overtake what went to an address through the node while this was open."""
        if isinstance(self.link, Link):  # the field knows no fences
            self._do(partial(self.link.fence_again, address))

    def proceed(self) -> None:
        """Deliver what waited for a check."""
        self._do(self.link.proceed)

    def bye(self, reason: str) -> None:
        """Leave the channel in good order."""
        self._do(self.link.bye, reason)

    def forbid(self) -> None:
        """There must be no connection: end the set-up that runs, or the channel."""
        for set_up in (self.dialling, self.handling):
            if set_up is not None:
                set_up.cancel()
        self.attempt += 1  # a channel that opens at this moment is of none that runs
        self.is_lost = False
        if self.state is not State.LIVE:  # else the end of the channel says so
            self.enter(Event.FORBIDDEN, "forbidden")
        self.bye("forbidden")

    def _do(self, call: Callable[..., None], *words: Any) -> None:
        self.used_at = asyncio.get_running_loop().time()
        call(*words, self.used_at)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.link.due()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due, self._do, self.link.tick)

    def stop(self) -> RtcConnection | None:
        """Nothing happens any more. Returns the connection, for who waits until it is closed."""
        if self._timer is not None:
            self._timer.cancel()
        if self.dialling is not None:
            self.dialling.cancel()
        if self._rtc is not None:
            self._rtc.close()
        return self._rtc

    def forget(self) -> None:
        """It is known no longer: nothing is left of it."""
        self.enter(Event.FORGOTTEN)
        self.stop()
        if self.listening is not None:
            self.listening.remove()
        if self.is_claimed:
            self._signalling.unclaim(self.via)

    # --- Outlet of the link -----------------------------------------------------------------------

    def to_channel(self, frame: str | bytes) -> None:
        """Hand a frame to the channel."""
        if self._rtc is not None:
            self._rtc.send(frame)

    def has_room(self) -> bool:
        """Whether the channel's buffer takes another frame."""
        return self._rtc is not None and self._rtc.has_room()

    def to_node(self, message: Message) -> None:
        """Send a message through the node; from stub to stub if the node does not expect it."""
        is_expected = message["type"] != "response" or _key(message) not in self.unanswered
        if is_expected or self.is_field:
            self._bus.goes_through(message, self._node.send(message, 0, ""))
            return
        del self.unanswered[_key(message)]

        def delivered(answer: Message) -> None:
            if (code := code_of(answer)) >= 300:
                text = f"An answer to {message['to']} was not delivered: {code}"
                self._bus.report("p2p.not-delivered", text, message)

        said = message if content_of(message) is None else without_bytes(message)
        self._bus.post_message(self._execute("deliver", said), delivered)

    def ask(self, method: str, params: dict[str, Any]) -> None:
        """Ask the other side's stub through the node."""

        def take(answer: Message) -> None:
            value = body_of(answer).get("value")
            received = value.get("received") if isinstance(value, dict) else None
            got = count(received) if code_of(answer) == 200 else None
            self._do(self.link.answered, method, params, got)

        self._bus.post_message(self._execute(method, params), take, self._timers.resume)

    def _execute(self, method: str, said: Any) -> Message:
        body = {"method": method, "params": [said]}
        return {"type": "execute", "from": self.own, "to": self.theirs, "body": body}

    def take(self, message: Message, again: Callable[[], None] | None = None) -> bool:
        """Take in what came from the other side.

        Args:
            message: on the channel, or in place of it.
            again: is called after a look-up, instead of going on with the channel.

        Returns:
            False if its sender has to be looked up first.
        """
        verdict, about = self._whereabouts.judge(message, self.runtime)
        match verdict:
            case Verdict.UNKNOWN:
                self._whereabouts.ask(about, again or self.proceed)
            case Verdict.FORGED:
                self._forged(message, about)
            case Verdict.BAD:
                self._bus.counters["p2p.bad"] += 1
            case _ if message["type"] == "response" and not self._bus.is_expected(
                message, self.via
            ):
                self._bus.unclaimed(message)
            case _:
                if message["type"] == "response" and code_of(message) == 404:
                    self._whereabouts.forget(message["from"])
                self._bus.receive(without_marks(message), self.via)
        return verdict is not Verdict.UNKNOWN

    def _forged(self, message: Message, text: str) -> None:
        self._bus.report("p2p.forged", f"{self.runtime} posted as another: {text}")
        if self._whereabouts.is_too_many_forged(self.runtime):
            asyncio.get_running_loop().call_soon(self.bye, "forbidden")
        elif is_answerable(message) and message.get("id"):
            self.answer(answer_to(message, 403, text), 0)

    def refuse(self, message: Message, code: int, text: str) -> None:
        """Tell the sender that his message does not go out."""
        self._bus.refuse(message, code, text)

    def is_awaited(self, message: Message) -> bool:
        """Whether somebody here waits for the answer to a message."""
        return message["type"] != "response" and self._bus.is_awaited(message)

    def close(self, reason: str) -> None:
        """Close the channel."""
        if self._is_replacing:
            return
        rtc, self._rtc = self._rtc, None
        if rtc is not None:
            rtc.close()
        if self.state is not State.LIVE:
            return
        event = EVENTS.get(reason, Event.LOST)
        self.enter(event, reason)
        self.is_lost = self.is_requester and event not in NO_RETURN
        self.lost_at = asyncio.get_running_loop().time()
        self.on_lost()


def _key(message: Message) -> tuple[str, str]:
    return message["to"], str(message.get("id"))


class KnownRuntimes:
    """The remote runtimes that are known: bounded in number and time. Pure."""

    def __init__(self, timers: P2PTimers) -> None:
        self.by_runtime: OrderedDict[str, RemoteRuntime] = OrderedDict()
        self._timers = timers
        self._by_via: dict[str, RemoteRuntime] = {}
        self._by_stub: dict[str, RemoteRuntime] = {}

    def __len__(self) -> int:
        return len(self.by_runtime)

    def of(self, runtime: str, handler: str = "") -> RemoteRuntime | None:
        """The one of a runtime URL, in either spelling; with a handler, the tab that has it."""
        last = self.by_runtime.get(plain(runtime))
        if last is None or not handler or last.handler in ("", handler):
            return last
        return next((each for each in self.all_of(runtime) if each.handler == handler), None)

    def to_dial(self, runtime: str, handler: str) -> RemoteRuntime | None:
        """The one to dial for a handler; None if its runtime is known by others, in use."""
        known = self.of(runtime, handler)
        last = self.of(runtime)
        if known is not None or last is None:
            return known
        if not last.is_busy:
            return last  # it has started again
        self._set_aside(last)
        return None

    def has_channel(self) -> bool:
        """Whether a channel is in use with any."""
        return any(each.is_on_channel for each in self.by_runtime.values())

    def was_dialled_by_field(self, domain: str) -> bool:
        """Whether a channel is in use that a field's runtime of this domain has set up.

        It says nothing of its hyperties.
        """
        return any(
            each.is_field
            and not each.is_requester
            and each.is_on_channel
            and addresses.parse(each.runtime).home == domain
            for each in self.by_runtime.values()
        )

    def of_via(self, via: str) -> RemoteRuntime | None:
        """The one whose channel messages are marked so."""
        return self._by_via.get(via)

    def of_stub(self, stub: str) -> RemoteRuntime | None:
        """The one that has this stub."""
        return self._by_stub.get(stub)

    def add(self, remote: RemoteRuntime, now: float) -> bool:
        """Know one from now on; False if there are too many that may not be forgotten."""
        if len(self) >= self._timers.peers and not self._make_room(now):
            return False
        self.by_runtime[plain(remote.runtime)] = remote
        self._by_via[remote.via] = remote
        remote.used_at = now
        return True

    def instance(self, runtime: str, instance: str, handler: str = "") -> RemoteRuntime | None:
        """The one for an instance of a runtime: its own, or one whose channel has ended.

        Who talks with another instance, or is being invited by it, is set aside for it. One that
        has not said which instance it is, is the one that has its handler.
        """
        key = plain(runtime)
        known = self.by_runtime.get(key)

        def is_it(each: RemoteRuntime) -> bool:
            if each.instance:
                return each.instance == instance
            return handler in ("", each.handler)

        if known is None or not instance or is_it(known):
            return known
        every = self.all_of(runtime)
        own = next((each for each in every if each.instance == instance), None)
        own = own or next(filter(is_it, every), None)
        if own is None and not known.is_busy:
            return known  # it has started again
        self._set_aside(known)
        if own is not None:
            del self.by_runtime[f"{key}#{own.via}"]
            self.by_runtime[key] = own
        return own

    def _set_aside(self, remote: RemoteRuntime) -> None:
        key = plain(remote.runtime)
        del self.by_runtime[key]
        self.by_runtime[f"{key}#{remote.via}"] = remote

    def all_of(self, runtime: str) -> list[RemoteRuntime]:
        """Those of all instances of a runtime."""
        return [each for each in self.by_runtime.values() if plain(each.runtime) == plain(runtime)]

    def signals(self, remote: RemoteRuntime, stub: str) -> bool:
        """A connection is signalled with this stub; False if it is another runtime's."""
        if self._by_stub.setdefault(stub, remote) is not remote:
            return False
        remote.stubs[stub] = None
        remote.stubs.move_to_end(stub)
        if len(remote.stubs) > self._timers.keep_epochs + 1:
            del self._by_stub[remote.stubs.popitem(last=False)[0]]
        return True

    def forget_unused(self, now: float) -> None:
        """Forget who was not used for long."""
        for remote in list(self.by_runtime.values()):
            if now - remote.used_at >= self._timers.forget and self._may_go(remote, now):
                self._forget(remote)

    def _make_room(self, now: float) -> bool:
        may_go = [each for each in self.by_runtime.values() if self._may_go(each, now)]
        if may_go:
            self._forget(min(may_go, key=lambda each: each.used_at))
        return bool(may_go)

    def _may_go(self, remote: RemoteRuntime, now: float) -> bool:
        has_talked = bool(remote.link.epoch)
        is_settled = not has_talked or now - remote.used_at >= self._timers.linger
        return is_settled and not remote.is_needed()

    def _forget(self, remote: RemoteRuntime) -> None:
        key = plain(remote.runtime)
        if self.by_runtime.get(key) is not remote:
            key = f"{key}#{remote.via}"
        del self.by_runtime[key]
        del self._by_via[remote.via]
        for stub in remote.stubs:
            del self._by_stub[stub]
        remote.forget()
