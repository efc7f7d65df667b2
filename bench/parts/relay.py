"""Messages a second from session to session, and the time one is under way.

Where the machine has them, a plain Node.js relay and NATS are measured in the same run. NATS knows
no JSON, sessions or addresses; it says what moving bytes alone costs on this machine.

`varied_relay` keeps 100 messages of traffic that varies (`bench.traffic_mix`) under way.
`varied_latency` sends what is due whether the server keeps up or not (an open loop), at shares of
what that server carried just before. Both tell of what use the node's caches are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.request import urlopen

from bench.driver import Generator
from bench.figures import PartResult, Sample, ratio
from bench.identity import Authority
from bench.others import NATS, NODEJS, nats, nodejs
from bench.plan import Plan
from bench.processes import Server
from bench.servers import BARE, BARE_FAST, NODE, NODE_STRICT
from bench.traffic_mix import CONVERSATIONS, SESSIONS, STRANGERS

SHAPES = ((1, 1), (10, 10), (100, 1))  # pairs, window
SIZES = (100, 1_000, 10_000)
QUICK = ((1, 1, 100), (10, 10, 100), (10, 10, 10_000))
TARGETS = {(10, 10, 100): 0.75, (10, 10, 10_000): 0.85}  # against the bare relay
SAME_SERVER = 0.9  # against the bare relay on the node's own build of Daphne
FASTEST = {(10, 10, 100): 1.0, (10, 10, 10_000): 1.0}  # against Node.js

WINDOW = 100
LENGTH = 5  # seconds of a sample for each of the plan's
VARIED_TARGETS = {100: 1.0, 10_000: 1.3}  # the strict node against the bare relay
SHARES = (0.5, 0.8)
_COUNTED = re.compile(
    r"^(msgnode_(?:policy_evaluations|cache_lookups|messages)_total)(\S*) (\S+)$", re.M
)


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
    return f"{pairs} {'pair' if pairs == 1 else 'pairs'} × window {window}, {_amount(size)}"


def _amount(size: int) -> str:
    return f"{size // 1000} KB" if size >= 1000 else f"{size} B"


# --- traffic that varies --------------------------------------------------------------------------


def measure_varied(plan: Plan) -> PartResult:
    result = PartResult("varied_relay", "Varied traffic: messages per second")
    sizes = SIZES[::2] if plan.quick else SIZES
    with _servers(plan, with_nodejs=not plan.quick) as generators:
        for kind in (CONVERSATIONS, STRANGERS):
            for size in sizes:
                title = _varied_title(kind, size)
                for turn in plan.rotations(generators):
                    for generator, tokens in turn:
                        sample = _sample(generator, kind, size, tokens, plan, window=WINDOW)
                        result.case(title, generator.server.name).samples.append(sample)
                plan.say(title)
                _compare_varied(result, title, size)
    return result


def measure_latency(plan: Plan) -> PartResult:
    result = PartResult(
        "varied_latency", "Varied traffic in an open loop: p99 from when a message was due, in µs",
        unit="microseconds", headline="p99_us",
    )  # fmt: skip
    sizes = (100,) if plan.quick else (100, 10_000)
    with _servers(plan, with_nodejs=False) as generators:
        for size in sizes:
            for turn in plan.rotations(generators):
                for generator, tokens in turn:
                    able = _sample(generator, STRANGERS, size, tokens, plan, window=WINDOW)
                    for share in SHARES:
                        title = f"{_varied_title(STRANGERS, size)}, {share:.0%} of its capacity"
                        sample = _sample(
                            generator, STRANGERS, size, tokens, plan, rate=share * able["rate"]
                        )
                        result.case(title, generator.server.name).samples.append(sample)
            plan.say(_varied_title(STRANGERS, size))
    return result


@contextmanager
def _servers(plan: Plan, with_nodejs: bool) -> Iterator[list[tuple[Generator, list[str] | None]]]:
    authority = Authority()
    tokens = [authority.token(f"user{number}") for number in range(SESSIONS)]
    with ExitStack() as stack:
        made: list[Server] = [
            plan.servers.make(name, issuer=authority.row()) for name in (NODE, NODE_STRICT)
        ]
        made += [plan.servers.make(name) for name in (BARE, BARE_FAST)]
        if with_nodejs and (other := nodejs(plan.servers.directory)) is not None:
            made.append(other)
        yield [
            (
                stack.enter_context(Generator(stack.enter_context(server))),
                tokens if server.name == NODE_STRICT else None,
            )
            for server in made
        ]


def _sample(
    generator: Generator,
    kind: str,
    size: int,
    tokens: list[str] | None,
    plan: Plan,
    **how: float,
) -> Sample:
    """One sample; of a node with the shares of messages for which something kept was of use."""
    server = generator.server
    is_node = server.name in (NODE, NODE_STRICT)
    before = _counted(server) if is_node else {}
    sample = generator.call(
        "varied", mix=kind, size=size, seconds=LENGTH * plan.seconds, tokens=tokens, **how
    )
    if is_node:
        sample |= _kept(before, _counted(server))
    return sample


def _counted(server: Server) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    counted: dict[str, float] = {}
    for name, labels, value in _COUNTED.findall(page):
        key = name if "cache_lookups" not in name else name + labels
        counted[key] = counted.get(key, 0.0) + float(value)
    return counted


def _kept(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    more = {key: value - before.get(key, 0.0) for key, value in after.items()}
    messages = more["msgnode_messages_total"]
    kept = {"decisions_kept": 1 - more["msgnode_policy_evaluations_total"] / messages}
    hits, misses = (
        next(v for k, v in more.items() if 'cache="redaction"' in k and f'"{outcome}"' in k)
        for outcome in ("hit", "miss")
    )
    kept["redaction_kept"] = hits / (hits + misses) if hits + misses else 0.0
    return kept


def _compare_varied(result: PartResult, title: str, size: int) -> None:
    bare = result.case(title, BARE)
    for name in (NODE, NODE_STRICT):
        mine = result.case(title, name)
        target = VARIED_TARGETS.get(size) if name == NODE_STRICT else None
        result.ratios.append(ratio(mine, bare, target=target))
        result.ratios.append(ratio(mine, bare, "per_cpu_second"))
    node, same = result.case(title, NODE), result.case(title, BARE_FAST)
    result.ratios.append(ratio(node, same, target=SAME_SERVER))
    result.ratios.append(ratio(node, same, "per_cpu_second"))
    others = [case for case in result.cases if (case.name, case.server) == (title, NODEJS)]
    for other in others:
        result.ratios.append(ratio(result.case(title, NODE), other))


def _varied_title(kind: str, size: int) -> str:
    return f"{kind}, about {_amount(size)}"
