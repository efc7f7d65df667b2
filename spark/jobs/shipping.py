"""Sends the jobs' own code to the executors: a zip made of this package, given to Spark.

Executors need Python with pyspark, pyarrow and pandas, and nothing of the node: the modules of
`spark.jobs` come with each run, so that the code is always that of the run.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

_PACKAGE = Path(__file__).resolve().parent
NAME = "report-jobs.zip"


def ship(spark: SparkSession) -> None:
    """Give the executors of this session the package. Once is enough, twice does no harm."""
    context = spark.sparkContext
    made = Path(context._temp_dir) / NAME  # Spark deletes it at its end
    if not made.exists():
        write(made)
        context.addPyFile(str(made))


def write(zipped: Path) -> None:
    """Write `spark.jobs` to a zip from which it can be imported."""
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(_PACKAGE.parent / "__init__.py", "spark/__init__.py")
        for source in sorted(_PACKAGE.glob("*.py")):
            archive.write(source, f"spark/jobs/{source.name}")
