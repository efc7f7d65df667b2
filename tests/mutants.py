"""Mutation tests: does a test notice when the source is changed? `python -m tests.mutants [NAME…]`.

mutmut (its settings are in pyproject.toml) changes the bus, the rules of sessions and the policy
engine in one small way at a time, and mutant_runner.py runs the fast tests that reach the place. A
mutant that no test kills is listed, with its change, unless `survivors.toml` says why it may live.
Results are kept in mutants/, so a run that was stopped goes on; a name such as
`msgnode.bus.table.*` runs these anew, and tells of these alone. `--sample 200` runs so many, chosen
at random, and says what that tells of all; what is left of it after `--seconds` is run by the next
such command. The exit status is 1 if one was not run, fewer than 80 % were killed, or one survives
without a reason.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from math import sqrt
from pathlib import Path

from mutmut.__main__ import create_mutants
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir

ROOT = Path(__file__).resolve().parents[1]
MADE = ROOT / "mutants"
REASONS = Path(__file__).with_name("survivors.toml")
WANTED = 0.8
_NOT_RUN, _SURVIVED, _UNREACHED = {None, 2}, {0}, {5, 33}  # what mutmut keeps of each


@dataclass(frozen=True)
class Survivor:
    """A change that no test noticed: its source file, the mutant's name and its lines."""

    file: str
    name: str
    change: str


@dataclass(frozen=True)
class Reason:
    """Why mutants may live: those of a file whose change matches a pattern."""

    file: str
    change: re.Pattern[str]
    text: str

    def covers(self, survivor: Survivor) -> bool:
        return survivor.file == self.file and self.change.search(survivor.change) is not None


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="of that choice")
    parser.add_argument("--seconds", type=int, default=None, help="stop after so long")
    parser.add_argument("--processes", type=int, default=1, help="how many are tried at once")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(words)
    keep_verdicts()  # of a run that was killed
    make_mutants(options.processes)
    fates = {name: fate for _, found in kept() for name, fate in found.items()}
    chosen = set(fates)
    if options.names:
        chosen = {name for name in fates if any(fnmatch(name, each) for each in options.names)}
    elif options.sample:
        every = sorted(fates)
        chosen = set(random.Random(options.seed).sample(every, min(options.sample, len(every))))
    names = [each for each in chosen if options.names or fates[each] in _NOT_RUN]
    if names and (status := run(sorted(names), options.seconds, options.processes)):
        return status
    numbers, survivors = results(chosen)
    reasons = list(read_reasons())
    open_ones = [each for each in survivors if not any(why.covers(each) for why in reasons)]
    for each in open_ones:
        print(f"\n{each.name}\n{each.change}")
    killed, total, waiting = 0, 0, 0
    for file in sorted({file for file, _ in numbers}):
        dead, alive = numbers[file, "killed"], numbers[file, "survived"]
        killed, total = killed + dead, total + dead + alive
        waiting += numbers[file, "not run"]
        print(f"{file}: {dead} of {dead + alive} killed, {numbers[file, 'not run']} not run")
    low, high = interval(killed, total)
    print(f"{killed} of {total} killed, {len(open_ones)} survivors without a reason")
    if options.sample:
        print(f"of all mutants {low:.0%} to {high:.0%} (19 times out of 20)")
    enough = total and killed >= WANTED * total
    return 0 if enough and not open_ones and not waiting else 1


def make_mutants(processes: int) -> None:
    """Make a copy of the tree with all mutants in it; those of functions that changed are new."""
    shutil.rmtree(MADE / "tests", ignore_errors=True)  # what is not there any more stays away
    MADE.mkdir(exist_ok=True)
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(io.StringIO()):
        copy_src_dir()
        copy_also_copy_files()
        create_mutants(processes)


def run(names: list[str], seconds: float | None, processes: int) -> int:
    """Run these mutants, for so long at most; the exit status, 0 also after that time."""
    (MADE / "asked.txt").write_text("\n".join(names))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    program = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "tests.mutant_runner", "-p", "no:randomly"),
        "--no-second-look",
        *("--rootdir=.", "--tb=no", "--mutants=asked.txt", "--verdicts=verdicts.jsonl"),
        *(f"--at-once={processes}", *settings["pytest_add_cli_args"]),
        *settings["pytest_add_cli_args_test_selection"],
    ]
    with subprocess.Popen(program, cwd=MADE) as running:
        try:
            status = running.wait(seconds)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)
            running.wait()
            status = 0
        finally:
            keep_verdicts()
    return status


def keep_verdicts() -> None:
    """Keep what the runner has found with the mutants, as mutmut does."""
    verdicts = MADE / "verdicts.jsonl"
    if not verdicts.exists():
        return
    told: dict[str, int] = dict(map(json.loads, verdicts.read_text().splitlines()))
    for found in MADE.rglob("*.meta"):
        kept = json.loads(found.read_text())
        fates = kept["exit_code_by_key"]
        fates.update({name: told[name] for name in fates.keys() & told.keys()})
        found.write_text(json.dumps(kept, indent=4))
    verdicts.unlink()


def interval(killed: int, total: int) -> tuple[float, float]:
    """Wilson's interval for the share of all, from a sample, at 95 %.

    >>> low, high = interval(90, 100)
    >>> f"{low:.3f} {high:.3f}"
    '0.826 0.945'
    """
    if not total:
        return 0.0, 1.0
    z, share = 1.96, killed / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2) / (1 + z * z / total)
    return middle - half, middle + half


def kept() -> Iterator[tuple[str, dict[str, int | None]]]:
    """Each file that has mutants, and what became of them by their names."""
    for found in sorted(MADE.rglob("*.meta")):
        file = str(found.relative_to(MADE)).removesuffix(".meta")
        yield file, json.loads(found.read_text())["exit_code_by_key"]


def results(chosen: set[str] | None = None) -> tuple[Counter[tuple[str, str]], list[Survivor]]:
    """What became of the mutants (chosen): how many by file and fate, and those that lived."""
    numbers: Counter[tuple[str, str]] = Counter()
    survivors = []
    for file, fates in kept():
        for name, status in fates.items():
            if chosen is not None and name not in chosen:
                continue
            if status in _NOT_RUN:
                numbers[file, "not run"] += 1
            elif status in _SURVIVED | _UNREACHED:
                numbers[file, "survived"] += 1
                survivors.append(Survivor(file, name, _change(name, file)))
            else:  # killed, or one that never ends
                numbers[file, "killed"] += 1
    return numbers, survivors


def read_reasons() -> Iterator[Reason]:
    """The mutants that may live, and why."""
    for each in tomllib.loads(REASONS.read_text())["survivor"]:
        yield Reason(each["file"], re.compile(each["change"], re.MULTILINE), each["reason"])


def _change(name: str, file: str) -> str:
    lines = get_diff_for_mutant(name, path=file).splitlines()
    return "\n".join(
        line for line in lines if line[:1] in "+-" and not line.startswith(("+++", "---"))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
