"""One run: workers, runtimes, and what is broken when. Drawn from a seed; what is broken can be
given, so that a run that failed can be tried with less."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import oracle
from .database import THERE
from .prepare import CHANCE, empty_database
from .runtimes import Crowd
from .workers import Site, WorkerProcess
from .world import World

BROKEN_FOR = 32.0
"""Seconds in which things are broken."""
HEALED = 20.0
QUIET = 10.0
"""Seconds after which all is well again, and then without new messages nothing is under way any
more: the promise is a minute, with leases ten times as long. A run goes on as soon as that is so,
but not before so many have passed that what comes late is seen, too:"""
AT_LEAST = 5.0


class Fault(NamedTuple):
    """Something that is broken at a time: a worker by its number, for so many seconds."""

    at: float
    kind: str
    worker: int
    seconds: float

    def __str__(self) -> str:
        return f"Fault({self.at:.2f}, {self.kind!r}, {self.worker}, {self.seconds:.2f})"


class Outcome(NamedTuple):
    """What a run came to."""

    problems: list[str]
    notes: list[str]
    turns: int
    messages: int


def faults_of(seed: int) -> list[Fault]:
    """What a seed breaks: one in five seeds breaks two things together that are seldom so."""
    chance = random.Random(f"together of {seed}")
    if chance.random() < 0.2:
        return _together(chance)
    chance = random.Random(f"faults of {seed}")
    kinds = chance.sample(sorted(KINDS), chance.randint(1, 4))
    hit = chance.randrange(4)  # most faults are of one worker
    return sorted(
        Fault(
            round(chance.uniform(4.0, BROKEN_FOR - 10), 2),
            chance.choice(kinds),
            hit if chance.random() < 0.6 else chance.randrange(4),
            chance.choice((0.3, 1.0, 2.5, 4.5, 8.0, 12.0)),
        )
        for _ in range(chance.randint(1, 6))
    )


def _together(chance: random.Random) -> list[Fault]:
    first, second = chance.choice(TOGETHER)
    at, worker = chance.uniform(4.0, BROKEN_FOR - 12), chance.randrange(4)
    faults = [
        Fault(round(at, 2), first, worker, chance.choice((8.0, 12.0))),
        Fault(round(at + chance.uniform(0.1, 2.0), 2), second, worker, chance.choice((4.5, 8.0))),
    ]
    if chance.random() < 0.3:
        other = chance.choice(sorted(KINDS))
        faults.append(Fault(round(at + 1.0, 2), other, chance.randrange(4), 2.5))
    return sorted(faults)


def single_fault(seed: int) -> list[Fault]:
    """One fault, of each kind in turn."""
    chance = random.Random(f"fault of {seed}")
    kind = sorted(KINDS)[seed % len(KINDS)]
    return [
        Fault(round(chance.uniform(4.0, 15.0), 2), kind, seed % 4, chance.choice((1.0, 4.5, 8.0)))
    ]


def run(seed: int, faults: Sequence[Fault] | None = None, seconds: float = BROKEN_FOR) -> Outcome:
    """Run a seed; `faults` instead of those that it draws."""
    chance = random.Random(f"world of {seed}")
    CHANCE.seed(seed)
    empty_database()
    world = World(seed)
    site = Site(world)
    THERE[:] = [site.database]
    number = chance.choice((2, 2, 3, 3, 4))
    same_host = chance.random() < 0.5
    for n in range(number):
        WorkerProcess(site, f"w{n}", "host" if same_host else f"host{n}").start()
    crowd = Crowd(site, chance.randint(3, 6), seed)
    planned = faults_of(seed) if faults is None else faults
    for fault in planned:
        _plan(crowd, fault)
    oracle.begin(crowd)
    try:
        world.run(seconds)
        _mend(crowd)
        oracle.run_until(crowd, lambda: oracle.is_healed(crowd), AT_LEAST, HEALED)
        crowd.is_quiet = True
        oracle.run_until(crowd, lambda: not oracle.judge(crowd), AT_LEAST, QUIET)
        problems = [*oracle.serves_all(crowd), *oracle.is_settled(crowd), *oracle.judge(crowd)]
        problems += world.faults
        if {each.kind for each in planned} == {_UNREAD}:
            problems += crowd.hasty
    finally:
        for each in tuple(world.machines):
            each.kill()
        THERE.clear()
    return Outcome(problems, world.notes, world.turns, len(crowd.sent))


def _plan(crowd: Crowd, fault: Fault) -> None:
    site, world = crowd.site, crowd.world
    worker = site.workers[fault.worker % len(site.workers)]
    begin, end = KINDS[fault.kind]
    runtime = crowd.runtimes[fault.worker % len(crowd.runtimes)]
    target: Any = runtime if _is_of_runtimes(fault.kind) else worker

    def begins() -> None:
        world.note(f"{fault.kind} {target if target is runtime else worker.name}")
        begin(site, target)

    def ends() -> None:
        world.note(f"no more {fault.kind}")
        end(site, target)

    world.after(fault.at, begins)
    world.after(fault.at + fault.seconds, ends)


def _is_of_runtimes(kind: str) -> bool:
    return kind.startswith(("runtime", "session"))


def _mend(crowd: Crowd) -> None:
    for kind, (_, end) in KINDS.items():
        for target in crowd.runtimes if _is_of_runtimes(kind) else crowd.site.workers:
            end(crowd.site, target)
    crowd.site.database.commits_to_lose.clear()


# --- what can be broken ---------------------------------------------------------------------------
Step = Callable[[Site, Any], object]


def _nothing(site: Site, target: Any) -> None:
    """It ends by itself."""


def _wire(which: Sequence[int], name: str) -> Step:
    def step(site: Site, worker: WorkerProcess) -> None:
        if worker.machine is not None:
            wires = site.redis.wires_of(worker.machine)
            for each in which:
                getattr(wires[each], name)()

    return step


def _cut_database(site: Site, worker: WorkerProcess) -> None:
    if worker.machine is not None:
        site.database.cut.add(worker.machine.pid)


def _set(what: str, name: str, value: Any) -> Step:
    return lambda site, worker: setattr(getattr(site, what), name, value)


def _start_redis(keeps_data: bool) -> Step:
    def step(site: Site, worker: WorkerProcess) -> None:
        if not site.redis.is_up:
            site.redis.start(keeps_data)

    return step


def _slow(seconds: float) -> Step:
    def step(site: Site, worker: WorkerProcess) -> None:
        for each in site.redis.wires.values():
            each[1].slowness = seconds

    return step


def _far(seconds: float) -> Step:
    def step(site: Site, worker: WorkerProcess) -> None:
        if worker.machine is not None:
            site.redis.wires_of(worker.machine)[1].slowness = seconds

    return step


def _jump(seconds: float) -> Step:
    def step(site: Site, worker: WorkerProcess) -> None:
        if worker.machine is not None:
            worker.machine.wall_skew += seconds

    return step


_UNREAD = "runtime does not read"

KINDS: dict[str, tuple[Step, Step]] = {
    "freeze": (lambda site, worker: worker.freeze(), lambda site, worker: worker.thaw()),
    "kill": (lambda site, worker: worker.kill_and_restart(), _nothing),
    "stop": (lambda site, worker: worker.stop(), _nothing),
    "redis cut": (_wire((0, 1), "cut"), _wire((0, 1), "mend")),
    "redis cut to": (_wire((0,), "cut"), _wire((0,), "mend")),
    "redis cut from": (_wire((1,), "cut"), _wire((1,), "mend")),
    "redis restarts": (lambda site, worker: site.redis.stop(), _start_redis(True)),
    "redis comes back empty": (lambda site, worker: site.redis.stop(), _start_redis(False)),
    "redis is full": (_set("redis", "is_full", True), _set("redis", "is_full", False)),
    "redis is slow": (_slow(0.2), _slow(0.0)),
    "redis is frozen": (
        _set("redis", "is_frozen", True), lambda site, worker: site.redis.thaw()
    ),
    "database cut": (_cut_database, lambda site, worker: site.database.cut.clear()),
    "database is away": (_set("database", "is_up", False), _set("database", "is_up", True)),
    "database is slow": (_set("database", "slowness", 0.4), _set("database", "slowness", 0.0)),
    "commit without answer": (
        lambda site, worker: site.database.commits_to_lose.append("done"), _nothing
    ),
    "commit refused": (
        lambda site, worker: site.database.commits_to_lose.append("refused"), _nothing
    ),
    "clock jumps": (_jump(3600.0), _jump(-7200.0)),
    "runtime leaves": (lambda site, runtime: runtime.leave(False), _nothing),
    "runtime is silent": (lambda site, runtime: runtime.leave(True), _nothing),
    "runtime comes twice": (
        lambda site, runtime: runtime.move_about(), lambda site, runtime: runtime.stay()
    ),
    _UNREAD: (
        lambda site, runtime: runtime.stop_reading(), lambda site, runtime: runtime.read_on()
    ),
    "runtime is banned": (
        lambda site, runtime: runtime.ban(), lambda site, runtime: runtime.lift_ban()
    ),
    "session is ended": (lambda site, runtime: runtime.end_session(), _nothing),
    "worker is far off": (_far(0.2), _far(0.0)),
}  # fmt: skip
"""What can be broken, and how it is mended."""

TOGETHER = (
    ("database is slow", "freeze"),  # while a renewal, or another transaction, is under way
    ("worker is far off", "runtime comes twice"),
    ("clock jumps", "freeze"),
    ("runtime does not read", "worker is far off"),
    ("runtime comes twice", "session is ended"),
    ("runtime comes twice", "runtime is banned"),
)
"""What is broken at one time, so that what lies between two moments of it is met."""
