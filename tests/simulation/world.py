"""Time, machines, threads and wires of the simulation: nothing here knows what a worker is.

A Machine is the event loop of one process, with a clock of its own. The World has the true time and
lets one machine after another take a turn, the one that is due first. What a process does in
threads it does in greenlets (Thread), which run until they wait; so at any moment one thing runs,
and the same seed gives the same run.

Frozen machines take no turns, and wake with all that has come due. Those that were killed never
take another.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import queue
import random
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import greenlet

TURN = 20e-6
"""Seconds of a turn of an event loop: less than what the product takes for an idle loop."""


EPOCH = 1_800_000_000.0
"""The wall clock when the true time is 0."""


def wall_clock() -> float:
    """What the wall clock of the machine shows that asks."""
    machine = Machine.current
    return EPOCH + (machine.world.now + machine.wall_skew if machine is not None else 0.0)


START = 1_000.0
"""The true time when a run begins."""


class World:
    """The true time, what will happen at some time, and the machines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = START
        self.turns = 0
        self.machines: list[Machine] = []
        self.faults: list[str] = []  # what the product's code should not have raised
        self.notes: list[str] = []  # what happened, for who reads a failure
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something after so many seconds of true time."""
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, call))

    def note(self, text: str, error: BaseException | None = None) -> None:
        """Note what happened, for who reads a failure."""
        trace = "".join(traceback.format_exception(error)[-3:]) if error is not None else ""
        self.notes.append(f"{self.now - START:8.3f} {text} {trace}".rstrip())

    def fault(self, text: str, error: BaseException | None) -> None:
        """Note what the product should not have raised."""
        trace = "".join(traceback.format_exception(error)[-3:]) if error is not None else ""
        self.faults.append(f"{self.now - START:8.3f} {text}: {trace}".rstrip())

    def run(self, seconds: float) -> None:
        """Let so many seconds pass."""
        limit = self.now + seconds
        events = self._events
        while True:
            now = self.now
            machine, due = None, events[0][0] if events else math.inf
            for each in self.machines:
                if each.is_frozen:
                    continue
                at = each._free_at
                if not each._ready and (timer := each.next_timer()) > at:
                    at = timer
                if at < now:
                    at = now
                if at < due:
                    machine, due = each, at
            if due > limit:
                self.now = limit
                return
            if due > now:
                self.now = due
            if machine is not None:
                self.turns += 1
                machine.take_turn()
            else:
                heapq.heappop(events)[2]()


class Machine(asyncio.BaseEventLoop):
    """The event loop of a process.

    Attributes:
        pid, host: of the process.
        skew, rate: its clock shows `skew + rate * true time`.
        wall_skew: and its wall clock so much more.
    """

    current: Machine | None = None

    def __init__(self, world: World, pid: int, host: str, skew: float, rate: float) -> None:
        super().__init__()
        self.world, self.pid, self.host = world, pid, host
        self.skew, self.rate, self.wall_skew = skew, rate, 0.0
        self.is_frozen = self.is_dead = False
        self._free_at = 0.0
        self.network: Callable[..., Any] | None = None
        self.site: Any = None  # what its process shares with others
        self.set_exception_handler(self._note_fault)
        self.set_task_factory(lambda loop, work, **more: Task(work, loop=loop, **more))
        world.machines.append(self)

    # --- the clock --------------------------------------------------------------------------------

    def time(self) -> float:
        return self.skew + self.rate * self.world.now

    def next_timer(self) -> float:
        """The true time at which it has something to do, if nothing comes before."""
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        return (scheduled[0]._when - self.skew) / self.rate if scheduled else math.inf

    def take_turn(self) -> None:
        """Call what is due, as an event loop does in a turn."""
        scheduled, ready = self._scheduled, self._ready
        now = self.time() + 1e-9
        while scheduled and (scheduled[0]._cancelled or scheduled[0]._when <= now):
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                ready.append(timer)
        with self:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:
                        handle._context.run(handle._callback, *handle._args)
                    except Exception as error:
                        self.call_exception_handler({"message": str(handle), "exception": error})
                if self.is_dead:
                    break
        self._free_at = self.world.now + TURN

    def __enter__(self) -> None:
        Machine.current = self
        asyncio._set_running_loop(self)

    def __exit__(self, *_: object) -> None:
        asyncio._set_running_loop(None)
        Machine.current = None

    def kill(self) -> None:
        """End the process at once."""
        self.is_dead = True
        self.world.machines.remove(self)

    def _note_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.world.fault(str(context.get("message")), context.get("exception"))

    # --- what asyncio asks of a loop --------------------------------------------------------------

    get_debug = staticmethod(bool)  # type: ignore[assignment]  # False, and asked for often

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return Future(loop=self)

    def _write_to_self(self) -> None:
        """Nothing has to be woken."""

    def is_running(self) -> bool:
        return Machine.current is self

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        done = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                self.call_soon(_settle, done, done.set_exception, error)
            else:
                self.call_soon(_settle, done, done.set_result, result)

        Thread(target=work).start()
        return done

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any):
        assert self.network is not None
        return await self.network(self, factory)

    async def create_unix_connection(self, factory: Any, path: Any = None, *, sock: Any, **_: Any):
        protocol = factory()
        sock.begin(protocol)
        return sock, protocol

    async def create_unix_server(self, *_: Any, **__: Any) -> Any:
        raise OSError("There are no files of sockets in a simulation.")


_NUMBERS = itertools.count()


class Future(asyncio.Future):  # type: ignore[type-arg]
    """A future whose place in a set does not depend on where it is in memory."""

    def __init__(self, **more: Any) -> None:
        self._number = next(_NUMBERS)
        super().__init__(**more)

    def __hash__(self) -> int:
        return self._number


class Task(asyncio.Task):  # type: ignore[type-arg]
    """A task of which the same is true."""

    def __init__(self, work: Any, **more: Any) -> None:
        self._number = next(_NUMBERS)
        super().__init__(work, **more)

    def __hash__(self) -> int:
        return self._number


def _settle(done: asyncio.Future[Any], how: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        how(outcome)


# --- threads --------------------------------------------------------------------------------------
class Thread:
    """threading.Thread, as a greenlet of the machine that started it."""

    current: Thread | None = None

    def __init__(self, target: Callable[[], None], name: str = "", daemon: bool = True) -> None:
        self._target = target
        self.name = name
        self._ended: list[Thread] = []
        self._is_alive = False
        self._waits = 0

    def start(self) -> None:
        assert Machine.current is not None
        self.machine = Machine.current
        self._greenlet = greenlet.greenlet(self._run)
        self._is_alive = True
        self.machine.call_soon(self._resume, self._waits)

    def is_alive(self) -> bool:
        return self._is_alive

    def join(self, timeout: float | None = None) -> None:
        if self._is_alive:
            self._ended.append(_here())
            _here().wait(timeout)

    def wait(self, seconds: float | None) -> bool:
        """Wait until `wake`; False if the time was up before."""
        self._waits += 1
        if seconds is not None:
            self.machine.call_later(seconds, self._resume, self._waits, False)
        return bool(greenlet.getcurrent().parent.switch())

    def wake(self) -> None:
        self.machine.call_soon(self._resume, self._waits)

    def _run(self, _: object = None) -> None:
        self._target()
        self._is_alive = False
        for each in self._ended:
            each.wake()

    def _resume(self, number: int, is_woken: bool = True) -> None:
        if number != self._waits or self._greenlet.dead:
            return
        self._waits += 1
        self._greenlet.parent = greenlet.getcurrent()
        asyncio._set_running_loop(None)
        Thread.current = self
        try:
            self._greenlet.switch(is_woken)
        finally:
            Thread.current = None
            asyncio._set_running_loop(self.machine)


def _here() -> Thread:
    assert Thread.current is not None, "only threads may wait"
    return Thread.current


def sleep(seconds: float) -> None:
    """time.sleep"""
    _here().wait(seconds)


class SimpleQueue:
    """queue.SimpleQueue, between the event loop and the threads of a machine."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[Thread] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            self._waiting.popleft().wake()

    def get(self, timeout: float | None = None) -> Any:
        while not self._items:
            self._waiting.append(_here())
            if not _here().wait(timeout) and not self._items:
                self._waiting.remove(_here())
                raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


# --- wires ----------------------------------------------------------------------------------------
class Wire:
    """One direction between two places: what is sent arrives later, in order; while it is cut,
    nothing arrives, and afterwards all that was sent before, as with TCP."""

    def __init__(self, world: World, delay: tuple[float, float]) -> None:
        self._world = world
        self._delay = delay
        self._last = 0.0
        self._held: deque[Callable[[], object]] = deque()
        self.is_cut = False
        self.slowness = 0.0

    def send(self, arrives: Callable[[], object]) -> None:
        """Call `arrives` at the other end."""
        if self.is_cut:
            self._held.append(arrives)
            return
        delay = self._world.random.uniform(*self._delay) + self.slowness
        at = max(self._last, self._world.now + delay)
        self._last = at
        self._world.after(at - self._world.now, arrives)

    def cut(self) -> None:
        self.is_cut = True

    def mend(self) -> None:
        self.is_cut = False
        held, self._held = self._held, deque()
        for each in held:
            self.send(each)
