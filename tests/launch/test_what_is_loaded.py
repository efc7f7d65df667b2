"""A program of the node loads what it needs, when it needs it: these ask which packages it has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import ROOT
from tests.ports import free_port

MODULES = ("spark.tasks", "msgnode.celery", "msgnode.asgi")
CELERY = "import msgnode.celery; msgnode.celery.app.loader.import_default_modules()"
ASKED = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 0)"
COMMAND = f"""
import sys
from msgnode.command_line import main
sys.argv = ["manage.py", "shell", "-v0", "-c", {ASKED!r}]
main()
"""
LAUNCHER = "from msgnode.management.commands.run import Command"

# What a node with default settings has no use for until a page is asked for, or a message recorded.
# The server brings Twisted and click, the metrics bring Prometheus' client.
UNUSED = (
    *("aiomqtt", "celery", "django_celery_beat.models", "django_celery_results.models", "dns"),
    *("drf_spectacular.plumbing", "fido2", "httpx", "kombu", "limits", "markdown", "numpy"),
    *("msgnode.identity.openid_login", "msgnode.legacy", "segno"),
    *("oauth2_provider.oauth2_validators", "opentelemetry", "paho", "psutil", "psycopg", "pyarrow"),
    *("pygments", "pyspark", "redis", "requests", "rest_framework.views", "rich", "unfold.admin"),
    *("urllib3", "yaml"),
)
LOADED = f"print('at', moment, *[each for each in {UNUSED!r} if each in sys.modules])"
WORKER = f"""
import http.client, logging, os, signal, sys, threading
from msgnode.servers.main import main

def ask(path):
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=60)
    try:
        connection.request("GET", path, headers={{"Host": "localhost"}})
    except ConnectionRefusedError:  # it does not listen yet
        return 0
    answer = connection.getresponse()
    answer.read()
    return answer.status

def look():
    try:
        moment = "ready"
        {LOADED}
        while ask("/health/ready") != 200:
            threading.Event().wait(0.05)
        assert ask("/metrics") == 200
        moment = "supervised"
        {LOADED}
        print("pages", "msgnode.site_urls" in sys.modules, ask("/login/"), ask("/api/docs"))
        print("pages", "msgnode.site_urls" in sys.modules, "unfold.admin" in sys.modules)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)

class Ready(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "The worker is ready.":
            threading.Thread(target=look).start()

logging.getLogger("msgnode.node.worker").addHandler(Ready())
sys.exit(main())
"""
HELP = f"""
import contextlib, io, sys
from msgnode.command_line import main
sys.argv = ["manage.py", "--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
from django.core import management
moment = "list"
{LOADED}
for moment, app in management.get_commands().items():
    if app.split(".")[0] in ("django", "msgnode", "policies", "registry", "spark"):
        management.load_command_class(app, moment)
        {LOADED}
"""
WITHOUT_APPS = """
import sys
from django.apps import apps
from msgnode import command_line
name = sys.argv[1]
assert name in command_line.WITHOUT_APPS
sys.argv = ["manage.py", name, "--help"]
try:
    command_line.main()
except SystemExit:
    print("apps", apps.ready)
"""


def lines_of(lines: str, tmp_path: Path, *words: str, **settings: str) -> list[str]:
    """The lines that these lines of Python print, called with these words."""
    done = subprocess.run(
        [sys.executable, "-c", lines, *words],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
        env={"PATH": "/usr/bin:/bin", "DATA_DIR": str(tmp_path), "CELERY_SKIP_CHECKS": "1",
             "DJANGO_SETTINGS_MODULE": "msgnode.settings", **settings},
        check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def loaded(lines: str, tmp_path: Path) -> list[str]:
    """The words that these lines of Python print."""
    return " ".join(lines_of(lines, tmp_path)).split()


def test_a_worker_loads_pages_and_what_records_and_schedules_when_it_is_asked_for(
    tmp_path: Path, template: Path
) -> None:
    shutil.copy(template, tmp_path / "node.sqlite3")
    settings = {"PORT": str(free_port()), "HOST": "127.0.0.1", "DOMAIN": "localhost"}
    assert lines_of(WORKER, tmp_path, **settings) == [
        "at ready",
        "at supervised",
        "pages False 200 200",
        "pages True True",
    ]


def test_no_command_loads_for_its_help_what_only_its_work_needs(tmp_path: Path) -> None:
    told = lines_of(HELP, tmp_path)
    assert {"at list", "at node_status", "at policy_check", "at run"} <= set(told)
    assert [line for line in told if len(line.split()) > 2] == []


@pytest.mark.parametrize("name", ["first_conversation", "run"])
def test_a_command_that_looks_at_no_rows_loads_no_apps(tmp_path: Path, name: str) -> None:
    assert lines_of(WITHOUT_APPS, tmp_path, name)[-1] == "apps False"


def test_no_program_of_the_node_loads_spark_at_its_start(tmp_path: Path) -> None:
    """One after the other in one process: the first that loads it is named."""
    lines = (
        "import django, importlib, sys; django.setup()\n"
        f"for name in {MODULES!r}:\n"
        "    importlib.import_module(name)\n"
        "    print(name, 'pyspark' in sys.modules)"
    )
    assert loaded(lines, tmp_path)[-6:] == [word for name in MODULES for word in (name, "False")]


@pytest.mark.parametrize(
    ("program", "late"),
    [
        (CELERY, ("pyarrow", "numpy", "msgnode.urls")),
        (LAUNCHER, ("pyarrow", "celery.app.task", "msgnode.models", "redis")),
    ],
    ids=["worker and beat", "manage.py run"],
)
def test_what_a_start_does_not_need_is_loaded_by_who_asks(
    tmp_path: Path, program: str, late: tuple[str, ...]
) -> None:
    lines = f"{program}\nimport sys\nprint(*[each for each in {late!r} if each in sys.modules])"
    assert loaded(lines, tmp_path) == []


def test_a_command_collects_garbage_once_it_is_loaded_and_only_its_own(tmp_path: Path) -> None:
    assert loaded(COMMAND, tmp_path) == ["True", "True"]
