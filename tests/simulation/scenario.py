"""One run: domains, workers, runtimes, and what is broken when. Drawn from a seed; what is broken
can be given, so that a run that failed can be tried with less."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgnode.models import Peer

from . import oracle
from .broker import Lamp
from .devices import Device, NetworkServer, Phone
from .domains import Network, decide
from .prepare import CHANCE
from .runtimes import Crowd
from .workers import Site, WorkerProcess
from .world import World

BROKEN_FOR = 32.0
"""Seconds in which things are broken."""
HEALED, HEALED_ABROAD = 20.0, 60.0
QUIET = 10.0
"""Seconds after which all is well again, and then without new messages nothing is under way any
more: the promise is a minute, with leases ten times as long; what is between domains has its real
times. A run goes on as soon as that is so,
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


def domains_of(seed: int) -> int:
    """How many domains a seed has: one in five has two or three."""
    return 1 if seed % 5 != 2 else 3 if seed % 25 == 2 else 2


def is_by_stubs(seed: int) -> bool:
    """Whether the domains of a seed reach one another by stubs: every second time."""
    return seed % 10 == 7


def device_of(seed: int) -> type[Device] | None:
    """The device in the world of a seed."""
    others: dict[int, type[Device]] = {13: Lamp, 15: Phone}
    return NetworkServer if seed % 10 == 0 else others.get(seed % 20)


def kinds_of(seed: int) -> dict[str, tuple[Step, Step]]:
    """What can be broken in the run of a seed."""
    if domains_of(seed) == 1:
        return {**KINDS, **DEVICE_KINDS} if device_of(seed) else KINDS
    return {**KINDS, **DOMAIN_KINDS, **(STUB_KINDS if is_by_stubs(seed) else {})}


def _pairs_of(seed: int) -> Sequence[tuple[str, str]]:
    if domains_of(seed) == 1:
        return (*TOGETHER, *DEVICE_TOGETHER) if device_of(seed) else TOGETHER
    return (*DOMAINS_TOGETHER, *(STUBS_TOGETHER if is_by_stubs(seed) else ()))


def faults_of(seed: int) -> list[Fault]:
    """What a seed breaks: one in five seeds breaks two things together that are seldom so, and two
    in five of those with several domains."""
    chance = random.Random(f"together of {seed}")
    if chance.random() < (0.2 if domains_of(seed) == 1 else 0.4):
        return _together(chance, seed)
    chance = random.Random(f"faults of {seed}")
    kinds = chance.sample(sorted(kinds_of(seed)), chance.randint(1, 4))
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


def _together(chance: random.Random, seed: int) -> list[Fault]:
    first, second = chance.choice(_pairs_of(seed))
    at, worker = chance.uniform(4.0, BROKEN_FOR - 12), chance.randrange(4)
    later = chance.uniform(2.0, 6.0) if first == _UNREACHABLE else chance.uniform(0.1, 2.0)
    faults = [
        Fault(round(at, 2), first, worker, chance.choice((8.0, 12.0))),
        Fault(round(at + later, 2), second, worker, chance.choice((4.5, 8.0))),
    ]
    if chance.random() < 0.3:
        other = chance.choice(sorted(kinds_of(seed)))
        faults.append(Fault(round(at + 1.0, 2), other, chance.randrange(4), 2.5))
    return sorted(faults)


def single_fault(seed: int) -> list[Fault]:
    """One fault, of each kind in turn."""
    chance = random.Random(f"fault of {seed}")
    kinds = sorted(kinds_of(seed))
    kind = kinds[(seed if domains_of(seed) == 1 else seed // 5) % len(kinds)]
    return [
        Fault(round(chance.uniform(4.0, 15.0), 2), kind, seed % 4, chance.choice((1.0, 4.5, 8.0)))
    ]


def run(seed: int, faults: Sequence[Fault] | None = None, seconds: float = BROKEN_FOR) -> Outcome:
    """Run a seed; `faults` instead of those that it draws."""
    chance = random.Random(f"world of {seed}")
    CHANCE.seed(seed)
    world = World(seed)
    sites = _one(world, seed, chance) if domains_of(seed) == 1 else _several(world, seed, chance)
    crowd = Crowd(sites, chance.randint(3, 6), seed)
    planned = faults_of(seed) if faults is None else faults
    for fault in planned:
        _plan(crowd, fault, kinds_of(seed))
    oracle.begin(crowd)
    try:
        world.run(seconds)
        _mend(crowd, kinds_of(seed))
        limit = HEALED if len(sites) == 1 else HEALED_ABROAD
        oracle.run_until(crowd, lambda: oracle.is_healed(crowd), AT_LEAST, limit)
        crowd.is_quiet = True
        oracle.run_until(crowd, lambda: not oracle.judge(crowd), AT_LEAST, QUIET)
        problems = [*oracle.serves_all(crowd), *oracle.is_settled(crowd), *oracle.judge(crowd)]
        problems += world.faults
        if {each.kind for each in planned} == {_UNREAD}:
            problems += crowd.hasty
    finally:
        for each in tuple(world.machines):
            each.kill()
    return Outcome(problems, world.notes, world.turns, len(crowd.sent))


def _one(world: World, seed: int, chance: random.Random) -> list[Site]:
    """A node that is alone."""
    site = Site(world, "localhost")
    if (device := device_of(seed)) is not None:
        device(site, seed)
    number = chance.choice((2, 2, 3, 3, 4))
    same_host = chance.random() < 0.5
    for n in range(number):
        WorkerProcess(site, f"w{n}", "host" if same_host else f"host{n}").start()
    return [site]


def _several(world: World, seed: int, chance: random.Random) -> list[Site]:
    """Nodes of several domains."""
    sites = [Site(world, f"{'abc'[n]}.example", n) for n in range(domains_of(seed))]
    Network(world, sites, is_by_stubs(seed))
    for site in sites:
        for n in range(chance.choice((1, 2, 2))):
            WorkerProcess(site, f"{site.domain[0]}{n}", f"{site.domain} {n}").start()
    return sites


def _plan(crowd: Crowd, fault: Fault, kinds: dict[str, tuple[Step, Step]]) -> None:
    world = crowd.world
    worker = crowd.workers[fault.worker % len(crowd.workers)]
    begin, end = kinds[fault.kind]
    runtime = crowd.runtimes[fault.worker % len(crowd.runtimes)]
    target: Any = runtime if _is_of_runtimes(fault.kind) else worker

    def begins() -> None:
        world.note(f"{fault.kind} {target if target is runtime else worker.name}")
        begin(target.site, target)

    def ends() -> None:
        world.note(f"no more {fault.kind}")
        end(target.site, target)

    world.after(fault.at, begins)
    world.after(fault.at + fault.seconds, ends)


def _is_of_runtimes(kind: str) -> bool:
    return kind.startswith(("runtime", "session"))


def _mend(crowd: Crowd, kinds: dict[str, tuple[Step, Step]]) -> None:
    for kind, (_, end) in kinds.items():
        for target in crowd.runtimes if _is_of_runtimes(kind) else crowd.workers:
            end(target.site, target)
    for site in crowd.sites:
        site.database.commits_to_lose.clear()


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


def _set_right(site: Site, worker: WorkerProcess) -> None:
    if worker.machine is not None:
        worker.machine.wall_skew = 0.0


def _unreachable(site: Site, worker: WorkerProcess) -> None:
    site.network.cut()
    site.network.lose()


def _serving(site: Site, worker: WorkerProcess) -> WorkerProcess:
    """The worker that serves other domains, or the given one if none does."""
    return next((each for each in site.workers if each.peers), worker)


def _cut_off(site: Site, worker: WorkerProcess) -> None:
    _wire((0, 1), "cut")(site, _serving(site, worker))
    _cut_database(site, _serving(site, worker))


def _mend_all(site: Site, worker: WorkerProcess) -> None:
    site.database.cut.clear()
    for each in site.workers:
        _wire((0, 1), "mend")(site, each)


def _thaw_all(site: Site, worker: WorkerProcess) -> None:
    for each in site.workers:
        each.thaw()


def _stubs(what: Callable[[Any], object]) -> Step:
    def step(site: Site, worker: WorkerProcess) -> None:
        for each in tuple(site.stubs):
            what(each)

    return step


def _decide(decision: str) -> Step:
    return lambda site, worker: decide(site, decision)


_UNREAD = "runtime does not read"
_UNREACHABLE = "domains are unreachable"

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

DOMAIN_KINDS: dict[str, tuple[Step, Step]] = {
    "clock jumps": (_jump(3600.0), _set_right),  # nodes whose clocks differ do not know each other
    "domains are cut": (
        lambda site, worker: site.network.cut(), lambda site, worker: site.network.mend()
    ),
    "domain is not heard": (
        lambda site, worker: site.network.cut(site.domain),
        lambda site, worker: site.network.mend(),
    ),
    "sockets of domains are lost": (lambda site, worker: site.network.lose(), _nothing),
    "sockets of domains are half open": (
        lambda site, worker: site.network.lose(site.domain), _nothing
    ),
    _UNREACHABLE: (_unreachable, lambda site, worker: site.network.mend()),
    "serving worker is killed": (
        lambda site, worker: _serving(site, worker).kill_and_restart(), _nothing
    ),
    "serving worker freezes": (lambda site, worker: _serving(site, worker).freeze(), _thaw_all),
    "serving worker is cut off": (_cut_off, _mend_all),
    "peers are paused": (_decide(Peer.Decision.PAUSED), _decide(Peer.Decision.APPROVED)),
    "peers are blocked": (_decide(Peer.Decision.BLOCKED), _decide(Peer.Decision.APPROVED)),
}  # fmt: skip
"""And what is besides where there are several domains."""

STUB_KINDS: dict[str, tuple[Step, Step]] = {
    "stubs die": (_stubs(lambda stub: stub.ends(1)), _nothing),
    "stubs freeze": (_stubs(lambda stub: stub.freeze()), _stubs(lambda stub: stub.thaw())),
    "stubs are slow": (
        _stubs(lambda stub: stub.be_slow(1.2)), _stubs(lambda stub: stub.be_slow(0.0))
    ),
}  # fmt: skip
"""And where they reach one another by stubs."""

DEVICE_KINDS: dict[str, tuple[Step, Step]] = {
    "server is away": (_set("device", "is_away", True), _set("device", "is_away", False)),
    "answers of server are lost": (
        _set("device", "loses_answers", True), _set("device", "loses_answers", False)
    ),
}  # fmt: skip
"""And where there is a device: of the network server, the push service, or the broker."""

TOGETHER = (
    ("database is slow", "freeze"),  # while a renewal, or another transaction, is under way
    ("worker is far off", "runtime comes twice"),
    ("clock jumps", "freeze"),
    ("runtime does not read", "worker is far off"),
    ("runtime comes twice", "session is ended"),
    ("runtime comes twice", "runtime is banned"),
)
"""What is broken at one time, so that what lies between two moments of it is met."""

DOMAINS_TOGETHER = (
    ("domains are cut", "kill"),
    ("domains are cut", "freeze"),
    ("sockets of domains are half open", "kill"),
    ("sockets of domains are lost", "worker is far off"),
    ("peers are paused", "freeze"),
    ("peers are paused", "database is slow"),
    (_UNREACHABLE, "serving worker is killed"),  # while messages for the others are stored
    (_UNREACHABLE, "serving worker freezes"),
    (_UNREACHABLE, "serving worker is cut off"),
    (_UNREACHABLE, "peers are paused"),
)

STUBS_TOGETHER = (
    ("stubs are slow", "stubs die"),  # while requests are under way
    ("stubs are slow", "sockets of domains are lost"),
    ("stubs are slow", "serving worker is killed"),
    ("stubs freeze", "sockets of domains are half open"),
    (_UNREACHABLE, "stubs die"),
)

DEVICE_TOGETHER = (
    ("server is away", "kill"),
    ("server is away", "stop"),
    ("server is away", "freeze"),
    ("answers of server are lost", "stop"),
)
