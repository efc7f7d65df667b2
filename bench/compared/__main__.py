"""The command: `python -m bench.compared --before CHECKOUT [--python PROGRAM] [PART …]`.

Measures this version of the node beside one before, in turns, as two workers and more: what
docs/workers.md tells of both. CHECKOUT has the files of the version before, PROGRAM is a Python
with what these need. Each version has a Redis of its own and SQLite; for `freeze` PostgreSQL, where
there is one. Prints tables, and writes var/bench/compared/<part>.json.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from bench import report
from bench.conditions import conditions
from bench.figures import PartResult
from bench.parts.workers import redis_of
from bench.plan import Plan
from bench.postgres import PostgreSQL
from bench.processes import RESULTS, ROOT, raise_file_limit
from bench.servers import Servers

from .freeze import freeze
from .growth import answers, sessions
from .messages import Pairs, allocations, relay
from .versions import BEFORE, NOW, Version

OF_PAIRS: dict[str, Callable[[Plan, Sequence[Version], Pairs], PartResult]] = {
    "relay": relay,
    "allocation": allocations,
    "sessions": sessions,
    "answers": answers,
}
FREEZE = "freeze"


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser("python -m bench.compared", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join((*OF_PAIRS, FREEZE)))
    parser.add_argument("--before", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--python", default=sys.executable, metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer sessions; kept apart")
    options = parser.parse_args()
    parts = options.parts or [*OF_PAIRS, FREEZE]
    if unknown := set(parts) - {*OF_PAIRS, FREEZE}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended too
    raise_file_limit()
    surroundings = conditions()
    surroundings |= {"rounds": options.rounds, "before": _revision(options.before)}
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, ExitStack() as stack:
        servers = Servers(Path(directory))
        plan = Plan(servers, options.rounds, 0.5 if options.quick else 1.0, options.quick)
        versions = [
            stack.enter_context(_version(plan, BEFORE, options.before, options.python)),
            stack.enter_context(_version(plan, NOW, ROOT, sys.executable)),
        ]
        with ExitStack() as running:
            of_pairs = [each for each in OF_PAIRS if each in parts]
            pairs = Pairs(running, versions if of_pairs else [])
            for part in of_pairs:
                _tell(OF_PAIRS[part](plan, versions, pairs), surroundings, options.quick)
        if FREEZE in parts:
            _tell(freeze(plan, _on_postgresql(stack, plan, versions)), surroundings, options.quick)
    return 0


@contextmanager
def _version(plan: Plan, name: str, root: Path, program: str) -> Iterator[Version]:
    """A version with a Redis of its own."""
    directory = plan.servers.directory / name
    directory.mkdir()
    servers = Servers(directory, root.resolve(), program)
    with redis_of(Plan(servers, plan.rounds, plan.seconds, plan.quick)) as url:
        yield Version(name, servers, url)


def _on_postgresql(stack: ExitStack, plan: Plan, versions: Sequence[Version]) -> list[Version]:
    """The versions, each with a database of PostgreSQL; as they are where there is none."""
    server = PostgreSQL.found(plan.servers.directory)
    if server is None:
        return [*versions]
    stack.enter_context(server)
    with psycopg.connect(server.url, autocommit=True) as connection:
        for version in versions:
            connection.execute(f'CREATE DATABASE "{version.name}"'.encode())
    base = server.url.rpartition("/")[0]
    return [
        Version(each.name, each.servers, each.redis, f"{base}/{each.name}") for each in versions
    ]


def _revision(checkout: Path) -> str:
    asked = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
    return told.stdout.strip() or "unknown"


def _tell(result: PartResult, surroundings: dict[str, object], is_quick: bool) -> None:
    sys.stdout.write(f"{report.table(result)}\n")
    for case in result.cases:
        sys.stdout.write(f"  {case.name}, {case.server}: {_all_of(case.samples)}\n")
    sys.stdout.write("\n")
    sys.stdout.flush()
    report.write(result, surroundings, RESULTS / ("quick" if is_quick else "compared"))


def _all_of(samples: Sequence[dict[str, float]]) -> str:
    """Each figure of the samples, in the order of the rounds."""
    keys = samples[0] if samples else ()
    return "; ".join(
        f"{key} {' '.join(f'{sample[key]:.4g}' for sample in samples if key in sample)}"
        for key in keys
    )


if __name__ == "__main__":
    sys.exit(main())
