"""What sessions of another worker cost: memory of a worker, and the time until one that comes is
ready. And batches between workers for an answer, with more of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, Sample
from bench.plan import Plan
from bench.processes import Server, resident_bytes

from .messages import ALLOCATIONS, PATIENCE, SECONDS, Pairs
from .versions import Version, batches, in_turns, wait_until_ready

SESSIONS, QUICK = 2_000, 500
"""More a round; of five rounds within MAX_CONNECTIONS_PER_SOURCE."""
WORKERS = 4
MILLION = 1_000_000
_SETTLE = 1.0


def sessions(plan: Plan, versions: Sequence[Version], pairs: Pairs) -> PartResult:
    """Sessions come to the second worker; measured are the first one, and a third that comes."""
    title = "Sessions of another worker, each with an address and a subscription"
    result = PartResult("sessions", title, unit="KiB each", headline="kib_each")
    step = QUICK if plan.quick else SESSIONS
    empty: dict[str, float] = {}
    alone: dict[str, list[float]] = {}
    for version in versions:
        one, _ = pairs.servers[version.name]
        alone[version.name] = [_join(version, one) for _ in range(2)]
        empty[version.name] = resident_bytes(one.pid)
    with ExitStack() as stack:
        holders = {
            version.name: stack.enter_context(Generator(pairs.servers[version.name][1]))
            for version in versions
        }
        for number, version in in_turns(plan, versions):
            there = step * (number + 1)
            began = time.perf_counter()
            held = holders[version.name].call("hold", sessions=there)
            opened = time.perf_counter() - began
            time.sleep(_SETTLE)
            one, _ = pairs.servers[version.name]
            more = (resident_bytes(one.pid) - empty[version.name]) / there
            ready = _join(version, one)
            later = (ready - min(alone[version.name])) / there
            sample = {
                "sessions": float(there),
                "kib_each": more / 1024,
                "mb_of_a_million": more * MILLION / 1e6,
                "ready_s": ready,
                "later_s_for_a_million": later * MILLION,
                "opened_in_s": opened,
                "lost": held["lost"],
            }
            result.case("a session", version.name).samples.append(sample)
            plan.say(f"{there:,} sessions, {version.name}: {sample}")
    for version in versions:
        told = ", ".join(f"{each:.2f}" for each in alone[version.name])
        result.notes.append(f"{version.name}: without sessions a third worker is ready in {told} s")
    return result


def answers(plan: Plan, versions: Sequence[Version], pairs: Pairs) -> PartResult:
    """Batches between the workers for an answer, of a node with more than two."""
    title = f"One allocation after another with {WORKERS} workers"
    result = PartResult("answers", title, unit="batches", headline="batches_of_an_answer")
    with ExitStack() as stack:
        for version in versions:
            one, _ = pairs.servers[version.name]
            for _ in range(WORKERS - 2):
                wait_until_ready(stack.enter_context(version.servers.one_more(one)))
        for _, version in in_turns(plan, versions):
            one, _ = pairs.servers[version.name]
            scraped, before = batches(one), batches(one)
            sample: Sample = pairs.generators[version.name].call(
                "first_uses", rate=0, allocations=ALLOCATIONS, seconds=SECONDS, patience=PATIENCE
            )
            sent = batches(one) - before - (before - scraped)
            sample["batches_of_an_answer"] = sent / sample["answered"]
            result.case(f"{WORKERS} workers", version.name).samples.append(sample)
    return result


def _join(version: Version, one: Server) -> float:
    """How long another worker takes from its start until it is ready; it leaves again."""
    comes = version.servers.one_more(one)
    began = time.perf_counter()
    with comes:
        wait_until_ready(comes)
        return time.perf_counter() - began
