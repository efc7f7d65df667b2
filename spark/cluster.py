"""A standalone Spark cluster: starts its processes, and checks whether its master answers.

    manage.py spark_master --host 10.0.0.5
    manage.py spark_worker spark://10.0.0.5:7077 --host 10.0.0.6    on each machine that helps

The processes are those of the installed PySpark, on the same Java as runs. Spark itself tries an
unreachable master for over a minute and then fails with a stack trace, so the master is checked
first: it is asked for a nonexistent file, in Spark's own framing, which any live master answers.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from spark import java

SCHEME = "spark://"
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
ANSWER_SECONDS = 6.0
_DAEMON_MEMORY = "512m"
_KEPT_SECONDS = 24 * 3600
_STREAM_REQUEST = 6
_ASKED = b"/files/is-anybody-there"


class NoMaster(ConnectionError):
    """No master of the cluster answers."""


def command(class_name: str, words: Sequence[str]) -> list[str]:
    """The command line of a master or a worker, that of the installed PySpark."""
    return ["/bin/bash", str(_home() / "bin" / "spark-class"), class_name, *words]


def environment(data_dir: Path, host: str) -> dict[str, str]:
    """The environment of a master or a worker that is reached at `host`, its web page too.

    Raises Lacking.
    """
    kept = {"SPARK_DAEMON_MEMORY": _DAEMON_MEMORY} | java.environment(data_dir)
    # A worker deletes what ended runs left in its folder.
    options = [
        "-Dspark.worker.cleanup.enabled=true",
        f"-Dspark.worker.cleanup.appDataTtl={_KEPT_SECONDS}",
        os.environ.get("SPARK_WORKER_OPTS", ""),
    ]
    return kept | {
        "SPARK_HOME": str(_home()),
        "SPARK_LOCAL_IP": host,
        "SPARK_WORKER_OPTS": " ".join(options).strip(),
    }


def check_master(url: str, limit: float = ANSWER_SECONDS) -> None:
    """See that one of the masters of spark://host:port,host:port answers; others are not asked.

    Blocks for `limit` seconds at most. Raises NoMaster, which says what to do.
    """
    if not url.startswith(SCHEME):
        return
    masters = url.removeprefix(SCHEME).split(",")
    end = time.monotonic() + limit
    faults = []
    for left, master in zip(range(len(masters), 0, -1), masters, strict=True):
        fault = _fault_of(master, (end - time.monotonic()) / left)
        if not fault:
            return
        faults.append(f"{master}: {fault}")
    raise NoMaster(
        f"No Spark master answers at {url} ({'; '.join(faults)}). Start it there, with "
        "`manage.py spark_master` for one, or set SPARK_MASTER to where one runs; "
        "SPARK_MASTER=local[*] runs reports on this machine alone."
    )


def _fault_of(master: str, seconds: float) -> str:
    """Why a master at host:port cannot be reached; empty if something of Spark's answers."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal():
        return "it is no host:port"
    request = struct.pack(">bi", _STREAM_REQUEST, len(_ASKED)) + _ASKED
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as link:
            link.settimeout(seconds)
            link.sendall(struct.pack(">q", 8 + len(request)) + request)
            said = link.recv(5)
    except TimeoutError:
        return f"no answer within {seconds:.0f} s"
    except (OSError, OverflowError) as error:
        return str(error)
    # Without an answer it was closed: by Spark, where links are encrypted.
    return "what answers there is a web page, not a master" if said == b"HTTP/" else ""


def _home() -> Path:
    found = importlib.util.find_spec("pyspark")  # not imported: every process would wait for it
    if found is None or found.origin is None:
        raise java.NoSpark(java.NoSpark.__doc__)
    return Path(found.origin).parent
