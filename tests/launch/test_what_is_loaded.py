"""A program of the node loads what it needs: Spark is for the processes of reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import ROOT


@pytest.mark.parametrize(
    ("module", "unloaded"),
    [
        ("msgnode.asgi", ("pyspark",)),
        ("msgnode.celery", ("pyspark",)),
        ("msgnode.management.commands.run", ("pyspark", "pyarrow", "twisted", "unfold")),
    ],
)
def test_no_program_of_the_node_loads_at_its_start_what_it_does_not_need(
    module: str, unloaded: tuple[str, ...], tmp_path: Path
) -> None:
    setup = "" if module.endswith(".run") else "django.setup(); "
    lines = (
        f"import django, importlib, sys; {setup}importlib.import_module({module!r}); "
        "app = getattr(sys.modules.get('msgnode.celery'), 'app', None); "
        "app and app.loader.import_default_modules(); "
        f"print([name for name in {unloaded!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, timeout=100,
        env={"PATH": "/usr/bin:/bin", "DATA_DIR": str(tmp_path),
             "DJANGO_SETTINGS_MODULE": "msgnode.settings"},
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
