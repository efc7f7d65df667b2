"""python -m tests.simulation: run seeds, each in a process of its own, and print those that fail.

A seed that fails is printed with as few faults as still make it fail. `--kept` runs the runs of
kept.py, `--mutants` looks for the first seed that finds each deliberate bug.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import pickle
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .scenario import Fault, Outcome


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets in the same order, each time
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606  (this very command)
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="*", help="the first, and the last")
    parser.add_argument("--kept", action="store_true", help="what has failed once, and may not")
    parser.add_argument("--single", action="store_true", help="one fault in each run")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="all, if none is named")
    parser.add_argument("--notes", action="store_true", help="print what happened")
    parser.add_argument("--log", action="store_true", help="print what the workers log")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at once")
    parser.add_argument("--database", type=Path, help="a migrated one, which is not changed")
    asked = parser.parse_args()
    from . import prepare

    prepare.prepare()
    prepare.make_database(asked.database)
    _load()
    if asked.log:
        prepare.log_all()
    first, last = (asked.seeds * 2)[:2] if asked.seeds else (1, 0)
    if asked.mutants is not None:
        return _find_mutants(asked.mutants, range(first, last + 1), asked.processes)
    return _run(asked, range(first, last + 1))


def _run(asked: argparse.Namespace, seeds: Iterable[int]) -> int:
    from . import kept, scenario

    draw = scenario.single_fault if asked.single else scenario.faults_of
    runs: list[tuple[str, int, Sequence[Fault]]] = [
        *(kept.KEPT if asked.kept else ()),
        *((f"seed {seed}", seed, draw(seed)) for seed in seeds),
    ]
    failed = 0
    seen: set[tuple[str, str]] = set()
    began = perf_counter()
    calls = ((each, _call(*each[1:])) for each in runs)
    for (name, seed, faults), outcome in _each_alone(calls, asked.processes):
        seen |= _pairs(each.kind for each in faults)
        if outcome.problems:
            failed += 1
            fewer = _shrunk(seed, faults, _kind(outcome.problems[0]))
            outcome = _simulated(seed, fewer)
            print(f"FAILED: {name}", f"seed {seed}", *map(str, fewer), sep="\n    ")
            print(*outcome.problems[:8], sep="\n")
        if asked.notes:
            print(*outcome.notes, sep="\n")
        sys.stdout.flush()
    possible = set().union(*(_pairs(scenario.kinds_of(seed)) for seed in range(50)))
    used = os.times()
    took = used.children_user + used.children_system
    a_minute = 60 * len(runs) / (perf_counter() - began)
    print(
        f"{len(runs)} runs, {failed} failed, {len(seen)} of {len(possible)} pairs of faults, "
        f"{took:.1f} s of the processor, {a_minute:.0f} a minute"
    )
    return 1 if failed else 0


def _pairs(kinds: Iterable[str]) -> set[tuple[str, str]]:
    """What is broken together."""
    return set(combinations(sorted(set(kinds)), 2))


def _find_mutants(names: Sequence[str], seeds: Sequence[int], at_once: int) -> int:
    """For each deliberate bug a seed that fails with it and passes without, the first to end.

    Tried are those that break what the bug needs.
    """
    from . import mutants, scenario

    missed = 0
    for name in names or mutants.MUTANTS:
        change, needs = mutants.MUTANTS[name]
        those = [seed for seed in seeds if needs <= _broken_by(seed)]
        calls = ((seed, _call(seed, scenario.faults_of(seed), change)) for seed in those)
        for count, (seed, outcome) in enumerate(_each_alone(calls, at_once), 1):
            problems = outcome.problems
            if problems and not _simulated(seed, scenario.faults_of(seed)).problems:
                print(f"{name}: seed {seed}, the {count}. tried: {problems[0]}", flush=True)
                break
        else:
            missed += 1
            print(f"{name}: NOT FOUND in {len(those)}", flush=True)
    return 1 if missed else 0


def _broken_by(seed: int) -> set[str]:
    """What a run of a seed has that a mutant may need."""
    from . import mutants, scenario

    kinds = {each.kind for each in scenario.faults_of(seed)}
    if scenario.domains_of(seed) > 1:
        kinds |= {mutants.ABROAD, *([] if scenario.is_by_stubs(seed) else [mutants.BY_LINKS])}
    device = scenario.device_of(seed)
    return kinds | {f"a {device.kind}"} if device is not None else kinds


def _shrunk(seed: int, faults: Sequence[Fault], kind: str) -> Sequence[Fault]:
    """As few of the faults as still have the seed fail with a problem of this kind."""
    for each in tuple(faults):
        fewer = [other for other in faults if other is not each]
        if kind in map(_kind, _simulated(seed, fewer).problems):
            faults = fewer
    return faults


def _kind(problem: str) -> str:
    """What a problem has in common with others: its words without times, names and numbers."""
    return " ".join(filter(str.isalpha, problem.splitlines()[0].split()))


def _simulated(seed: int, faults: Sequence[Fault]) -> Outcome:
    outcome: Outcome = _alone(_call(seed, faults))
    return outcome


def _call(
    seed: int, faults: Sequence[Fault], change: Callable[[], None] | None = None
) -> Callable[[], Outcome]:
    """A run, with a deliberate bug if one is given."""
    from . import scenario

    def run() -> Outcome:
        if change is not None:
            change()
        return scenario.run(seed, faults)

    return run


def _load() -> None:
    """Import what a run imports, so that each need not; then keep it out of the collector's way."""
    from . import scenario

    def look() -> list[str]:
        scenario.run(0, [], 3.0)
        scenario.run(2, [], 3.0)
        scenario.run(7, [], 3.0)
        scenario.run(13, [], 3.0)
        scenario.run(15, [], 3.0)
        return sorted(sys.modules)

    for name in _alone(look):
        if name.startswith(("msgnode.", "policies.", "registry.")):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.disable()


def _alone(call: Callable[[], Any]) -> Any:
    """What a call gives in a process of its own, so that no run leaves anything to the next."""
    return next(_each_alone([(None, call)]))[1]


def _each_alone(
    calls: Iterable[tuple[Any, Callable[[], Any]]], at_once: int = 1
) -> Iterator[tuple[Any, Any]]:
    """What each call gives in a process of its own, as they end, with what it was named."""
    under_way: dict[int, tuple[int, Any]] = {}  # where it tells its result -> pid, name
    try:
        for name, call in calls:
            reading, pid = _start(call)
            under_way[reading] = pid, name
            if len(under_way) >= at_once:
                yield _ended(under_way)
        while under_way:
            yield _ended(under_way)
    finally:
        for reading, (pid, _) in under_way.items():
            os.close(reading)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _start(call: Callable[[], Any]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        status = 1
        try:
            with os.fdopen(writing, "wb") as out:
                pickle.dump(call(), out)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    return reading, pid


def _ended(under_way: dict[int, tuple[int, Any]]) -> tuple[Any, Any]:
    """Wait for one to end; its name, and what it gives."""
    reading = select.select(list(under_way), [], [])[0][0]
    pid, name = under_way.pop(reading)
    with os.fdopen(reading, "rb") as got:
        told = got.read()
    os.waitpid(pid, 0)
    if not told:
        raise SystemExit("The simulation itself has failed.")
    return name, pickle.loads(told)  # noqa: S301  (our own child's)


if __name__ == "__main__":
    sys.exit(main())
