"""`manage.py policy_import FILE`: put the sets of a policy file into the draft."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from policies.authoring import pap, presets
from policies.authoring.drafts import add_bundle, draft_document, replace_draft, warnings_of
from policies.authoring.transfer import Bundle, read_bundle
from policies.models import PolicySet

from .policy_test import refusals_told, text_of_file


class Command(BaseCommand):
    """Sets of the same id are replaced, others stay (unless --replace)."""

    help = (
        "Put the policy sets of a JSON file into the draft, in place of sets of the same id. "
        "Example: manage.py policy_import policy.json --mode shadow --publish --note 'spring'; "
        "or manage.py policy_import --readymade rate-limits --mode shadow"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """FILE and what to do with it."""
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("file", nargs="?", help="a policy file, - for standard input")
        source.add_argument(
            "--readymade", choices=presets.names(), help="a file that comes with the node"
        )
        parser.add_argument("--mode", choices=PolicySet.Mode.values, help="mode of the sets")
        parser.add_argument("--replace", action="store_true", help="drop the rest of the draft")
        parser.add_argument("--publish", action="store_true", help="publish the draft at once")
        parser.add_argument("--note", default="", help="note of the version")

    def handle(self, *args: Any, **options: Any) -> None:
        """Import, all or nothing. The file is read first: a slow one must not hold others up."""
        with refusals_told():
            if options["readymade"]:
                bundle = presets.bundle(options["readymade"])
            else:
                bundle = read_bundle(text_of_file(options["file"]))
        self._put(bundle, options)

    @transaction.atomic
    def _put(self, bundle: Bundle, options: dict[str, Any]) -> None:
        with refusals_told():
            if options["replace"]:
                mode = {"mode": options["mode"]} if options["mode"] else {}
                document = [{**each, **mode} for each in bundle.document]
                replace_draft(document, dict(bundle.lists))
            else:
                add_bundle(bundle, options["mode"], keep_lists=bool(options["readymade"]))
        for warning in warnings_of(bundle):
            self.stderr.write(f"Accepted, but written differently here: {warning}")
        self.stdout.write(f"The draft has {len(draft_document())} sets.")
        if options["publish"]:
            try:
                version = pap.publish(None, options["note"])
            except (pap.NotFit, pap.ChangedMeanwhile) as error:
                raise CommandError(str(error)) from error
            self.stdout.write(f"Version {version.number} is published.")
