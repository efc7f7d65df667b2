"""The command line of the node: `manage.py` in a checkout, `messaging-node` when installed."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command that the arguments name."""
    gc.disable()  # a start makes little garbage, and looking for it takes a fifth of its time
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")
    import django
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        settings.DEBUG  # noqa: B018  (reads the settings: a fault there is a line, not a traceback)
    except (ImproperlyConfigured, OSError) as fault:
        sys.exit(f"{Path(sys.argv[0]).name}: {fault}")
    from django.db import DatabaseError

    from msgnode.console.actor import acting_as

    with acting_as(f"manage.py {sys.argv[1] if len(sys.argv) > 1 else ''}"):
        if sys.argv[1:] == ["run"]:
            from msgnode.management.commands.run import Command

            gc.enable()
            Command().run_from_argv(sys.argv)  # loads the apps if it needs them
        else:
            try:
                django.setup()
                gc.freeze()  # what was loaded is looked through neither later nor at the end
                gc.enable()
                execute_from_command_line(sys.argv)
            except DatabaseError as fault:
                if "--traceback" in sys.argv or sys.argv[1] in ("shell", "test"):
                    raise
                first = (str(fault).strip().splitlines() or ["no reason given"])[0]
                sys.exit(f"{Path(sys.argv[0]).name}: the database refuses: {first}")
