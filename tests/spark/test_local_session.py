"""A session of Spark on this machine alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark import java, job_main
from tests.node import ROOT

COUNT = (
    "from spark.job_main import session\n"
    "print('counted', session({'spark.master': 'local[1]'}).range(3).count())"
)


class Builder:
    """Takes the settings of a session, and starts none."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def config(self, name: str, value: str) -> Builder:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> None:  # noqa: N802  (Spark's name)
        return None


@pytest.mark.parametrize("master", ["local[2]", "spark://m:7077"])
def test_it_is_reached_from_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    builder: Any = Builder()
    monkeypatch.setattr(job_main.SparkSession, "builder", builder)
    monkeypatch.setattr(job_main.shipping, "ship", lambda _: None)
    monkeypatch.setattr(os, "environ", {})
    job_main.session({"spark.master": master})
    expected = "127.0.0.1" if master.startswith("local") else None
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        assert builder.settings.get(name) == expected
    assert os.environ.get("SPARK_LOCAL_IP") == expected


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can name a machine")
def test_it_starts_where_the_machines_own_name_leads_nowhere(tmp_path: Path) -> None:
    name = ["unshare", "--uts", "sh", "-c", 'hostname nobody.invalid && exec "$@"', "sh"]
    done = subprocess.run(
        [*name, sys.executable, "-c", COUNT],
        env={**os.environ, **java.environment(tmp_path)},
        cwd=ROOT, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert "counted 3" in done.stdout, done.stderr
