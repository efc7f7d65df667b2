"""Runs what a change touches many times under load, so that races show: `python -m tests.again`.

What a change touches: the test files that differ from main (or, on main, from the commit before),
those not yet committed included, and the tests of the rooms whose source differs. Each is run
20 times (`--times`) while twice as many processes as there are cores do nothing but compute, as on
a machine that others use. Files or pytest's options may be named instead: `… tests/e2e -k redis`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from msgnode.launch.pdeathsig import tie

ROOT = Path(__file__).resolve().parents[1]
TIMES = 20
LOAD_PER_CORE = 2
LIMIT = 900  # seconds for one test: under load everything takes several times as long


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.again", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--base", default="main", help="the branch that a change is compared with")
    options, given = parser.parse_known_args(words)
    chosen = [word for word in given if (ROOT / word.partition("::")[0]).exists()]
    if not chosen:
        chosen = touched(changed(options.base), ROOT)
        if not chosen:
            print("test-again: no test belongs to what has changed")
            return 0
        given = [*chosen, *given]
    print(f"test-again: {options.times} times under load: {' '.join(chosen)}", flush=True)
    command = [
        *(sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-q"),
        *("--no-second-look", f"--count={options.times}", f"--timeout={LIMIT}", *given),
    ]
    with load(LOAD_PER_CORE * (os.cpu_count() or 1)):
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def changed(base: str) -> list[str]:
    """The files that differ from where this branch left `base`; on `base`, from the commit before.

    Args:
        base: name of a branch.

    Returns:
        Paths below the repository's top, those not committed included.
    """
    fork = _git("merge-base", "HEAD", base).strip()
    if fork == _git("rev-parse", "HEAD").strip():
        fork = "HEAD~"
    differ = _git("diff", "--name-only", fork).splitlines()
    new = _git("ls-files", "--others", "--exclude-standard").splitlines()
    return sorted({*differ, *new})


def touched(files: list[str], root: Path) -> list[str]:
    """The tests that belong to changed files: themselves, or those of their room.

    Args:
        files: paths below `root`.
        root: the repository's top.

    Returns:
        Test files and folders of tests that exist, without those that lie in another one.
    """
    found: set[str] = set()
    for name in files:
        path = PurePath(name)
        if path.suffix != ".py":
            continue
        if path.name.startswith("test_"):
            found.add(name)
        elif path.parts[0] == "msgnode" and len(path.parts) > 2:
            found.add(f"tests/{path.parts[1]}")
        elif path.parts[0] in ("policies", "registry", "spark"):
            found.add(f"tests/{path.parts[0]}")
    real = {name for name in found if (root / name).exists()}
    return sorted(
        name for name in real if not any(str(above) in real for above in PurePath(name).parents)
    )


@contextmanager
def load(number: int) -> Iterator[None]:
    """So many processes that compute without end, while the block runs."""
    burners = [
        subprocess.Popen(
            [sys.executable, "-c", "while True: pass"],
            preexec_fn=lambda: tie(signal.SIGKILL),
        )
        for _ in range(number)
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
