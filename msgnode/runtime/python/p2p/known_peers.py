"""The remote runtimes that a runtime knows: bounded in number and time. Pure.

Rules
- One that was not used for a while is forgotten; one with a channel, a set-up, or messages that
  have not arrived, is not. Neither is one whose channel has just ended: what was asked on it is
  still answered, and the other side may still say how far it came.
- Where there are too many, the one that was unused longest goes. If none may go, nobody new is
  known: there is no channel then, and messages go through the node.
- Two tabs may share a runtime URL: each is an instance, has a handler and a connection of its own.
  What is for a hyperty goes to the tab whose handler its registration names; what names none goes
  to the one that came last, as at the node.
- A stub of the other side belongs to one runtime, which has so many of them at most as there are
  epochs that are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from .peer import Peer
from .settings import P2PTimers


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
