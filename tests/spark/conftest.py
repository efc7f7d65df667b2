"""One small Spark session for all tests of jobs, and a record to fill."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import java, job_main, report_runs

DAY = datetime(2026, 11, 19, tzinfo=UTC)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    logging.getLogger("py4j").setLevel(logging.WARNING)
    place = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", java.environment(place)["JAVA_HOME"])
        session = job_main.session(
            {
                "spark.master": "local[2]",
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(place),
            }
        )
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def _get_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other tests a run that yields to them would hardly get on."""
    monkeypatch.setattr(report_runs, "NICENESS", 0)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record"
