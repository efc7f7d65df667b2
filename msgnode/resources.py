"""Finds the files that are not Python modules: templates, `supervisord.conf`, LICENSE.

In a checkout they are beside `manage.py`. If the node is installed from its wheel they are in
`msgnode/share/`, because names like `templates` would not belong to it there.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
IS_CHECKOUT = (_PACKAGE.parent / "manage.py").is_file()

SHARED = _PACKAGE.parent if IS_CHECKOUT else _PACKAGE / "share"
"""Has them all."""

HOME = _PACKAGE.parent if IS_CHECKOUT else Path.cwd()
"""Where `.env` is read and, unless DATA_DIR names another place, `var` is made."""
