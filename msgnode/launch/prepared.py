"""Remembers what an earlier start has checked and migrated, so that the next one can skip it.

`DATA_DIR/prepared.json` has digests of the code and the settings, and the state of the database. If
any of them differs, everything is done as at the first start.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection

from msgnode.resources import HOME, SHARED, version

_NAME = "prepared.json"
_PACKAGES = ("msgnode", "policies", "registry", "spark")


def is_known(data_dir: Path) -> bool:
    """Whether nothing has changed since a successful start. Needs the settings, but no apps."""
    try:
        noted = json.loads((data_dir / _NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(noted, dict) and all(noted.get(name) == see() for name, see in _SEEN.items())


def version_before(data_dir: Path) -> str:
    """The version of the node that was started here last, "" if it is not known."""
    try:
        noted = json.loads((data_dir / _NAME).read_text(encoding="utf-8"))
        return str(noted.get("version", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def note(data_dir: Path) -> None:
    """Note a successful start. Does nothing if the disk is full."""
    noted = {name: see() for name, see in _SEEN.items()} | {"version": version()}
    with suppress(OSError):
        made = data_dir / f".{_NAME}.{os.getpid()}"
        made.touch(mode=0o600)
        made.write_text(json.dumps(noted), encoding="utf-8")
        made.replace(data_dir / _NAME)


def _code() -> str:
    """The node's modules by size and time, the installed packages by name and version."""
    digest = hashlib.sha256(sys.version.encode())
    top = Path(__file__).resolve().parents[2]
    for package in _PACKAGES:
        for path, size, moment in sorted(_modules(str(top / package))):
            digest.update(f"{path} {size} {moment}\n".encode())
    with suppress(OSError):
        installed = os.listdir(sysconfig.get_path("purelib"))  # noqa: PTH208  (names are enough)
        digest.update("\n".join(sorted(n for n in installed if n.endswith(".dist-info"))).encode())
    return digest.hexdigest()


def _modules(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in ("__pycache__", "static", "js"):
                    yield from _modules(entry.path)
            elif entry.name.endswith(".py"):
                seen = entry.stat()
                yield entry.path, seen.st_size, seen.st_mtime_ns


def _settings() -> str:
    """Every environment variable that is a setting, and the file `.env`."""
    digest = hashlib.sha256()
    known = re.findall(r"^#?([A-Z_]+)=", (SHARED / ".env.example").read_text("utf-8"), re.MULTILINE)
    for name in known:
        if name == "REDIS_URL" and "NODE_REDIS" in os.environ:
            continue  # it is of a Redis started with the node, and differs at each start
        digest.update(f"{name}={os.environ.get(name)!r}\n".encode())
    digest.update(f"{settings.SECRET_KEY}\n".encode())  # perhaps of a file
    with suppress(OSError):
        digest.update((HOME / ".env").read_bytes())
    return digest.hexdigest()


def _database() -> list[Any] | None:
    """The applied migrations, and whether the console has an account."""
    try:
        with warnings.catch_warnings(), connection.cursor() as cursor:
            warnings.simplefilter("ignore", RuntimeWarning)  # that no apps are loaded is meant
            cursor.execute("SELECT count(*), max(id) FROM django_migrations")
            migrations = cursor.fetchone()
            cursor.execute("SELECT count(*) FROM auth_user WHERE is_superuser")
            return [*migrations, cursor.fetchone()[0] > 0]
    except DatabaseError:
        return None
    finally:
        connection.close()


_SEEN = {"settings": _settings, "code": _code, "database": _database}
