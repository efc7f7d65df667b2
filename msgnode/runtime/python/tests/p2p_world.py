"""Two links, a node between them and a channel that does what a test wants of it.

The node keeps the order of each direction and loses nothing. The channel keeps it too, until it is
cut (packets vanish, nobody is told), closed (both are told), or made to repeat or swap frames.
Times are in milliseconds; a seed has the same run as in JavaScript (js/tests/p2p-world.mjs).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p.link import Link, Way
from msgnode.runtime.python.p2p.settings import P2PTimers

FULL = 64 * 1024
WORDS = {"heldSize": "held_size", "inboxSize": "inbox_size"}


def milliseconds(**timers: int) -> P2PTimers:
    """The timers, in the unit of the shared cases."""
    found: dict[str, Any] = {
        each.name: each.default * 1000 if isinstance(each.default, float) else each.default
        for each in fields(P2PTimers)
    }
    return P2PTimers(**found | {WORDS.get(name, name): value for name, value in timers.items()})


def random_of(seed: int) -> Callable[[], float]:
    """Random numbers below 1 that are the same with each run (mulberry32)."""
    state = seed & 0xFFFFFFFF

    def times(one: int, other: int) -> int:
        return one * other & 0xFFFFFFFF

    def next_() -> float:
        nonlocal state
        state = (state + 0x6D2B79F5) & 0xFFFFFFFF
        mixed = times(state ^ (state >> 15), state | 1)
        mixed ^= (mixed + times(mixed ^ (mixed >> 7), mixed | 61)) & 0xFFFFFFFF
        return (mixed ^ (mixed >> 14)) / 4294967296

    return next_


class Side:
    """One runtime: its link, and what arrived."""

    def __init__(self, world: World, timers: P2PTimers) -> None:
        self.world = world
        self.link = Link(self, timers)
        self.other: Side
        self.node: deque[Any] = deque()  # on its way from here, through the node
        self.held: list[Any] = []
        self.channel: deque[str | bytes] = deque()
        self.arrived: list[Any] = []
        self.refused: list[list[Any]] = []
        self.by = {"node": 0, "channel": 0}
        self.said = 0  # numbers
        self.longest: str | None = None  # text that arrived
        self.is_slow = False  # its checks take time
        self.is_full: bool | None = None  # None: as the channel is filled
        self.most_in_channel = 0

    # --- Outlet -----------------------------------------------------------------------------------

    def to_channel(self, frame: str | bytes) -> None:
        if self.world.is_up and not self.world.is_cut:
            self.channel.append(frame)
            self.most_in_channel = max(self.most_in_channel, sum(map(len, self.channel)))

    def has_room(self) -> bool:
        return sum(map(len, self.channel)) < FULL if self.is_full is None else not self.is_full

    def to_node(self, message: Message) -> None:
        self.node.append(("message", message))

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self.node.append((method, params))

    def take(self, message: Message) -> bool:
        if self.is_slow and self.world.random() < 0.5:
            return False
        self.longest = self.longest or message.get("text")
        self.arrived.append(message["id"])
        self.by["channel"] += 1
        return True

    def refuse(self, message: Message, code: int, text: str) -> None:
        self.refused.append([message["id"], code])

    def is_awaited(self, message: Message) -> bool:
        return False

    def close(self, reason: str) -> None:
        self.world.closed_by(self)

    # --- what the world does with it --------------------------------------------------------------

    def say(self, count: int = 1) -> None:
        for _ in range(count):
            self.said += 1
            self.send({"id": self.said - 1, "type": "create"})

    def send(self, message: Message, is_for_node: bool = False, size: int = 100) -> None:
        self.link.send(message, size, self.world.now, is_for_node)

    def node_step(self) -> None:
        """The node delivers one thing of this side to the other."""
        kind, what = self.node.popleft()
        link = self.other.link
        if kind == "message":
            self.other.arrived.append(what["id"])
            self.other.by["node"] += 1
        elif kind == "answer":
            method, params, received = what
            self.other.link.answered(method, params, received, self.world.now)
        else:
            if kind == "fence":
                received = 0 if link.fence_asked(what["epoch"], what["k"]) else None
            else:
                received = link.resume_asked(what["epoch"], what["received"], what.get("bye"))
            self.other.node.append(("answer", (kind, what, received)))

    def channel_step(self) -> None:
        """The channel delivers one frame of this side to the other."""
        self.other.link.frame(self.channel.popleft(), self.world.now)
        self.link.pump(self.world.now)


class World:
    """Both sides, and time."""

    def __init__(self, seed: int = 1, timers: P2PTimers | None = None) -> None:
        self.random = random_of(seed)
        self.now: float = 0
        self.mark: float = 0
        self.is_up = self.is_cut = False
        self.epochs = 0
        timers = timers or milliseconds()
        self.a, self.b = Side(self, timers), Side(self, timers)
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
        for side in self._either_order():
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
            self._to_tell = self._either_order()

    def closed_by(self, side: Side) -> None:
        """One side closes it; what it has sent still arrives."""
        if self.is_up:
            self.is_up = False
            self._to_tell.append(side.other)

    # --- steps ------------------------------------------------------------------------------------

    def step_node(self) -> bool:
        ready = [side for side in self.sides if side.node]
        if ready:
            self._one(ready).node_step()
        return bool(ready)

    def step_channel(self) -> bool:
        ready = [side for side in self.sides if side.channel]
        if ready:
            self._one(ready).channel_step()
        return bool(ready)

    def step_told(self) -> bool:
        if not self._to_tell:
            return False
        self._to_tell.pop().link.lost("closed", self.now)
        return True

    def step_checked(self) -> bool:
        ready = [side for side in self.sides if side.is_slow and side.link.has_waiting()]
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
        first = int(self.random() * 4)
        return any(step() for step in steps[first:] + steps[:first])

    def any(self, ways: tuple[str, ...]) -> bool:
        """The first of these happens that can: "node", "channel", "step" or "tick"."""
        steps = {"node": self.step_node, "channel": self.step_channel}
        return any({**steps, "step": self.step, "tick": self.tick}[way]() for way in ways)

    def settle(self, limit: int = 200_000) -> None:
        """Let everything happen that is under way, and pass time until no message waits."""
        for _ in range(limit):
            if self.step():
                continue
            if all(side.link.is_quiet() for side in self.sides):
                return
            assert self.tick(), "something waits for ever"
        raise AssertionError("the world does not come to rest")

    def _one(self, sides: list[Side]) -> Side:
        return sides[int(self.random() * len(sides))]

    def _either_order(self) -> list[Side]:
        return [self.a, self.b] if self.random() < 0.5 else [self.b, self.a]


def text_of(length: int) -> str:
    return ("ü🙂" * length)[:length]


class Play:
    """What the steps of a case do; see p2p-cases.jsonl. `mark` is when time is counted from."""

    def __init__(self, seed: int = 1, timers: dict[str, int] | None = None) -> None:
        self.world = World(seed, milliseconds(**timers or {}))
        self.of = {"a": self.world.a, "b": self.world.b}

    def steps(self, steps: list[list[Any]]) -> None:
        for act, *words in steps:
            name = re.sub("([A-Z])", r"_\1", act).lower()
            if hasattr(self, f"do_{name}"):
                getattr(self, f"do_{name}")(*words)
            else:
                getattr(self.world, act)()

    def do_live(self) -> None:
        assert self.world.open()
        self.world.settle()
        assert self.world.a.link.way is self.world.b.link.way is Way.CHANNEL
        self.do_mark()

    def do_open(self) -> None:
        assert self.world.open()

    def do_again(self) -> None:
        self.world.epochs -= 1

    def do_node(self) -> None:
        while self.world.step_node():
            pass

    def do_channel(self) -> None:
        while self.world.step_channel():
            pass

    def do_step(self, count: int) -> None:
        for _ in range(count):
            self.world.step()

    def do_loop(self, count: int, *ways: str) -> None:
        for _ in range(count):
            assert self.world.any(ways)

    def do_until(self, side: str, way: str, *ways: str) -> None:
        while self.of[side].link.way != way:
            assert self.world.any(ways), "nothing happens any more"

    def do_pass(self, milliseconds: int) -> None:
        self.world.now += milliseconds
        self.world.a.link.tick(self.world.now)

    def do_mark(self) -> None:
        self.world.mark = self.world.now

    def do_now(self, least: int, most: int) -> None:
        assert least <= self.world.now - self.world.mark <= most

    def do_say(self, side: str, count: int) -> None:
        self.of[side].say(count)

    def do_burst(self, side: str, count: int, _: int) -> None:
        for number in range(count):
            self.of[side].say()
            if number % 3:
                self.world.step()

    def do_send(self, side: str, message: Message, is_for_node: bool = False) -> None:
        self.of[side].send(message, is_for_node)

    def do_by_node(self, side: str, id_: int, to: str) -> None:
        self.of[side].to_node({"id": id_, "type": "create", "to": to})

    def do_long(self, side: str, length: int) -> None:
        self.of[side].said += 1
        message = {"id": self.of[side].said - 1, "type": "create", "text": text_of(length)}
        self.of[side].send(message, False, length)

    def do_is_long(self, side: str, length: int) -> None:
        assert self.of[side].longest == text_of(length)

    def do_many(self, side: str, count: int, size: int) -> None:
        for number in range(count):
            self.of[side].send({"id": number, "text": "x" * size}, False, size)

    def do_most_in_channel(self, side: str, most: int) -> None:
        assert self.of[side].most_in_channel <= most

    def do_room(self, side: str) -> None:
        self.of[side].is_full = False

    def do_frame(self, side: str, text: object) -> None:
        self.of[side].link.frame(text, self.world.now)

    def do_bytes(self, side: str, size: int) -> None:
        self.do_frame(side, "abcdefghijkl".encode("utf-16-le") + size * b"x")

    def do_fence_again(self, side: str, address: str) -> None:
        self.of[side].link.fence_again(address, self.world.now)

    def do_resume(self, side: str, received: int) -> None:
        link = self.of[side].link
        assert link.resume_asked(link.epoch, received) is not None

    def do_restart(self, side: str) -> None:
        self.of[side].link = Link(self.of[side], milliseconds())

    def do_bye(self, side: str) -> None:
        self.of[side].link.bye("closing", self.world.now)

    def do_lose(self, side: str) -> None:
        self.of[side].channel.clear()

    def do_hold(self, side: str) -> None:
        self.of[side].held = list(self.of[side].node)
        self.of[side].node.clear()

    def do_release(self, side: str) -> None:
        self.of[side].node.extendleft(reversed(self.of[side].held))

    def do_all(self) -> None:
        self.world.settle()
        for side in self.world.sides:
            assert side.arrived == list(range(side.other.said))
            assert side.refused == []

    def do_resent(self) -> None:
        assert self.world.a.link.resent + self.world.b.link.resent > 0

    def do_is(self, side: str, expected: dict[str, Any]) -> None:
        assert {name: self._value(side, name) for name in expected} == expected

    def do_is_not(self, side: str, _: str, values: list[int]) -> None:
        assert not set(values) & set(self.of[side].arrived)

    def do_in_order(self, side: str, ids: list[int]) -> None:
        assert [each for each in self.of[side].arrived if each in ids] == ids

    def do_lost_or_arrived(self, side: str, count: int) -> None:
        refused, arrived = self.of[side].refused, self.of[side].other.arrived
        assert refused and {code for _, code in refused} == {503}
        assert len(arrived) == len(set(arrived)), "nothing twice"
        assert len({each for each, _ in refused} | set(arrived)) == count

    def _value(self, name: str, what: str) -> Any:
        side = self.of[name]
        if what == "atNode":
            return [said["id"] for kind, said in side.node if kind == "message"]
        found = {
            "sorted": lambda: sorted(side.arrived),
            "channel": lambda: len(side.channel),
            "isOpen": lambda: side.link.is_open,
            "unacknowledged": lambda: side.link.unacknowledged,
            "endedEpochs": lambda: side.link.ended_epochs,
            "faults": lambda: side.link.faults,
            "way": lambda: str(side.link.way),
        }
        return found[what]() if what in found else getattr(side, what)


def talk(seed: int) -> World:
    """Rounds of talk over channels that end in every way, the same ones in both languages."""
    random, play = random_of(seed + 1000), Play(seed)
    world = play.world
    world.b.is_slow = seed % 2 == 1

    def below(most: int) -> int:
        return int(random() * most)

    def either() -> Side:
        return world.sides[below(2)]

    def late() -> None:
        play.do_node()  # a node that takes longer than a resume may loses what it says
        world.tick()

    def repeat() -> None:
        for side in world.sides:
            if side.channel:
                side.channel.appendleft(side.channel[0])

    def swap() -> None:
        for side in world.sides:
            side.channel.reverse()

    def bye() -> None:
        either().link.bye("closing", world.now)

    ends = [world.cut, world.close, bye, repeat, swap, late]
    for _ in range(below(6)):
        either().say(below(50))
        world.open()
        play.do_step(below(150))
        for side in world.sides:
            side.say(below(50))
        play.do_step(below(150))
        ends[below(len(ends))]()
        either().say(below(50))
        play.do_step(below(50))
        ends[below(len(ends))]()
    play.do_all()
    return world
