"""`manage.py spark_master`: the master of a standalone cluster of Spark, in the foreground."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from msgnode.console.command_base import WithExample
from spark import cluster, java


class Command(WithExample):
    example = """  manage.py spark_master                     # on this machine, for this machine
  manage.py spark_master --host 10.0.0.5     # for others, who use SPARK_MASTER=spark://10.0.0.5:7077

Whoever reaches the port may run programs on the cluster: keep it inside a private network."""
    help = "Run the master of a standalone Spark cluster with the installed PySpark."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address at which others reach it")
        parser.add_argument("--port", type=int, default=7077, help="0: any free port")
        parser.add_argument(
            "--web-port", type=int, default=8080, help="port of its web page; 0: any free port"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        host = options["host"]
        try:
            environment = cluster.environment(settings.DATA_DIR, host)
        except java.Lacking as lack:
            raise CommandError(str(lack)) from lack
        words = [
            "--host", host, "--port", str(options["port"]),
            "--webui-port", str(options["web_port"]),
        ]  # fmt: skip
        program = cluster.command(cluster.MASTER_CLASS, words)
        os.execve(program[0], program, environment)  # noqa: S606 (it becomes Spark's own script)
