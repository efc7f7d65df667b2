"""What a runtime has with one other: the state of their connection, its channel, its link."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from msgnode.core import addresses
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.messages import Message

from .field_link import FieldLink
from .link import Link, Way
from .rtc import RtcConnection
from .settings import P2PTimers
from .states import HANDLER, REQUESTER, Event, Redials, State, after

MAX_WRAPS = 10_000  # requests that came on the channel and are not answered


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


class Owner(Protocol):
    """The runtime's part that has the peers."""

    def through_node(self, peer: Peer, message: Message) -> None:
        """Send a message through the node."""
        ...

    def ask(self, peer: Peer, method: str, params: dict[str, Any]) -> None:
        """Ask the other side's stub through the node."""
        ...

    def take(self, peer: Peer, message: Message) -> bool:
        """Take in a message of the channel; False if its sender is not known yet."""
        ...

    def refuse(self, message: Message, code: int, text: str) -> None:
        """Tell a sender that his message does not go out."""
        ...

    def is_awaited(self, message: Message) -> bool:
        """Whether somebody here waits for the answer to a message."""
        ...

    def tell_status(self, peer: Peer, desc: str) -> None:
        """Tell the runtime of a change of the peer's state."""
        ...

    def lost(self, peer: Peer, event: Event) -> None:
        """A live connection has ended."""
        ...


class Peer:
    """One other runtime. It is the outlet of its link.

    Attributes:
        via: the URL of our requester stub, which marks what came on the channel.
        own, theirs: the stubs' URLs that the current connection is signalled between.
        instance: which of the runtimes of this URL it is, "" if it has not said so.
        is_lost, lost_at: its connection was, then, and is wanted again.
        has_redial: which is planned.
    """

    def __init__(self, owner: Owner, runtime: str, handler: str, timers: P2PTimers) -> None:
        self.runtime = runtime
        self.handler = handler
        domain = addresses.parse(runtime).domain
        self.via = f"runtime://{domain}/p2prequester/{uuid.uuid4()}"
        self.own = self.theirs = self.instance = ""
        self.state = State.NONE
        self.desc = ""  # why it is in that state, if anything is known
        self.is_requester = True
        self.link: Link | FieldLink = Link(self, timers)
        self.redials = Redials()
        self.dialling: asyncio.Task[None] | None = None
        self.handling: asyncio.Task[None] | None = None
        self.wraps: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.listening: Listening | None = None  # for what comes to `via`, once it is claimed
        self.stubs: OrderedDict[str, None] = OrderedDict()  # of theirs, newest last
        self.used_at = 0.0
        self.attempt = 0  # which set-up
        self.is_lost = False
        self.lost_at = 0.0
        self.has_redial = False
        self._owner = owner
        self._timers = timers
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
        """Something happened to the connection."""
        table = REQUESTER if self.is_requester else HANDLER
        state = after(table, self.state, event)
        if state is not self.state:
            self.state, self.desc = state, desc
            if state is not State.ENDED:
                self._owner.tell_status(self, desc)

    @property
    def is_on_channel(self) -> bool:
        """Whether what is sent does not simply go through the node."""
        return self.link.way is not Way.NODE

    def is_needed(self) -> bool:
        """Whether it must not be forgotten: something is under way, or about to be."""
        is_busy = self.state in (State.CREATED, State.IN_PROGRESS, State.LIVE)
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
        """Send a message in its turn."""
        self.used_at = now = asyncio.get_running_loop().time()
        self.link.send(message, size, now, is_for_node)
        self._arm()

    def fence_again(self, address: str) -> None:
        """Let nothing overtake what went to an address through the node while this was open."""
        if isinstance(self.link, Link):  # the field knows no fences
            self._do(partial(self.link.fence_again, address))

    def proceed(self) -> None:
        """Deliver what waited for a check."""
        self._do(self.link.proceed)

    def answered(self, method: str, params: dict[str, Any], received: int | None) -> None:
        """The other stub has answered, or refused (None)."""
        now = asyncio.get_running_loop().time()
        self.link.answered(method, params, received, now)
        self._arm()

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

    def wrap(self, key: tuple[str, str]) -> None:
        """The request came on the channel: the node does not expect the answer."""
        self.wraps[key] = None
        if len(self.wraps) > MAX_WRAPS:
            self.wraps.popitem(last=False)

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
        rtc = self._rtc
        if rtc is not None:
            rtc.close()
        return rtc

    # --- Outlet of the link -----------------------------------------------------------------------

    def to_channel(self, frame: str | bytes) -> None:
        """Hand a frame to the channel."""
        if self._rtc is not None:
            self._rtc.send(frame)

    def has_room(self) -> bool:
        """Whether the channel's buffer takes another frame."""
        return self._rtc is not None and self._rtc.has_room()

    def to_node(self, message: Message) -> None:
        """Send a message through the node."""
        self._owner.through_node(self, message)

    def ask(self, method: str, params: dict[str, Any]) -> None:
        """Ask the other stub through the node."""
        self._owner.ask(self, method, params)

    def take(self, message: Message) -> bool:
        """Deliver a message of the channel."""
        return self._owner.take(self, message)

    def refuse(self, message: Message, code: int, text: str) -> None:
        """Tell the sender that his message does not go out."""
        self._owner.refuse(message, code, text)

    def is_awaited(self, message: Message) -> bool:
        """Whether somebody here waits for the answer to a message."""
        return self._owner.is_awaited(message)

    def close(self, reason: str) -> None:
        """Close the channel."""
        if self._is_replacing:
            return
        rtc, self._rtc = self._rtc, None
        if rtc is not None:
            rtc.close()
        events = {"idle": Event.IDLE, "forbidden": Event.FORBIDDEN}
        event = events.get(reason, Event.LOST)
        if self.state is State.LIVE:
            self.enter(event, reason)
            self._owner.lost(self, event)


# The remote runtimes that a runtime knows: bounded in number and time. Pure.
#
# Rules
# - One that was not used for a while is forgotten; one with a channel, a set-up, or messages that
#   have not arrived, is not. Neither is one whose channel has just ended: what was asked on it is
#   still answered, and the other side may still say how far it came.
# - Where there are too many, the one that was unused longest goes. If none may go, nobody new is
#   known: there is no channel then, and messages go through the node.
# - Two tabs may share a runtime URL: each is an instance, has a handler and a connection of its
#   own.
#   What is for a hyperty goes to the tab whose handler its registration names; what names none goes
#   to the one that came last, as at the node.
# - A stub of the other side belongs to one runtime, which has so many of them at most as there are
#   epochs that are remembered.


class StubTaken(Exception):
    """The stub is another runtime's."""


class KnownPeers:
    """The peers of one runtime.

    Args:
        gone: called with each peer that is forgotten.
    """

    def __init__(self, timers: P2PTimers, gone: Callable[[Peer], None]) -> None:
        self.by_runtime: OrderedDict[str, Peer] = OrderedDict()
        self._timers = timers
        self._gone = gone
        self._by_via: dict[str, Peer] = {}
        self._by_stub: dict[str, Peer] = {}

    def __len__(self) -> int:
        return len(self.by_runtime)

    def of(self, runtime: str, handler: str = "") -> Peer | None:
        """The peer of a runtime URL, in either spelling; with a handler, the tab that has it."""
        last = self.by_runtime.get(plain(runtime))
        if last is None or not handler or last.handler in ("", handler):
            return last
        return next((each for each in self.all_of(runtime) if each.handler == handler), None)

    def to_dial(self, runtime: str, handler: str) -> Peer | None:
        """The peer to dial for a handler; None if its runtime is known by others, in use."""
        known = self.of(runtime, handler)
        last = self.of(runtime)
        if known is not None or last is None:
            return known
        if not _is_busy(last):
            return last  # it has started again
        self._set_aside(last)
        return None

    def has_channel(self) -> bool:
        """Whether a channel is in use with any."""
        return any(each.is_on_channel for each in self.by_runtime.values())

    def of_via(self, via: str) -> Peer | None:
        """The peer whose channel messages are marked so."""
        return self._by_via.get(via)

    def of_stub(self, stub: str) -> Peer | None:
        """The peer that has this stub."""
        return self._by_stub.get(stub)

    def add(self, peer: Peer, now: float) -> bool:
        """Know a peer from now on; False if there are too many that may not be forgotten."""
        if len(self) >= self._timers.peers and not self._make_room(now):
            return False
        self.by_runtime[plain(peer.runtime)] = peer
        self._by_via[peer.via] = peer
        peer.used_at = now
        return True

    def instance(self, runtime: str, instance: str, handler: str = "") -> Peer | None:
        """The peer for an instance of a runtime: its own, or one whose channel has ended.

        Who talks with another instance, or is being invited by it, is set aside for it. One that
        has not said which instance it is, is the one that has its handler.
        """
        key = plain(runtime)
        known = self.by_runtime.get(key)

        def is_it(each: Peer) -> bool:
            if each.instance:
                return each.instance == instance
            return handler in ("", each.handler)

        if known is None or not instance or is_it(known):
            return known
        every = self.all_of(runtime)
        own = next((each for each in every if each.instance == instance), None)
        own = own or next(filter(is_it, every), None)
        if own is None and not _is_busy(known):
            return known  # it has started again
        self._set_aside(known)
        if own is not None:
            del self.by_runtime[f"{key}#{own.via}"]
            self.by_runtime[key] = own
        return own

    def _set_aside(self, peer: Peer) -> None:
        key = plain(peer.runtime)
        del self.by_runtime[key]
        self.by_runtime[f"{key}#{peer.via}"] = peer

    def all_of(self, runtime: str) -> list[Peer]:
        """The peers of all instances of a runtime."""
        return [each for each in self.by_runtime.values() if plain(each.runtime) == plain(runtime)]

    def signals(self, peer: Peer, stub: str) -> None:
        """A peer's connection is signalled with this stub. Raises StubTaken."""
        if self._by_stub.setdefault(stub, peer) is not peer:
            raise StubTaken(f"{stub} is another runtime's.")
        peer.stubs[stub] = None
        peer.stubs.move_to_end(stub)
        if len(peer.stubs) > self._timers.keep_epochs + 1:
            del self._by_stub[peer.stubs.popitem(last=False)[0]]

    def forget_unused(self, now: float) -> None:
        """Forget who was not used for long."""
        for peer in list(self.by_runtime.values()):
            if now - peer.used_at >= self._timers.forget and self._may_go(peer, now):
                self._forget(peer)

    def _make_room(self, now: float) -> bool:
        may_go = [each for each in self.by_runtime.values() if self._may_go(each, now)]
        if may_go:
            self._forget(min(may_go, key=lambda each: each.used_at))
        return bool(may_go)

    def _may_go(self, peer: Peer, now: float) -> bool:
        has_talked = bool(peer.link.epoch)
        is_settled = not has_talked or now - peer.used_at >= self._timers.linger
        return is_settled and not peer.is_needed()

    def _forget(self, peer: Peer) -> None:
        key = plain(peer.runtime)
        if self.by_runtime.get(key) is not peer:
            key = f"{key}#{peer.via}"
        del self.by_runtime[key]
        del self._by_via[peer.via]
        for stub in peer.stubs:
            del self._by_stub[stub]
        self._gone(peer)


def _is_busy(peer: Peer) -> bool:
    is_in_use = peer.link.is_open or peer.is_on_channel
    return is_in_use or peer.handling is not None or peer.dialling is not None


def plain(runtime: str) -> str:
    """A runtime URL in the spelling that it is known by here."""
    return runtime.removeprefix("hyperty-")
