"""Finds the files that are not Python modules: templates, `supervisord.conf`, LICENSE.

In a checkout they are beside `manage.py`. If the node is installed from its wheel they are in
`msgnode/share/`, because names like `templates` would not belong to it there. Makes the random keys
that the node keeps in files of its own.
"""

from __future__ import annotations

import os
import secrets
import tomllib
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
IS_CHECKOUT = (_PACKAGE.parent / "manage.py").is_file()

SHARED = _PACKAGE.parent if IS_CHECKOUT else _PACKAGE / "share"
"""Has them all."""

HOME = _PACKAGE.parent if IS_CHECKOUT else Path.cwd()
"""Where `.env` is read and, unless DATA_DIR names another place, `var` is made."""


@cache
def user_agent() -> str:
    """What the node calls itself where it asks others."""
    return f"messaging-node/{version()}"


@cache
def version() -> str:
    """The version of the node."""
    if not IS_CHECKOUT:
        return metadata.version("messaging-node")
    project = tomllib.loads((SHARED / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def own_key(path: Path) -> str:
    """Return the random key in a file; the first process that asks for it makes it.

    Only the file's owner can read it, and it survives a power cut.

    Args:
        path: the file; its directory exists.

    Raises:
        OSError: the file cannot be read or written.
    """
    if not path.exists():
        fresh = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            with os.fdopen(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as file:
                file.write(secrets.token_urlsafe(48))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was first: then its key counts
                path.hardlink_to(fresh)
        finally:
            fresh.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return path.read_text()
