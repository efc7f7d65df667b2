"""The command: `python -m bench [PART …] [--rounds N] [--quick]`.

Runs the parts named (or those in PART, or all) one after another, on the loopback interface and in
a temporary directory. Prints each as a table and writes var/bench/<part>.json; a quick run writes
to var/bench/quick/.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from . import report
from .conditions import conditions
from .figures import PartResult
from .parts import PARTS, QUICK_PARTS
from .plan import Plan
from .processes import RESULTS, raise_file_limit
from .servers import Servers

_BUSY = 0.6  # share of a core


def main() -> int:
    """The exit status: 0, whatever the figures; 1 if a part could not be measured."""
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, help="rounds of each measurement (5; quick: 2)")
    parser.add_argument("--seconds", type=float, help="length of one sample (1.0; quick: 0.4)")
    parser.add_argument(
        "--quick", action="store_true", help="fewer parts and sizes, about a minute"
    )
    options = parser.parse_args()
    named = options.parts or os.environ.get("PART", "").split()
    unknown = set(named) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended too
    raise_file_limit()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        plan = Plan(
            servers=Servers(Path(directory)),
            rounds=options.rounds or (2 if options.quick else 5),
            seconds=options.seconds or (0.4 if options.quick else 1.0),
            quick=options.quick,
        )
        for name in named or (QUICK_PARTS if options.quick else PARTS):
            failed += not _run(name, plan)
    return 1 if failed else 0


def _run(name: str, plan: Plan) -> bool:
    surroundings = conditions()
    surroundings |= {"rounds": plan.rounds, "seconds_per_sample": plan.seconds, "quick": plan.quick}
    try:
        result = PARTS[name](plan)
    except RuntimeError as error:
        sys.stderr.write(f"{name} could not be measured: {error}\n")
        return False
    _warn_if_busy(result)
    load = ", ".join(map(str, surroundings["load_average"]))
    machine = f"{surroundings['cores']} cores, {surroundings['cpu']}"
    caption = f"{machine}, load {load}, {plan.rounds} rounds"
    sys.stdout.write(f"{report.table(result)}  ({caption})\n\n")
    report.write(result, surroundings, RESULTS / "quick" if plan.quick else RESULTS)
    return True


def _warn_if_busy(result: PartResult) -> None:
    """Say so where neither server nor generator had the processor it wanted."""
    for case in result.cases:
        used = [*case.values("server_cpu"), *case.values("generator_cpu")]
        if (
            used
            and max(used) < _BUSY
            and any(each.key == "per_cpu_second" for each in result.ratios)
        ):
            result.notes.append(
                "The machine was busy with something else: rates are lower than they could be; "
                "ratios of per_cpu_second (work per second of the server's processor) hold."
            )
            return


if __name__ == "__main__":
    sys.exit(main())
