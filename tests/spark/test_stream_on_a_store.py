"""The stream over a record in a real object store: the numbers of a schedule over a disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours, reservations, sessions
from spark import java, stream_main
from tests.object_store import ObjectStore
from tests.spark.test_stream import HOME, Reports, by_batch, this_hour
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
SECONDS = 150.0


@pytest.fixture
def environment(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    return object_store


class Follower:
    """The stream's process, as `manage.py report_stream` starts it, and what it has handed over."""

    def __init__(self, url: str, place: Path) -> None:
        self.results = place / "results"
        self.results.mkdir(exist_ok=True)
        self._place = place
        self._command = [
            sys.executable, stream_main.__file__, "--record", url, "--home", HOME,
            "--checkpoint", str(place / "checkpoint"), "--results", str(self.results),
            "--every", "1", "--conf", "spark.master=local[2]", "--conf", "spark.driver.memory=1g",
        ]  # fmt: skip

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """While the block runs; then killed, with all that it has started."""
        with (self._place / "stream.log").open("a") as log:
            started = subprocess.Popen(
                self._command, env=java.environment(self._place), stdout=log, stderr=log,
                start_new_session=True, text=True,
            )  # fmt: skip
        try:
            yield started
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait(60)

    def latest(self) -> Reports:
        found: dict[str, Any] = {}
        for path in sorted(self.results.glob("*.json")):
            found |= {each["start"]: each for each in json.loads(path.read_text())["reports"]}
        return found

    def log(self) -> str:
        return (self._place / "stream.log").read_text()[-3000:]


def test_the_stream_follows_a_record_in_an_object_store_and_goes_on_after_a_kill(
    spark: SparkSession, environment: ObjectStore, tmp_path: Path
) -> None:
    now = this_hour()
    before = now - timedelta(hours=1)
    record = tmp_path / "record"
    follower = Follower(environment.url, tmp_path)

    def fill(hour: Any, seed: int) -> None:
        """The same rows in the store and on the disk."""
        plan = Plan(2_400, 1, seed, hour + timedelta(hours=1))
        for place in (str(record), environment.url):
            files = RecordFiles(f"{place}/raw", f"w{seed}", max_bytes=1 << 40, min_free=0)
            for made in (hours(plan), sessions(plan), reservations(plan)):
                files.write(int(hour.timestamp()), dict(made)[hour])

    def same(process: subprocess.Popen[str]) -> None:
        expected = by_batch(spark, record, before, now + timedelta(hours=1))

        def is_so() -> bool:
            assert process.poll() is None, follower.log()
            return follower.latest() == expected

        until(is_so, SECONDS)

    fill(before, 1)
    fill(now, 2)
    with follower.running() as process:
        same(process)
        fill(now, 3)
        fill(before, 4)  # late
        same(process)
    fill(now, 5)  # while nobody follows
    with follower.running() as process:
        same(process)
