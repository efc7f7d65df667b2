"""`manage.py policy_export`: write the draft or a version as a policy file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from policies.authoring.drafts import draft_document, draft_lists
from policies.authoring.transfer import write_bundle
from policies.models import Version


class Command(BaseCommand):
    """The version in force by default."""

    help = (
        "Write the policies in force (or --draft, or --version-number N) as a JSON file with hash. "
        "Example: manage.py policy_export --output policies.json"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """What to write, and where."""
        parser.add_argument("--draft", action="store_true", help="export the draft")
        parser.add_argument("--version-number", type=int, help="export this published version")
        parser.add_argument("--output", help="a file; standard output if left out")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write."""
        if options["draft"]:
            text = write_bundle(draft_document(), draft_lists())
        else:
            versions = Version.objects.order_by("-number")
            if options["version_number"] is not None:
                versions = versions.filter(number=options["version_number"])
            version = versions.first()
            if version is None:
                raise CommandError("There is no such published version.")
            text = write_bundle(version.document, version.lists, version.number)
        if options["output"]:
            Path(options["output"]).write_text(text, encoding="utf-8")
        else:
            self.stdout.write(text, ending="")
