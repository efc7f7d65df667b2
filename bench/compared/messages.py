"""Messages and allocations with two workers, of each version in turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.processes import Server

from .versions import Version, batches, in_turns, started

SIZES = {100: 0.7, 1_000: 0.65, 10_000: 0.65}
"""Of a message in bytes, with the share of the rate within one worker that is aimed at."""
CHANGES = 2_000
ALLOCATIONS = 100
SECONDS, PATIENCE = 3.0, 15.0


class Pairs:
    """The two workers of each version, and what drives the first of them."""

    def __init__(self, stack: ExitStack, versions: Sequence[Version]) -> None:
        self.servers: dict[str, tuple[Server, Server]] = {}
        self.generators: dict[str, Generator] = {}
        for version in versions:
            one, other = version.servers.make_pair(version.redis)
            stack.enter_context(started(one, other))
            self.servers[version.name] = one, other
            self.generators[version.name] = stack.enter_context(Generator(one))


def relay(plan: Plan, versions: Sequence[Version], pairs: Pairs) -> PartResult:
    """Messages a second within a worker and between two."""
    result = PartResult("relay", "Messages within a worker and between two, per second")
    for size, aim in SIZES.items():
        title = f"10 × window 10, {size:,} B"
        for _, version in in_turns(plan, versions):
            generator, to = pairs.generators[version.name], pairs.servers[version.name][1].port
            load = {"pairs": 10, "window": 10, "size": size, "seconds": plan.seconds}
            here = result.case(title, f"{version.name}: within")
            here.samples.append(generator.call("relay", **load))
            across = result.case(title, f"{version.name}: between")
            across.samples.append(generator.call("relay_across", to=to, **load))
        for version in versions:
            over, under = (f"{version.name}: {where}" for where in ("between", "within"))
            of = result.case(title, over), result.case(title, under)
            result.ratios.append(ratio(*of, target=aim))
        plan.say(title)
    return result


def allocations(plan: Plan, versions: Sequence[Version], pairs: Pairs) -> PartResult:
    """How long one allocation after another takes, idle and beside changes."""
    title = "One allocation after another with two workers"
    result = PartResult("allocation", title, unit="ms", headline="p99_ms")
    for rate in (0, CHANGES):
        title = f"beside {rate:,} new addresses a second" if rate else "idle"
        for _, version in in_turns(plan, versions):
            one = pairs.servers[version.name][0]
            scraped, before = batches(one), batches(one)
            sample = pairs.generators[version.name].call(
                *("first_uses",),
                rate=rate,
                allocations=ALLOCATIONS,
                seconds=SECONDS,
                patience=PATIENCE,
            )
            if not rate:  # a scrape is itself told between the workers
                sent = batches(one) - before - (before - scraped)
                sample["batches_of_an_answer"] = sent / sample["answered"]
            result.case(title, version.name).samples.append(sample)
            plan.say(f"{title}, {version.name}: {sample}")
    return result
