"""What every test may ask for.

Some hundred processes of a test run read the same modules: compiled code is kept for them, wherever
this is switched off, as it often is in containers.
"""

import gc
import os
import sys
from collections.abc import Generator

import pytest

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = [
    *("tests.services", "tests.object_store", "tests.issuer"),
    *("tests.unsteady", "tests.nightly", "tests.groups", "pytester"),
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and keep them out of its sight."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
