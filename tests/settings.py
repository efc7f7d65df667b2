"""Settings of the tests: an embedded node in a directory of its own, whatever the environment says.

Servers that a test starts as processes get their own environment (tests/e2e) and msgnode.settings.
"""

import atexit
import os
import shutil
import tempfile
from uuid import uuid4

_data_dir = tempfile.mkdtemp(prefix="node-tests-")
atexit.register(shutil.rmtree, _data_dir, ignore_errors=True)

# Set rather than left out: a .env file beside manage.py must not reach the tests either.
os.environ.update(
    NODE_MODE="embedded",
    DATA_DIR=_data_dir,
    HOST="127.0.0.1",
    PORT="8000",
    DOMAIN="localhost",
    REDIS_URL="",
    DATABASE_URL=os.environ.get("DATABASE_TEST_URL") or f"sqlite:///{_data_dir}/node.sqlite3",
)

from msgnode.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast; guards nothing here
CELERY_TASK_ALWAYS_EAGER = True
MIDDLEWARE = [  # each test client has one of its own
    "tests.static_files.LookedThroughOnce" if each.startswith("whitenoise.") else each
    for each in MIDDLEWARE  # noqa: F405
]
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":  # noqa: F405
    # A file: in memory, threads that share a database meet locks that nothing waits for.
    DATABASES["default"]["TEST"] = {"NAME": f"{_data_dir}/test.sqlite3"}  # noqa: F405
    _options = DATABASES["default"]["OPTIONS"]  # noqa: F405
    # No commit waits for the disk: these databases need not survive a power cut.
    _options["init_command"] = _options["init_command"].replace("=FULL", "=OFF")
else:  # another run on this server has a database of its own
    DATABASES["default"]["TEST"] = {"NAME": f"test_{uuid4().hex[:12]}"}  # noqa: F405
