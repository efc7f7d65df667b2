"""A real cluster of Spark gives the figures of one machine, and what is amiss with it is named."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pyspark.sql import SparkSession

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours
from spark import cluster, java, job_main, report_runs
from spark.jobs import shipping
from spark.jobs.periods import Kind
from spark.models import Report, ReportRun
from tests.length import length
from tests.services import free_port
from tests.spark.conftest import DAY
from tests.spark.standalone import Standalone, standalone
from tests.waiting import until

on_a_cluster = [
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.django_db(transaction=True),
]
NEXT = DAY + timedelta(days=1)
ROWS = length(40_000, full=400_000)


def marked(test: Any) -> Any:
    for mark in on_a_cluster:
        test = mark(test)
    return test


# --- whether a master answers ---------------------------------------------------------------------
def test_where_nobody_listens_it_is_said_what_to_do() -> None:
    port = free_port()
    with pytest.raises(cluster.NoMaster) as told:
        cluster.check_master(f"spark://127.0.0.1:{port}")
    assert f"127.0.0.1:{port}: " in str(told.value)
    assert "manage.py spark_master" in str(told.value)
    assert "SPARK_MASTER" in str(told.value)


def test_a_master_that_is_frozen_is_no_master() -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        port = frozen.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(cluster.NoMaster, match="no answer within"):
            cluster.check_master(f"spark://127.0.0.1:{port}", 0.3)
        assert time.monotonic() - began < 10


def test_a_web_page_is_not_taken_for_a_master() -> None:
    with socket.create_server(("127.0.0.1", 0)) as page:

        def answer() -> None:
            link, _ = page.accept()
            with link:
                link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(cluster.NoMaster, match="a web page, not a master"):
            cluster.check_master(f"spark://127.0.0.1:{page.getsockname()[1]}")


@pytest.mark.parametrize("url", ["spark://", "spark://host", "spark://h:1:x", "spark://h:99999999"])
def test_what_is_no_address_of_a_master_is_named(url: str) -> None:
    with pytest.raises(cluster.NoMaster):
        cluster.check_master(url)


@pytest.mark.parametrize("url", ["local[*]", "yarn", "k8s://https://cluster:6443"])
def test_other_kinds_of_masters_are_not_asked(url: str) -> None:
    cluster.check_master(url)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("trigger", "state"), [("operator", "failed"), ("schedule", "queued")])
def test_a_run_without_a_master_fails_at_once_and_a_scheduled_one_is_tried_again(
    settings: Any, tmp_path: Path, trigger: str, state: str
) -> None:
    settings.DATA_DIR = tmp_path
    settings.REPORTS = settings.REPORTS | {"MASTER": f"spark://127.0.0.1:{free_port()}"}
    run = report_runs.execute(report_runs.queue(Kind.DAILY, DAY, trigger=trigger).pk)
    assert run is not None
    assert run.state == state
    assert "No Spark master answers" in run.error
    assert "Traceback" not in run.error


def test_a_worker_is_told_that_there_is_no_master() -> None:
    with pytest.raises(CommandError, match="No Spark master answers"):
        call_command("spark_worker", f"spark://127.0.0.1:{free_port()}")


def test_what_spark_is_told_is_the_operators_before_ours(settings: Any) -> None:
    conf = ["spark.driver.memory=3g", "spark.cores.max=2"]
    settings.REPORTS = settings.REPORTS | {"CONF": conf, "MASTER": "spark://m:7077"}
    _, words = report_runs.command_start()
    assert words == [
        "--conf", "spark.master=spark://m:7077", "--conf", "spark.driver.memory=3g",
        "--conf", "spark.cores.max=2",
    ]  # fmt: skip


def test_the_shipped_code_imports_where_nothing_of_ours_is(tmp_path: Path) -> None:
    zipped = tmp_path / shipping.NAME
    shipping.write(zipped)
    look = (
        f"import sys; sys.path.insert(1, {str(zipped)!r}); "
        "from spark.jobs import counting, record; print(counting.__file__)"
    )
    plain = subprocess.run([sys.executable, "-c", "import spark"], cwd=tmp_path)
    assert plain.returncode != 0
    found = subprocess.run(
        [sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.stdout.startswith(str(zipped)), found.stderr
    names = zipfile.ZipFile(zipped).namelist()
    assert all(name == "spark/__init__.py" or name.startswith("spark/jobs/") for name in names)


class Busy:
    """A session of a cluster that has no executor for it, until `free` is set."""

    def __init__(self) -> None:
        self.sparkContext = SimpleNamespace(master="spark://m:7077")
        self.free = threading.Event()

    def range(self, _: int) -> Busy:
        return self

    def count(self) -> int:
        self.free.wait(60)
        return 1


def test_a_run_that_is_given_no_executor_ends_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses: list[int] = []
    monkeypatch.setattr("spark.job_main.os._exit", statuses.append)
    session: Any = Busy()
    job_main.require_executor(session, 0.05)
    session.free.set()
    assert statuses == [1]
    said = capsys.readouterr().err
    assert "No worker of the cluster gave this run an executor" in said
    assert "manage.py spark_worker" in said
    job_main.require_executor(session, 30.0)
    assert statuses == [1]


# --- a real one -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows")
    files = RecordFiles(f"{place}/raw", "w", max_bytes=1 << 40, min_free=0)
    for hour, table in hours(Plan(ROWS, 2, 7, NEXT)):
        files.write(int(hour.timestamp()), table)
    return place


@pytest.fixture(scope="module")
def local_figures(spark: SparkSession, rows: Path, tmp_path_factory: Any) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("local")
    shutil.copytree(rows, place / "record")
    made = job_main.make(spark, Kind.DAILY, str(place / "record"), DAY, NEXT, "local")
    figures: dict[str, Any] = made["reports"][0]
    return figures


@pytest.fixture
def no_record(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a record would be."""
    place = tmp_path / "record"
    settings.DATA_DIR = tmp_path
    settings.RECORD = settings.RECORD | {"URL": str(place)}
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return place


@pytest.fixture
def record(rows: Path, no_record: Path) -> Path:
    shutil.copytree(rows, no_record)
    return no_record


def use(settings: Any, url: str, **more: object) -> None:
    settings.REPORTS = settings.REPORTS | {
        "MASTER": url, "KEEP_CLASSES": False, "PYTHON": sys.executable,
        "CONF": [
            "spark.driver.memory=1g", "spark.executor.memory=512m",
            "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1",
            "spark.sql.shuffle.partitions=2",
        ],
    } | more  # fmt: skip


@marked
def test_a_cluster_gives_the_figures_of_one_machine_to_the_digit(
    two_workers: Standalone, record: Path, settings: Any, local_figures: dict[str, Any]
) -> None:
    use(settings, two_workers.url)
    run = report_runs.execute(report_runs.queue(Kind.DAILY, DAY).pk)
    assert run is not None
    assert (run.state, run.error, run.rows_read) == ("done", "", ROWS)
    assert Report.objects.get().figures == local_figures
    for name in ("worker-0", "worker-1"):  # both took part, and the code came with the run
        shipped = list((two_workers.folder / name / "spark-work").glob(f"app-*/*/{shipping.NAME}"))
        assert shipped, two_workers.log(name)[-3000:]


@marked
def test_an_executor_killed_and_a_worker_lost_cost_time_and_no_figure(
    tmp_path: Path, record: Path, settings: Any, local_figures: dict[str, Any]
) -> None:
    with standalone(tmp_path / "cluster") as losing:
        use(settings, losing.url)
        killed: list[int] = []

        def watch(seen: ReportRun) -> None:
            if killed or not seen.step.startswith("rolling up"):
                return
            until(lambda: list(record.glob("roll-up/runs/*/*/_temporary")), 60, every=0.02)
            assert not list(record.glob("roll-up/ledger/*.json"))
            (executor,) = losing.executors("worker-0")
            executor.kill()
            losing.lose("worker-1")
            killed.append(executor.pid)

        run = report_runs.execute(report_runs.queue(Kind.DAILY, DAY).pk, watch)
        assert run is not None
        assert (run.state, run.attempts, run.error) == ("done", 1, "")
        assert killed
        assert Report.objects.get().figures == local_figures


@marked
def test_a_cluster_without_workers_is_named(
    tmp_path: Path, no_record: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standalone(tmp_path / "cluster", workers=0) as empty:
        use(settings, empty.url)
        monkeypatch.setattr(report_runs, "EXECUTOR_SECONDS", 0.5)
        run = report_runs.execute(report_runs.queue(Kind.DAILY, DAY).pk)
        assert run is not None
        assert "No worker of the cluster gave this run an executor" in run.error
        assert "manage.py spark_worker" in run.error


@marked
def test_a_cluster_runs_on_the_bundled_java(
    tmp_path: Path, record: Path, settings: Any, local_figures: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with monkeypatch.context() as without:
        without.delenv("JAVA_HOME", raising=False)
        without.setenv("PATH", "/nowhere")
        shim = java.environment(tmp_path / "bundled")["JAVA_HOME"]
    assert shim == str(tmp_path / "bundled" / "java")
    monkeypatch.setenv("JAVA_HOME", shim)
    programs: set[str] = set()
    with standalone(tmp_path / "cluster", workers=1, JAVA_HOME=shim) as trimmed:
        use(settings, trimmed.url)

        def watch(seen: ReportRun) -> None:
            family = [trimmed.process("master"), *trimmed.executors("worker-0")]
            programs.update(each.exe() for each in family)

        run = report_runs.execute(report_runs.queue(Kind.DAILY, DAY).pk, watch)
        assert run is not None
        assert (run.state, run.error) == ("done", "")
        bundled = java.bundled_java()
        assert bundled is not None
        assert programs == {str(bundled.resolve())}
        assert Report.objects.get().figures == local_figures
