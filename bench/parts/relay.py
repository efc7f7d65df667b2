"""Messages a second from session to session, and the time one is under way.

Where the machine has them, a plain Node.js relay and NATS are measured in the same run. NATS knows
no JSON, sessions or addresses; it says what moving bytes alone costs on this machine.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.others import NATS, NODEJS, nats, nodejs
from bench.plan import Plan
from bench.servers import BARE, BARE_FAST, NODE

SHAPES = ((1, 1), (10, 10), (100, 1))  # pairs, window
SIZES = (100, 1_000, 10_000)
QUICK = ((1, 1, 100), (10, 10, 100), (10, 10, 10_000))
TARGETS = {(10, 10, 100): 0.75, (10, 10, 10_000): 0.85}  # against the bare relay
SAME_SERVER = 0.9  # against the bare relay on the node's own build of Daphne
FASTEST = {(10, 10, 100): 1.0, (10, 10, 10_000): 1.0}  # against Node.js


def measure(plan: Plan) -> PartResult:
    result = PartResult("relay", "Relay: messages per second")
    loads = QUICK if plan.quick else tuple((*shape, size) for size in SIZES for shape in SHAPES)
    names = (BARE, BARE_FAST, NODE)
    others = set() if plan.quick else {NODEJS, NATS}
    with ExitStack() as stack:
        servers = [stack.enter_context(plan.servers.make(name)) for name in names]
        if not plan.quick:
            found = [nodejs(plan.servers.directory), nats(plan.servers.directory)]
            servers += [stack.enter_context(server) for server in found if server is not None]
            others &= {server.name for server in servers}
            for name in {NODEJS, NATS} - others:
                result.notes.append(f"{name} was not measured: it is not installed.")
        generators = [stack.enter_context(Generator(server)) for server in servers]
        for load in loads:
            pairs, window, size = load
            for turn in plan.rotations(generators):
                for generator in turn:
                    do = "relay_nats" if generator.server.name == NATS else "relay"
                    sample = generator.call(
                        do, pairs=pairs, window=window, size=size, seconds=plan.seconds
                    )
                    result.case(_title(*load), generator.server.name).samples.append(sample)
            plan.say(_title(*load))
    for load in loads:
        _compare(result, load, NODE, BARE, TARGETS)
        _compare(result, load, NODE, BARE_FAST, dict.fromkeys(loads, SAME_SERVER))
        for other in sorted(others):
            _compare(result, load, NODE, other, FASTEST if other == NODEJS else None)
    return result


def _compare(
    result: PartResult,
    load: tuple[int, int, int],
    over: str,
    under: str,
    targets: dict[tuple[int, int, int], float] | None = None,
) -> None:
    mine, bare = result.case(_title(*load), over), result.case(_title(*load), under)
    result.ratios.append(ratio(mine, bare, target=(targets or {}).get(load)))
    result.ratios.append(ratio(mine, bare, "per_cpu_second"))
    if load[:2] == (1, 1):
        target = 1.5 if load[2] == 100 and targets is TARGETS else None
        result.ratios.append(ratio(mine, bare, "p50_us", target, "at most"))


def _title(pairs: int, window: int, size: int) -> str:
    amount = f"{size // 1000} KB" if size >= 1000 else f"{size} B"
    return f"{pairs} {'pair' if pairs == 1 else 'pairs'} × window {window}, {amount}"
