"""Under which conditions a run took place: machine, load, versions, settings."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .rules import RULES

_PACKAGES = (
    *("Django", "channels", "daphne", "Twisted", "autobahn", "uvloop", "uvicorn", "websockets"),
    *("msgspec", "orjson", "psycopg"),
)


def conditions() -> dict[str, Any]:
    """What must be known to compare two runs."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "versions": {name: version(name) for name in _PACKAGES},
        "settings": (
            f"default limits, anonymous sessions, {RULES} indexed policy rules, "
            "SQLite in WAL with synchronous=FULL"
        ),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
