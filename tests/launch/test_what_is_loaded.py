"""A program of the node loads what it needs: Spark is for the processes that reports run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.node import ROOT

MODULES = ("spark.tasks", "msgnode.celery", "msgnode.asgi")


def test_no_program_of_the_node_loads_spark_at_its_start(tmp_path: Path) -> None:
    """One after the other in one process: the first that loads it is named."""
    lines = (
        "import django, importlib, sys; django.setup()\n"
        f"for name in {MODULES!r}:\n"
        "    importlib.import_module(name)\n"
        "    print(name, 'pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, timeout=100,
        env={"PATH": "/usr/bin:/bin", "DATA_DIR": str(tmp_path),
             "DJANGO_SETTINGS_MODULE": "msgnode.settings"},
        check=True,
    )  # fmt: skip
    assert done.stdout.split()[-6:] == [word for name in MODULES for word in (name, "False")]
