"""Two links, a node between them and a channel that does what a test wants of it.

The node keeps the order of each direction and loses nothing. The channel keeps it too, until it is
cut (packets vanish, nobody is told), closed (both are told), or made to repeat or swap frames.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p.link import Link, Way
from msgnode.runtime.python.p2p.settings import P2PTimers

FULL = 64 * 1024


class Side:
    """One runtime: its link, and what arrived."""

    def __init__(self, world: World, name: str, timers: P2PTimers) -> None:
        self.world = world
        self.name = name
        self.link = Link(self, timers)
        self.other: Side
        self.to_node_queue: deque[Any] = deque()
        self.channel: deque[str | bytes] = deque()  # on its way from here to the other side
        self.arrived: list[Any] = []
        self.refused: list[tuple[Any, int]] = []
        self.by: dict[str, int] = {"node": 0, "channel": 0}
        self.is_slow = False  # its checks take time
        self.most_in_channel = 0

    # --- Outlet -----------------------------------------------------------------------------------

    def to_channel(self, frame: str | bytes) -> None:
        if self.world.is_up and not self.world.is_cut:
            self.channel.append(frame)
            self.most_in_channel = max(self.most_in_channel, sum(map(len, self.channel)))

    def has_room(self) -> bool:
        return sum(map(len, self.channel)) < FULL

    def to_node(self, message: Message) -> None:
        self.to_node_queue.append(("message", message))

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self.to_node_queue.append((method, params))

    def take(self, message: Message) -> bool:
        if self.is_slow and self.world.random.random() < 0.5:
            return False
        self.arrived.append(message["id"])
        self.by["channel"] += 1
        return True

    def refuse(self, message: Message, code: int, text: str) -> None:
        self.refused.append((message["id"], code))

    def is_awaited(self, message: dict[str, Any]) -> bool:
        return False

    def close(self, reason: str) -> None:
        self.world.closed_by(self)

    # --- what the world does with it --------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Whether no message waits here."""
        return self.link.is_quiet()

    def say(self, number: int, size: int = 100, to: str = "") -> None:
        named = {"to": to} if to else {}
        self.link.send({"id": number, "type": "create", **named}, size, self.world.now)

    def say_by_node(self, number: int, to: str) -> None:
        """Say something to an address of which it is not known that it is at the other side."""
        self.to_node({"id": number, "type": "create", "to": to})

    def node_step(self) -> None:
        """The node delivers one thing of this side to the other."""
        kind, what = self.to_node_queue.popleft()
        link, now = self.other.link, self.world.now
        if kind == "message":
            self.other.arrived.append(what["id"])
            self.other.by["node"] += 1
        elif kind == "fence":
            is_known = link.fence_asked(what["epoch"], what["k"])
            answer = ("fence", what, 0 if is_known else None)
            self.other.to_node_queue.append(("answer", answer))
        elif kind == "resume":
            received = link.resume_asked(what["epoch"], what["received"], what.get("bye"))
            self.other.to_node_queue.append(("answer", ("resume", what, received)))
        elif kind == "answer":
            method, params, received = what
            link.answered(method, params, received, now)

    def channel_step(self) -> None:
        """The channel delivers one frame of this side to the other."""
        self.other.link.frame(self.channel.popleft(), self.world.now)
        self.link.pump(self.world.now)


class World:
    """Both sides, and time."""

    def __init__(self, seed: int = 0, timers: P2PTimers | None = None) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.is_up = self.is_cut = False
        self.epochs = 0
        timers = timers or P2PTimers()
        self.a, self.b = Side(self, "a", timers), Side(self, "b", timers)
        self.a.other, self.b.other = self.b, self.a
        self.sides = (self.a, self.b)
        self._to_tell: list[Side] = []

    def open(self) -> bool:
        """Set up a new channel, as soon as the requester may."""
        if self.is_up or self.a.link.way is not Way.NODE or self.a.link.is_open:
            return False
        while self.b.link.is_open or self.b.link.way is not Way.NODE:
            if not self.step_node() and not self.tick():
                return False
        self.epochs += 1
        self.is_up, self.is_cut = True, False
        self._to_tell.clear()
        for side in self.sides:
            side.channel.clear()
        for side in self.random.sample(self.sides, 2):
            side.link.opened(f"epoch {self.epochs}", self.now)
        return True

    def cut(self) -> None:
        """Every packet vanishes, in both directions, and nobody is told."""
        self.is_cut = True
        for side in self.sides:
            side.channel.clear()

    def close(self) -> None:
        """The channel breaks: what is under way is lost, and both are told, one after the other."""
        if self.is_up:
            self.is_up = False
            for side in self.sides:
                side.channel.clear()
            self._to_tell = self.random.sample(self.sides, 2)

    def closed_by(self, side: Side) -> None:
        """One side closes it; what it has sent still arrives."""
        if self.is_up:
            self.is_up = False
            self._to_tell.append(side.other)

    # --- steps ------------------------------------------------------------------------------------

    def step_node(self) -> bool:
        ready = [side for side in self.sides if side.to_node_queue]
        if ready:
            self.random.choice(ready).node_step()
        return bool(ready)

    def step_channel(self) -> bool:
        ready = [side for side in self.sides if side.channel]
        if ready:
            self.random.choice(ready).channel_step()
        return bool(ready)

    def step_told(self) -> bool:
        if not self._to_tell:
            return False
        self._to_tell.pop().link.lost("closed", self.now)
        return True

    def step_checked(self) -> bool:
        ready = [side for side in self.sides if side.is_slow and side.link._incoming.has_waiting()]
        for side in ready:
            side.link.proceed(self.now)
        return bool(ready)

    def tick(self) -> bool:
        """Go to the moment when something is due."""
        due = [at for side in self.sides if (at := side.link.due()) is not None]
        if not due:
            return False
        self.now = max(self.now, min(due))
        for side in self.sides:
            side.link.tick(self.now)
        return True

    def step(self) -> bool:
        """One thing happens, whichever."""
        steps = [self.step_node, self.step_channel, self.step_told, self.step_checked]
        self.random.shuffle(steps)
        return any(step() for step in steps)

    def settle(self, limit: int = 200_000) -> None:
        """Let everything happen that is under way, and pass time until no message waits."""
        for _ in range(limit):
            if self.step():
                continue
            if all(side.is_quiet() for side in self.sides):
                return
            assert self.tick(), "something waits for ever"
        raise AssertionError("the world does not come to rest")
