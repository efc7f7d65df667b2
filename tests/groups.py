"""Keeps tests of one `xdist_group` in one process, so that what they share is started once.

pytest-xdist 3.8 writes the group behind `item._nodeid`; pytest from 9.1 on takes the id from
elsewhere, so the groups were void: two Sparks and two pairs of workers ran where one was meant.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After xdist's own hook: have the id of an item be what xdist has written."""
    for item in items:
        written = getattr(item, "_nodeid", item.nodeid)
        if written != item.nodeid:
            item._id = type(item._id).parse(written)  # type: ignore[attr-defined]
