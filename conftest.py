"""What every test may ask for.

Some hundred processes of a test run read the same modules: compiled code is kept for them, wherever
this is switched off, as it often is in containers.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = [
    *("tests.services", "tests.object_store", "tests.issuer"),
    *("tests.retries", "tests.groups", "pytester"),
]
