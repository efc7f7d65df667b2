"""Mutation tests: does a test notice when the source is changed? `python -m tests.mutants [NAME…]`.

mutmut (its settings are in pyproject.toml) changes the bus, the rules of sessions and the policy
engine in one small way at a time and runs the fast tests that reach the place. A mutant that no
test kills is listed, with its change, unless `survivors.toml` says why it may live. Results are
kept in mutants/, so a run that was stopped goes on; a name such as `msgnode.bus.table.*` runs these
anew. The exit status is 1 if fewer than 80 % were killed or one survives without a reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant

ROOT = Path(__file__).resolve().parents[1]
MADE = ROOT / "mutants"
REASONS = Path(__file__).with_name("survivors.toml")
WANTED = 0.8
_NOT_RUN, _SURVIVED, _UNREACHED = {None}, {0}, {5, 33}  # what mutmut keeps of each


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


def main(names: list[str]) -> int:
    program = [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *names]
    if subprocess.run(program, cwd=ROOT, check=False).returncode:
        return 1
    numbers, survivors = results()
    reasons = list(read_reasons())
    open_ones = [each for each in survivors if not any(why.covers(each) for why in reasons)]
    for each in open_ones:
        print(f"\n{each.name}\n{each.change}")
    killed, total = 0, 0
    for file in sorted({file for file, _ in numbers}):
        dead, alive = numbers[file, "killed"], numbers[file, "survived"]
        killed, total = killed + dead, total + dead + alive
        print(f"{file}: {dead} of {dead + alive} killed, {numbers[file, 'not run']} not run")
    print(f"{killed} of {total} killed, {len(open_ones)} survivors without a reason")
    return 0 if total and killed >= WANTED * total and not open_ones else 1


def results() -> tuple[Counter[tuple[str, str]], list[Survivor]]:
    """What became of the mutants: how many by file and fate, and those that lived."""
    numbers: Counter[tuple[str, str]] = Counter()
    survivors = []
    for kept in sorted(MADE.rglob("*.meta")):
        file = str(kept.relative_to(MADE)).removesuffix(".meta")
        for name, status in json.loads(kept.read_text())["exit_code_by_key"].items():
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
