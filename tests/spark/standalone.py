"""A real standalone cluster of Spark for tests: a master and workers, started by their commands.

Each is a process with a folder and ports of its own. Nothing of the project can be imported where
they run; the environment of the tests' own Python is not theirs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from msgnode.launch.pdeathsig import tie
from tests.node import ROOT
from tests.waiting import until

START_SECONDS = 90.0
EXECUTOR = "CoarseGrainedExecutorBackend"


class Standalone:
    """One cluster; `url` is its master's."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.url = ""
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE", "PYSPARK_PYTHON")
        } | {"SECRET_KEY": "only for tests", **environment}
        self._processes: dict[str, psutil.Popen] = {}

    def start(self, workers: int) -> None:
        self._run("master", "spark_master", "--port", "0", "--web-port", "0")
        self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            self.add_worker(f"worker-{number}")

    def add_worker(self, name: str, cores: int = 1) -> None:
        self._run(
            name, "spark_worker", self.url, "--web-port", "0", "--cores", str(cores),
            "--memory", "1g",
        )  # fmt: skip
        self._said(name, r"Successfully registered with master (\S+)")

    def process(self, name: str) -> psutil.Process:
        return self._processes[name]

    def executors(self, name: str) -> list[psutil.Process]:
        """The executors that a worker runs now."""
        found = []
        for child in self._processes[name].children(recursive=True):
            try:
                if EXECUTOR in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return found

    def lose(self, name: str) -> None:
        """A worker and its executors, gone as with their machine."""
        family = [self._processes[name], *self._processes[name].children(recursive=True)]
        for each in family:
            if each.is_running():
                each.kill()
        psutil.wait_procs(family, timeout=20)

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text(errors="replace")

    def stop(self) -> None:
        family = [
            each
            for process in self._processes.values()
            if process.is_running()
            for each in (process, *process.children(recursive=True))
        ]
        for each in family:
            if each.is_running():
                each.kill()
        psutil.wait_procs(family, timeout=20)

    def _run(self, name: str, *words: str) -> None:
        folder = self.folder / name
        folder.mkdir(parents=True)
        with (folder / "log").open("wb") as log:
            self._processes[name] = psutil.Popen(
                [sys.executable, str(ROOT / "manage.py"), *words],
                cwd=folder, env=self._environment | {"DATA_DIR": str(folder)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=lambda: tie(signal.SIGKILL),
            )  # fmt: skip

    def _said(self, name: str, pattern: str) -> str:
        def said() -> str:
            found = re.search(pattern, self.log(name))
            assert self._processes[name].poll() is None, self.log(name)[-3000:]
            return found[1] if found else ""

        return str(until(said, START_SECONDS, lambda: self.log(name)[-3000:]))


@contextmanager
def standalone(folder: Path, workers: int = 2, **environment: str) -> Iterator[Standalone]:
    """A cluster with this many workers of one core each."""
    cluster = Standalone(folder, **environment)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
