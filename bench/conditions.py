"""Under which conditions a run took place: machine, load, versions, settings."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .rules import RULES

_PACKAGES = (
    *("Django", "channels", "daphne", "Twisted", "autobahn", "uvloop", "websockets"),
    *("msgspec", "orjson", "psycopg"),
)


def conditions() -> dict[str, Any]:
    """What must be known to compare two runs."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": _revision(),
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


def _revision() -> str:
    """The commit that was measured, with a mark if files were changed since."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
    return told.stdout.strip() or "unknown"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
