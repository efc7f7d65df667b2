"""The command line of the node: `manage.py` in a checkout, `messaging-node` when installed."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

from msgnode import celery_apps
from msgnode.resources import version

WITHOUT_APPS = frozenset({"run", "first_conversation", "node_send", "node_tail"})
"""Commands that need settings and no models: `run` loads the apps if it has to."""
WITHOUT_CELERY = frozenset(
    {
        *("", "help", "doctor", "node_status", "peers", "provider_key", "turn_secret"),
        *("definitions_export", "definitions_import"),
        *("policy_check", "policy_export", "policy_import", "policy_test"),
        *("guid_create", "guid_sign", "registry_expire", "spark_master", "spark_worker"),
    }
)
"""Commands that look at models of their own only: Celery's need not be loaded."""


def main() -> None:
    """Run the command that the arguments name."""
    gc.disable()  # a start makes little garbage, and looking for it takes a fifth of its time
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")
    if sys.argv[1:2] in (["version"], ["--version"]):  # else it would be that of Django
        print(version())
        return
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

    name = sys.argv[1] if len(sys.argv) > 1 else ""
    with acting_as(f"manage.py {name}"):
        if name in WITHOUT_APPS:
            command = import_module(f"msgnode.management.commands.{name}").Command()
            gc.enable()
            command.run_from_argv(sys.argv)
        else:
            try:
                if name in WITHOUT_CELERY or not {"-h", "--help"}.isdisjoint(sys.argv):
                    celery_apps.defer()
                django.setup()
                gc.freeze()  # what was loaded is looked through neither later nor at the end
                gc.enable()
                execute_from_command_line(sys.argv)
            except DatabaseError as fault:
                if "--traceback" in sys.argv or sys.argv[1] in ("shell", "test"):
                    raise
                from msgnode.core.database_errors import first_line

                said = first_line(fault)
                sys.exit(f"{Path(sys.argv[0]).name}: the database refuses: {said}")
