"""Builds the command line and the environment of Spark's programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.conf import settings

from spark import cluster, java


def command_start(program: str) -> tuple[list[str], list[str]]:
    """How a program of Spark's begins, and the settings that follow its own words."""
    options = settings.REPORTS
    conf = {"spark.master": options["MASTER"], "spark.driver.memory": options["MEMORY"]}
    conf |= cluster.resources(options)
    conf |= dict(pair.split("=", 1) for pair in options["CONF"])
    path = str(Path(__file__).with_name(program))
    if options["SUBMIT"]:
        return [options["SUBMIT"], *(f"--conf={k}={v}" for k, v in conf.items()), path], []
    return [sys.executable, path], [
        word for name, value in conf.items() for word in ("--conf", f"{name}={value}")
    ]


def environment(temporary: Path) -> dict[str, str]:
    """The environment of a program of Spark's.

    Args:
        temporary: the folder of its temporary files, which a Java that is killed leaves behind.

    Raises:
        java.NoJava: there is none.
    """
    named = settings.REPORTS["PYTHON"]
    more = os.environ.get("SPARK_SUBMIT_OPTS", "")
    own = {
        "TMPDIR": str(temporary),
        "LC_ALL": "C.UTF-8",  # or Java could not name files with other letters than ASCII's
        "SPARK_SUBMIT_OPTS": f'"-Djava.io.tmpdir={temporary}" {more}'.strip(),
    }
    return java.environment(settings.DATA_DIR) | own | ({"PYSPARK_PYTHON": named} if named else {})
