"""How long a message waits while the node does something else: varied traffic in an open loop, its
p99 during backups, publications of policies, reports, reconnections, open consoles and a
connector's script that loops, eats memory or floods, over its p99 in quiet, round by round.

Each of these also runs at a second node on the same machine, which the messages do not pass: what a
message waits for then is a processor, not the node. The last ratios have one over the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import count

from bench.consoles import Operator
from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.processes import Server
from bench.servers import NODE, manage
from bench.traffic_mix import CONVERSATIONS

RATE, SIZE = 500, 1_000
LENGTH = 5  # seconds of a sample for each of the plan's
STORM, QUICK_STORM = 5_000, 500
ROWS, QUICK_ROWS = 1_000_000, 50_000
PAGES = 5
TARGET = 1.5
QUIET = "nothing"
CONSOLES = "consoles"
HOSTILE = """export default (node) => {
  const loop = () => {};
  const memory = (all) => all.push(new Array(1e5).fill(1)) > 100 && (all.length = 0);
  const flood = () => node.log("x");
  const acts = [loop, memory, flood], next = (turn) => {
    const all = [];
    for (const end = Date.now() + 1500; Date.now() < end; ) acts[turn % 3](all);
    setTimeout(next, 50, turn + 1);
  };
  setTimeout(next, 100, 0);
  return { handles: "global-registry", get() {}, put() {} };
};"""
"""What it does goes on, as it stays below what it would be ended for; every 30 s it is."""
ELSEWHERE = ", at another node"


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "beside", f"{RATE} messages/s of about {SIZE} B beside something else: p99, in µs",
        unit="microseconds", headline="p99_us",
    )  # fmt: skip
    with ExitStack() as stack:
        server, other = (stack.enter_context(plan.servers.make(NODE)) for _ in range(2))
        generator = stack.enter_context(Generator(server))
        activities = _activities(plan, stack, server)
        activities |= {
            name + ELSEWHERE: activity for name, activity in _activities(plan, stack, other).items()
        }
        length = LENGTH * plan.seconds
        talk = partial(generator.call, "varied", mix=CONVERSATIONS, size=SIZE, rate=RATE)
        talk(seconds=length)  # its sessions open
        for turn in plan.rotations([QUIET, *activities]):
            for name in turn:
                with activities.get(name, nullcontext)():
                    result.case("beside", name).samples.append(talk(seconds=length))
            plan.say("a round")
        quiet = result.case("beside", QUIET)
        for name in activities:
            result.ratios.append(ratio(result.case("beside", name), quiet, "p99_us", *_aim(name)))
        for name in activities:
            if not name.endswith(ELSEWHERE):
                mine, elsewhere = (result.case("beside", each) for each in (name, name + ELSEWHERE))
                result.ratios.append(ratio(mine, elsewhere, "p99_us"))
    return result


def _aim(name: str) -> tuple[float, str] | tuple[()]:
    return () if name.endswith(ELSEWHERE) else (TARGET, "at most")


def _activities(
    plan: Plan, stack: ExitStack, server: Server
) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    """What a node can do besides: each goes on, again and again, while its context is open."""
    storm = stack.enter_context(Generator(server))
    operator = Operator(server)
    storm.call("resume", sessions=QUICK_STORM if plan.quick else STORM)
    rows = QUICK_ROWS if plan.quick else ROWS
    manage(server.environment, "traffic_generate", "--rows", str(rows), "--days", "2")
    (plan.servers.directory / "hostile.js").write_text(HOSTILE)
    hostile = ("--script", str(plan.servers.directory / "hostile.js"))
    manage(server.environment, "connectors", "add", "global-registry", *hostile)
    numbers = count()
    actions: dict[str, Callable[[], None]] = {
        "backups": lambda: _back_up(plan, server, next(numbers)),
        "publications of policies": lambda: _publish(plan, server),
        "reports": lambda: _report(server),
        "reconnections": lambda: _come_again(storm),
    }
    return {
        **{name: partial(_repeated, action) for name, action in actions.items()},
        "a hostile script": lambda: _harmed(server),
        CONSOLES: partial(operator.watching, PAGES),
    }


@contextmanager
def _harmed(server: Server) -> Iterator[None]:
    """The hostile script runs; the node starts it again where it had to end it."""
    manage(server.environment, "connectors", "approve", "global-registry")
    yield
    manage(server.environment, "connectors", "pause", "global-registry")


@contextmanager
def _repeated(action: Callable[[], None]) -> Iterator[None]:
    """The action goes on, again and again, while the block runs; it has begun when that begins."""
    over, faults = threading.Event(), list[Exception]()
    thread = threading.Thread(target=partial(_again, action, over, faults), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if faults:
        raise faults[0]


def _again(action: Callable[[], None], over: threading.Event, faults: list[Exception]) -> None:
    try:
        while not over.is_set():
            action()
    except Exception as error:
        faults.append(error)


def _back_up(plan: Plan, server: Server, number: int) -> None:
    place = plan.servers.directory / f"backup-{server.port}-{number}.tar.gz"
    manage(server.environment, "backup", "--output", str(place))
    place.unlink()


def _publish(plan: Plan, server: Server) -> None:
    document = plan.servers.directory / "policy.json"
    manage(server.environment, "policy_import", str(document), "--publish")


def _report(server: Server) -> None:
    manage(server.environment, "report_run", "daily", "--again")


def _come_again(storm: Generator) -> None:
    lost = storm.call("resume")["lost"]
    if lost:
        raise RuntimeError(f"{lost:.0f} sessions were lost")
