"""Write out everything the node keeps about a person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from .person_erase import OfAPerson


class Command(OfAPerson):
    help = "Write all data stored about a person as JSON. Exit status 1 if there are none."
    example = (
        "  manage.py person_export alice@example.org --output alice.json\n"
        "  manage.py person_export 248289 --issuer https://accounts.example.org --json"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--output", type=Path, help="a file, readable by its owner only")

    def handle(self, *_args: Any, **options: Any) -> None:
        _, told = self.find(options)
        if options["output"]:
            options["output"].touch(mode=0o600)
            text = json.dumps(told, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)
            options["output"].write_text(text + "\n")
            self.stdout.write(f"Written to {options['output']}.")
        else:
            self.say_json(told)
