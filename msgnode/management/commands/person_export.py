"""Write out everything the node keeps about a person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from msgnode.console import persons
from msgnode.console.command_base import Tool, not_as_it_should_be


class Command(Tool):
    help = "Write all data stored about a person as JSON. Exit status 1 if there are none."
    example = (
        "  manage.py person_export alice@example.org --output alice.json\n"
        "  manage.py person_export 248289 --issuer https://accounts.example.org --json"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("person", help="e-mail address, user name, user URL or GUID")
        parser.add_argument(
            "--issuer", default="", help="issuer, if the person is given as its subject"
        )
        parser.add_argument("--output", type=Path, help="a file, readable by its owner only")

    def handle(self, *_args: Any, **options: Any) -> None:
        names = persons.names_of(options["person"], options["issuer"])
        told = persons.export(names) if names else {}
        if not any(persons.count(told).values()):
            raise not_as_it_should_be("Nothing is kept under this name.")
        if options["output"]:
            options["output"].touch(mode=0o600)
            text = json.dumps(told, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)
            options["output"].write_text(text + "\n")
            self.stdout.write(f"Written to {options['output']}.")
        else:
            self.say_json(told)
