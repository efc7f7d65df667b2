"""Finds the files that are not Python modules: templates, `supervisord.conf`, LICENSE.

In a checkout they are beside `manage.py`. If the node is installed from its wheel they are in
`msgnode/share/`, because names like `templates` would not belong to it there.
"""

from __future__ import annotations

import tomllib
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
