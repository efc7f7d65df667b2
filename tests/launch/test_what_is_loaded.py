"""A program of the node loads what it needs: Spark is for the processes that reports run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import ROOT


@pytest.mark.parametrize("module", ["msgnode.asgi", "msgnode.celery", "spark.tasks"])
def test_no_program_of_the_node_loads_spark_at_its_start(module: str, tmp_path: Path) -> None:
    lines = (
        "import django, importlib, sys; django.setup(); "
        f"importlib.import_module({module!r}); print('pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, timeout=100,
        env={"PATH": "/usr/bin:/bin", "DATA_DIR": str(tmp_path),
             "DJANGO_SETTINGS_MODULE": "msgnode.settings"},
        check=True,
    )  # fmt: skip
    assert done.stdout.split()[-1] == "False"
