"""`manage.py policy_test FILE`: evaluate cases; needs no database."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser

from policies.authoring.cases import DOCUMENT_KEYS, run_case
from policies.authoring.transfer import read_bundle
from policies.enforcement.snapshot import make_snapshot
from policies.engine.language import PolicyError


class Command(BaseCommand):
    """Cases are lines of JSON: message, circumstances, decision expected."""

    help = (
        "Evaluate policy cases (one JSON object a line) and print `N passed, N failed` as the last "
        "line; the exit status is 1 if any failed. Example: manage.py policy_test cases.jsonl; "
        "with --policies FILE, cases without a document of their own are tested against FILE."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """FILE and what cases without a document are about."""
        parser.add_argument("file", help="lines of JSON, - for standard input")
        parser.add_argument("--policies", help="a policy file for cases without a document")
        parser.add_argument("--json", action="store_true", help="one JSON object a case")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run every case."""
        snapshot = None
        if options["policies"]:
            with refusals_told():
                bundle = read_bundle(text_of_file(options["policies"]))
                snapshot = make_snapshot(bundle.document, bundle.lists).enforced
        passed = failed = 0
        for number, line in enumerate(text_of_file(options["file"]).splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                case = msgspec.json.decode(line)
                if not isinstance(case, dict):
                    raise msgspec.DecodeError("a case is a JSON object")
            except (msgspec.DecodeError, RecursionError) as error:
                failed += 1
                self.stdout.write(f"FAILED line {number}: {error}")
                continue
            own = any(key in case for key in DOCUMENT_KEYS)
            result = run_case(case, None if own else snapshot)
            failed += bool(result.faults)
            passed += not result.faults
            if options["json"]:
                decision = result.outcome.effect.value if result.outcome else None
                told = {"id": result.id, "decision": decision, "faults": result.faults}
                self.stdout.write(json.dumps(told))
            elif result.faults:
                self.stdout.write(f"FAILED {result.id}: {'; '.join(result.faults)}")
        self.stdout.write(f"{passed} passed, {failed} failed")
        if failed:
            sys.exit(1)


@contextmanager
def refusals_told() -> Iterator[None]:
    """Policies that are refused end the command, with every error in them."""
    try:
        yield
    except PolicyError as error:
        raise CommandError("\n".join(map(str, error.problems))) from error


def text_of_file(name: str) -> str:
    """The text of a file, or of standard input for -."""
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name} cannot be read: {error}") from error
