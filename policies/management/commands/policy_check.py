"""`manage.py policy_check [FILE]`: is the draft, or a file, fit for publication?"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from policies.authoring import pap
from policies.authoring.drafts import draft_lists
from policies.authoring.transfer import read_bundle

from .policy_test import refusals_told, text_of_file


class Command(BaseCommand):
    """Reads, compiles, runs the policies' own tests; changes nothing."""

    help = (
        "Check a policy file, or the draft if none is named: its form and the policies' own tests. "
        "Exit status 1 if it may not be published. Example: manage.py policy_check policy.json"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """FILE, if any."""
        parser.add_argument("file", nargs="?", help="a policy file; the draft if left out")
        parser.add_argument("--json", action="store_true", help="the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check and tell."""
        if options["file"]:
            with refusals_told():
                bundle = read_bundle(text_of_file(options["file"]))
            report = pap.check(bundle.document, {**draft_lists(), **bundle.lists})
            warnings = [*bundle.warnings, *report.warnings]
        else:
            report = pap.check_draft()
            warnings = [*report.warnings]
        faults = [str(problem) for problem in report.problems] + list(report.failures)
        if options["json"]:
            told = {
                "fit": report.is_fit,
                "faults": faults,
                "warnings": [str(warning) for warning in warnings],
                "passed": report.passed,
            }
            self.stdout.write(json.dumps(told))
        else:
            for warning in warnings:
                self.stderr.write(f"Accepted, but written differently here: {warning}")
        if faults:
            raise CommandError("\n".join(faults))
        rules = report.snapshot.enforced.rules if report.snapshot else 0
        if not options["json"]:
            self.stdout.write(f"Fit: {rules} enforced rules, {report.passed} tests passed.")
