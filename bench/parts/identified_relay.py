"""What the strict mode costs a relayed message: every session logged in, against anonymous ones.

Both nodes have the 100 rules and believe the same issuer; each pair is a user of its own. With an
identity in each message, both nodes look at it: what is compared then is the mode alone.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.identity import Authority
from bench.plan import Plan
from bench.servers import NODE, NODE_STRICT

LOADS = ((10, 10, 100), (10, 10, 1_000))  # pairs, window, size
TARGET = 0.85
SHORT = 5  # so many times more rounds, each so much shorter


def measure(plan: Plan) -> PartResult:
    result = PartResult("identified_relay", "Relay, anonymous and strict: messages per second")
    authority = Authority()
    users = [f"user{number}" for number in range(max(pairs for pairs, _, _ in LOADS))]
    tokens = [authority.token(user) for user in users]
    identities = [authority.identity(user) for user in users]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(plan.servers.make(name, issuer=authority.row()))
            for name in (NODE, NODE_STRICT)
        ]
        generators = [stack.enter_context(Generator(server)) for server in servers]
        for pairs, window, size in LOADS:
            for carries in (False, True):
                title = f"{pairs} pairs × window {window}, {size} B"
                title += ", an identity in each" if carries else ""
                for turn in plan.rotations(generators, SHORT):
                    for generator in turn:
                        is_strict = generator.server.name == NODE_STRICT
                        sample = generator.call(
                            "relay",
                            pairs=pairs,
                            window=window,
                            size=size,
                            seconds=plan.seconds / SHORT,
                            tokens=tokens if is_strict else None,
                            identities=identities if carries else None,
                        )
                        result.case(title, generator.server.name).samples.append(sample)
                plan.say(title)
                strict, plain = result.case(title, NODE_STRICT), result.case(title, NODE)
                result.ratios.append(ratio(strict, plain, target=TARGET))
                result.ratios.append(ratio(strict, plain, "per_cpu_second", TARGET))
    return result
