"""`manage.py spark_worker`: a worker of a standalone cluster of Spark, in the foreground."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from msgnode.console.command_base import WithExample
from spark import cluster, java


class Command(WithExample):
    example = """\
  manage.py spark_worker spark://10.0.0.5:7077 --host 10.0.0.6 --cores 4 --memory 8g

Each run sends the code of the reports to the worker. The worker's machine needs the Python that
PYSPARK_PYTHON names, with pyspark, pyarrow and pandas, and access to RECORD_URL."""
    help = "Run a worker of a standalone Spark cluster with the installed PySpark."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("master", help="spark://HOST:PORT")
        parser.add_argument("--host", default="127.0.0.1", help="address at which others reach it")
        parser.add_argument("--port", type=int, default=0, help="0: any free port")
        parser.add_argument(
            "--web-port", type=int, default=8081, help="port of its web page; 0: any free port"
        )
        parser.add_argument("--cores", type=int, help="cores for runs; default: all")
        parser.add_argument("--memory", help="memory for runs, such as 8g; default: all but 1 GB")
        parser.add_argument(
            "--folder", type=Path, help="working directory of runs; default: spark-work in DATA_DIR"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        host, folder = options["host"], options["folder"] or settings.DATA_DIR / "spark-work"
        try:
            cluster.check_master(options["master"])
            environment = cluster.environment(settings.DATA_DIR, host)
        except (java.Lacking, cluster.NoMaster) as lack:
            raise CommandError(str(lack)) from lack
        words = [
            options["master"], "--host", host, "--port", str(options["port"]),
            "--webui-port", str(options["web_port"]), "--work-dir", str(folder),
        ]  # fmt: skip
        for option in ("cores", "memory"):
            if options[option]:
                words += [f"--{option}", str(options[option])]
        folder.mkdir(parents=True, exist_ok=True)
        program = cluster.command(cluster.WORKER_CLASS, words)
        os.chdir(folder)  # not where code lies that executors would find by chance
        os.execve(program[0], program, environment)  # noqa: S606 (it becomes Spark's own script)
