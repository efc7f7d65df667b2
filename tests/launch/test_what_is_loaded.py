"""A program of the node loads what it needs: Spark is for the processes that reports run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import ROOT

MODULES = ("spark.tasks", "msgnode.celery", "msgnode.asgi")
CELERY = "import msgnode.celery; msgnode.celery.app.loader.import_default_modules()"
ASKED = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 0)"
COMMAND = f"""
import sys
from msgnode.command_line import main
sys.argv = ["manage.py", "shell", "-v0", "-c", {ASKED!r}]
main()
"""
LAUNCHER = "from msgnode.management.commands.run import Command"


def loaded(lines: str, tmp_path: Path) -> list[str]:
    """The words that these lines of Python print."""
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, timeout=100,
        env={"PATH": "/usr/bin:/bin", "DATA_DIR": str(tmp_path), "CELERY_SKIP_CHECKS": "1",
             "DJANGO_SETTINGS_MODULE": "msgnode.settings"},
        check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_no_program_of_the_node_loads_spark_at_its_start(tmp_path: Path) -> None:
    """One after the other in one process: the first that loads it is named."""
    lines = (
        "import django, importlib, sys; django.setup()\n"
        f"for name in {MODULES!r}:\n"
        "    importlib.import_module(name)\n"
        "    print(name, 'pyspark' in sys.modules)"
    )
    assert loaded(lines, tmp_path)[-6:] == [word for name in MODULES for word in (name, "False")]


@pytest.mark.parametrize(
    ("program", "late"),
    [
        (CELERY, ("pyarrow", "numpy", "msgnode.urls")),
        (LAUNCHER, ("pyarrow", "celery.app.task", "msgnode.models", "redis")),
    ],
    ids=["worker and beat", "manage.py run"],
)
def test_what_a_start_does_not_need_is_loaded_by_who_asks(
    tmp_path: Path, program: str, late: tuple[str, ...]
) -> None:
    lines = f"{program}\nimport sys\nprint(*[each for each in {late!r} if each in sys.modules])"
    assert loaded(lines, tmp_path) == []


def test_a_command_collects_garbage_once_it_is_loaded_and_only_its_own(tmp_path: Path) -> None:
    assert loaded(COMMAND, tmp_path) == ["True", "True"]
