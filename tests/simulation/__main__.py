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
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
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
        return _find_mutants(asked.mutants, range(first, last + 1))
    return _run(asked, range(first, last + 1))


def _run(asked: argparse.Namespace, seeds: Iterable[int]) -> int:
    from . import kept, scenario

    draw = scenario.single_fault if asked.single else scenario.faults_of
    runs: list[tuple[str, int, Sequence[Fault]]] = [
        *(kept.KEPT if asked.kept else ()),
        *((f"seed {seed}", seed, draw(seed)) for seed in seeds),
    ]
    failed = 0
    seen: Counter[str] = Counter()
    for name, seed, faults in runs:
        outcome = _simulated(seed, faults)
        kinds = sorted({each.kind for each in faults})
        seen.update(f"{one} + {other}" for one in kinds for other in kinds if one < other)
        if outcome.problems:
            failed += 1
            fewer = _shrunk(seed, faults, _kind(outcome.problems[0]))
            outcome = _simulated(seed, fewer)
            print(f"FAILED: {name}", f"seed {seed}", *map(str, fewer), sep="\n    ")
            print(*outcome.problems[:8], sep="\n")
        if asked.notes:
            print(*outcome.notes, sep="\n")
        sys.stdout.flush()
    pairs = len(scenario.KINDS) * (len(scenario.KINDS) - 1) // 2
    used = os.times()
    took = used.children_user + used.children_system
    print(
        f"{len(runs)} runs, {failed} failed, {len(seen)} of {pairs} pairs of faults, "
        f"{took:.1f} s of the processor"
    )
    return 1 if failed else 0


def _find_mutants(names: Sequence[str], seeds: Iterable[int]) -> int:
    """For each deliberate bug the first seed that fails with it and passes without."""
    from . import mutants, scenario

    missed = 0
    for name in names or mutants.MUTANTS:
        for count, seed in enumerate(seeds, 1):
            faults = scenario.faults_of(seed)
            problems = _simulated(seed, faults, mutants.MUTANTS[name]).problems
            if problems and not _simulated(seed, faults).problems:
                print(f"{name}: seed {seed}, after {count}: {problems[0]}", flush=True)
                break
        else:
            missed += 1
            print(f"{name}: NOT FOUND", flush=True)
    return 1 if missed else 0


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


def _simulated(seed: int, faults: Sequence[Fault], change: Callable[[], None] | None = None):  # type: ignore[no-untyped-def]
    from . import scenario

    def run() -> Outcome:
        if change is not None:
            change()
        return scenario.run(seed, faults)

    return _alone(run)


def _load() -> None:
    """Import what a run imports, so that each need not; then keep it out of the collector's way."""
    from . import scenario

    def look() -> list[str]:
        scenario.run(0, [], 3.0)
        return sorted(sys.modules)

    for name in _alone(look):
        if name.startswith(("msgnode.", "policies.", "registry.")):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.disable()


def _alone(call: Callable[[], Any]) -> Any:
    """What a call gives in a process of its own, so that no run leaves anything to the next."""
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
    with os.fdopen(reading, "rb") as got:
        told = got.read()
    os.waitpid(pid, 0)
    if not told:
        raise SystemExit("The simulation itself has failed.")
    return pickle.loads(told)  # noqa: S301  (our own child's)


if __name__ == "__main__":
    sys.exit(main())
