"""A session of Spark on this machine alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark import java
from tests.node import ROOT

COUNT = (
    "from spark.job_main import session\n"
    "print('counted', session({'spark.master': 'local[1]'}).range(3).count())"
)


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
