"""The ledger of the message path: `python -m bench.ledger [--before REVISION] [--rounds N]`.

Five figures of this version, as ratios to an earlier version and to a plain Node.js relay that are
measured in the same run, in turns; about four minutes on an idle machine. The run is written into
bench/ledger.json, in place of the last one of the same processor. A test compares the digest
there with the message path as it is: who changes what every message runs through measures again.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import report
from .conditions import conditions
from .driver import Generator
from .figures import PartResult, ratio
from .identity import Authority
from .others import NODEJS, nodejs
from .plan import Plan
from .processes import ROOT, raise_file_limit
from .servers import NODE, NODE_STRICT, Servers
from .traffic_mix import CONVERSATIONS, SESSIONS

LEDGER = ROOT / "bench" / "ledger.json"
RELEASE = "fce6bb3"
"""The version of 2026-11-21, until there is a release."""
MESSAGE_PATH = (
    "msgnode/bus/*.py",
    "msgnode/core/addresses.py",
    "msgnode/core/bounded_cache.py",
    "msgnode/core/envelope.py",
    "msgnode/core/message_types.py",
    "msgnode/core/messages.py",
    "msgnode/core/rates.py",
    "msgnode/core/record.py",
    "msgnode/core/redaction.py",
    "msgnode/core/token_bucket.py",
    "msgnode/policy/*.py",
    "msgnode/servers/connection_rounds.py",
    "msgnode/servers/cork.py",
    "msgnode/servers/daphne_link.py",
    "msgnode/servers/daphne_reactor.py",
    "msgnode/servers/socket_link.py",
    "msgnode/servers/text_frames.py",
    "msgnode/sessions/connection.py",
    "msgnode/sessions/frame_connection.py",
    "msgnode/sessions/flow_control.py",
    "msgnode/sessions/outbox.py",
    "msgnode/sessions/session.py",
    "msgnode/sessions/turn_queue.py",
    "policies/engine/*.py",
)
"""What runs for every message."""
BEFORE = "before"
OBSERVERS = 1_000
LOADS: dict[str, tuple[str, dict[str, Any], float]] = {
    "10 pairs × window 10, 100 B": ("relay", {"pairs": 10, "window": 10, "size": 100}, 1),
    "10 pairs × window 10, 10 KB": ("relay", {"pairs": 10, "window": 10, "size": 10_000}, 1),
    "1 pair × window 1, 100 B": ("relay", {"pairs": 1, "window": 1, "size": 100}, 1),
    "1 → 1,000 observers, 10 updates under way": (
        "fan_out",
        {"observers": OBSERVERS, "window": 10, "size": 100, "sizes": [OBSERVERS]},
        1,
    ),
    "varied, strict, about 100 B": (
        "varied",
        {"mix": CONVERSATIONS, "size": 100, "window": 100},
        3,
    ),
}
"""By title: the generator's command, its arguments, and how long a sample of it is."""
OF_STRICT = "varied"
KEYS = ("rate", "per_cpu_second")


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser("python -m bench.ledger", description=__doc__)
    parser.add_argument("--before", default=RELEASE, metavar="REVISION")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--dry", action="store_true", help="print only, write nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended too
    raise_file_limit()
    surroundings = conditions()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        place = Path(directory)
        plan = Plan(Servers(place), options.rounds, options.seconds, quick=False)
        result = measure(plan, checkout(options.before, place / "checkout"))
    sys.stdout.write(f"{report.table(result)}  (load {surroundings['load_average']})\n")
    if not options.dry:
        enter(result, surroundings, options.before)
    return 0


def checkout(revision: str, place: Path) -> Path:
    """The files of an earlier version."""
    place.mkdir()
    archive = subprocess.Popen(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", str(place)], stdin=archive.stdout, check=True)
    if archive.wait():
        raise SystemExit(f"git does not know {revision}: fetch the whole history first.")
    return place


def measure(plan: Plan, before: Path) -> PartResult:
    """All loads on this version, the one before and Node.js, in turns."""
    result = PartResult("ledger", "This version, an earlier one and Node.js")
    authority = Authority()
    tokens = [authority.token(f"user{number}") for number in range(SESSIONS)]
    versions = {NODE: plan.servers, BEFORE: Servers(plan.servers.directory / BEFORE, before)}
    with ExitStack() as stack:
        usual, strict = dict[str, Generator](), dict[str, Generator]()
        for name, servers in versions.items():
            servers.directory.mkdir(exist_ok=True)
            made = servers.make(NODE), servers.make(NODE_STRICT, issuer=authority.row())
            usual[name], strict[name] = (
                stack.enter_context(Generator(stack.enter_context(server))) for server in made
            )
        other = nodejs(plan.servers.directory)
        if other is None:
            raise SystemExit("Node.js with `ws` is needed, which is not here.")
        strict[NODEJS] = usual[NODEJS] = stack.enter_context(Generator(stack.enter_context(other)))
        for title, (do, load, length) in LOADS.items():
            generators = strict if do == OF_STRICT else usual
            for turn in plan.rotations([*generators]):
                for name in turn:
                    is_known = do == OF_STRICT and name != NODEJS
                    logins = {"tokens": tokens} if is_known else {}
                    sample = generators[name].call(
                        do, seconds=length * plan.seconds, **load, **logins
                    )
                    result.case(title, name).samples.append(sample)
            plan.say(title)
            for name in (BEFORE, NODEJS):
                mine, theirs = result.case(title, NODE), result.case(title, name)
                result.ratios += [ratio(mine, theirs, key) for key in KEYS]
    return result


def enter(result: PartResult, surroundings: dict[str, Any], before: str) -> None:
    """Write a run into the ledger."""
    figures: dict[str, Any] = {}
    for each in result.ratios:
        spread = [
            round(value, 2) for value in (each.spread.median, each.spread.low, each.spread.high)
        ]
        figures.setdefault(each.case, {})[f"{each.key} : {each.under}"] = spread
    run = {key: surroundings[key] for key in ("at", "revision", "cpu", "load_average", "python")}
    run |= {"before": before, "message_path": digest(), "median_low_high": figures}
    runs = [each for each in entries() if each["cpu"] != run["cpu"]]
    LEDGER.write_text(json.dumps([run, *runs], indent=1, ensure_ascii=False) + "\n")


def entries() -> list[dict[str, Any]]:
    """The last run of each kind of processor, the latest first."""
    return json.loads(LEDGER.read_text()) if LEDGER.exists() else []


def digest() -> str:
    """The message path as one number: its code, without comments and docstrings."""
    summed = hashlib.sha256()
    for path in sorted(path for each in MESSAGE_PATH for path in ROOT.glob(each)):
        summed.update(f"{path.relative_to(ROOT)}\n".encode())
        summed.update("\n".join(_code(path.read_text())).encode())
    return summed.hexdigest()


def _code(source: str) -> Iterator[str]:
    """The lines of code, without those that only comment, and without docstrings."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(source.splitlines(), 1):
        code = line.partition("  #")[0].strip()
        if number not in skipped and code and not code.startswith("#"):
            yield code


if __name__ == "__main__":
    sys.exit(main())
