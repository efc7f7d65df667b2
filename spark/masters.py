"""Whether a Spark cluster's master can be reached, asked before Java is started for it.

Spark itself tries for more than a minute, and then gives a stack trace for a reason.
"""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from spark.process import Ended

SECONDS = 5.0
_PORT = 7077


class MasterAway(Ended):
    """The cluster's master cannot be reached; the text says which and why."""


def check(master: str) -> None:
    """Return if one of the masters of a `spark://host:port[,host:port]` takes a connection.

    Other kinds (local, yarn, k8s) are not asked.

    Raises:
        MasterAway: none does.
    """
    if not master.startswith("spark://"):
        return
    faults = []
    for place in master.removeprefix("spark://").split(","):
        parts = urlsplit(f"//{place}")
        try:
            with socket.create_connection((parts.hostname or "", parts.port or _PORT), SECONDS):
                return
        except (OSError, ValueError) as error:
            faults.append(f"{place} ({getattr(error, 'strerror', None) or error})")
    raise MasterAway(
        f"The Spark master cannot be reached: {', '.join(faults)}. "
        "SPARK_MASTER names it; is it up, and does a firewall let this machine through?"
    )
