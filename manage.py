#!/usr/bin/env python
"""The command line of the node: `manage.py help` lists what it can do."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        settings.DEBUG  # noqa: B018  (reads the settings: a fault there is a line, not a traceback)
    except (ImproperlyConfigured, OSError) as fault:
        sys.exit(f"manage.py: {fault}")
    from msgnode.console.actor import acting_as

    with acting_as(f"manage.py {sys.argv[1] if len(sys.argv) > 1 else ''}"):
        execute_from_command_line(sys.argv)
