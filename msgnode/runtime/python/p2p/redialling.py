"""Dialling lost connections again.

Rules
- Who had set a connection up dials again when it is lost; not when it ended because nobody used it,
  or nobody may.
- A try that fails is followed by the next when the other side need not be left alone any more,
  until there is a channel again, for ten minutes, and at most six times in these. After a refusal
  (403, 501) there is no other.
- A set-up that a message asked for, and that failed, is a later message's to ask for again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from .peer import Peer
from .states import NO_RETURN, Event

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
