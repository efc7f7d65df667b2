"""The traffic record, and the reports made of it."""

from __future__ import annotations

from typing import Any

from .environment import DATA_DIR, env

RECORD: dict[str, Any] = {
    "ON": env.bool("RECORD", default=True),
    "URL": env("RECORD_URL", default=str(DATA_DIR / "record")),
    "FLUSH_SECONDS": env.float("RECORD_FLUSH_SECONDS", default=3.0),
    "BUFFER_ROWS": env.int("RECORD_BUFFER_ROWS", default=200_000),
    "MAX_BYTES": env.int("RECORD_MAX_BYTES", default=20 * 1024**3),
    "MIN_FREE_BYTES": env.int("RECORD_MIN_FREE_BYTES", default=512 * 1024**2),
    "PSEUDONYM_KEY": env("RECORD_PSEUDONYM_KEY", default=""),
    "RAW_DAYS": env.int("RECORD_RAW_DAYS", default=30),
    "ROLL_UP_DAYS": env.int("RECORD_ROLL_UP_DAYS", default=800),
}
REPORTS: dict[str, Any] = {
    "MASTER": env("SPARK_MASTER", default="local[*]"),
    "MEMORY": env("SPARK_MEMORY", default="2g"),
    "CONF": env.list("SPARK_CONF", default=[]),
    "PYTHON": env("PYSPARK_PYTHON", default=""),
    "EXECUTOR_MEMORY": env("SPARK_EXECUTOR_MEMORY", default=""),
    "EXECUTOR_CORES": env("SPARK_EXECUTOR_CORES", default=""),
    "CORES": env("SPARK_CORES_MAX", default=""),
    "EXECUTOR_WAIT": env.float("SPARK_EXECUTOR_WAIT_SECONDS", default=60.0),
    "SUBMIT": env("SPARK_SUBMIT", default=""),
    "KEEP_CLASSES": env.bool("SPARK_KEEP_CLASSES", default=True),
    "NICENESS": env.int("SPARK_NICENESS", default=10),
    "TIME_LIMIT": env.float("REPORT_TIME_LIMIT", default=3300.0),
    "HOURLY_KEPT_DAYS": env.int("REPORT_HOURLY_KEPT_DAYS", default=35),
    "KEPT_DAYS": env.int("REPORT_KEPT_DAYS", default=1100),
}
