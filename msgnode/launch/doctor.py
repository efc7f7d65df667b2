"""Looks at everything that the node depends on, and says what is wrong and what to do.

Most of it is known elsewhere, and asked for there: system checks (settings, secrets), what a start
looks at (disk, database, Redis, port), `/health/ready`, the status of workers and the alarms. Here
is added what nobody looks at by itself: clocks, certificates, versions, migrations, room for
connections, and the age of backups. Nothing is changed. Each part has a limit of time, and one that
fails says so and keeps no other from being looked at. Blocks.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import disk_usage
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.db import DatabaseError, OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from msgnode.console.backups import archives
from msgnode.console.key_figures import node_status
from msgnode.core import database_limit
from msgnode.core.explanations import ALARMS
from msgnode.identity import sealed_secrets
from msgnode.models import Worker
from msgnode.resources import version

from . import prepare
from .error_messages import StartFailed
from .readiness import name_of_ours, reachable

WRONG, WARNING, WELL = "wrong", "warning", "well"
_PATIENCE = 5.0
_CLOCKS_APART = 2.0
"""Seconds; leases are counted by the database's clock, tokens and deletion by the machine's."""
_CERTIFICATE_LEFT = timedelta(days=14)
_BACKUP_AGE = timedelta(days=7)
_REDIS_FULL = 0.9
_LEAST_POSTGRESQL = 140000
_OF_A_WORKER, _OF_THE_WEB, _OF_JOBS = 23, 9, 3
"""Connections besides REQUEST_THREADS (docs/operations.md, connections to PostgreSQL)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look has found.

    part     what was looked at      state    WRONG, WARNING or WELL
    text     what is so              remedy   what to do; "" where it is well
    """

    part: str
    state: str
    text: str
    remedy: str = ""


def look() -> list[Finding]:
    """Look at everything."""
    parts: dict[str, Callable[[], Iterator[Finding]]] = {
        "database": _database, "settings": _settings, "secrets": _secrets, "disk": _disk,
        "redis": _redis, "clocks": _clocks, "tls": _tls, "port": _port, "workers": _workers,
        "alarms": _alarms, "backups": _backups,
    }  # fmt: skip
    found: list[Finding] = []
    for part, looks in parts.items():
        try:
            if part in _OF_THE_DATABASE and _has_no_database():
                continue  # asking would create it
            with database_limit.at_most(_PATIENCE):
                seen = list(looks())
        except StartFailed as fault:
            seen = [Finding(part, WRONG, fault.text, fault.remedy)]
        except DatabaseError:  # said by `database`
            text = "cannot be looked at without the database"
            seen = [Finding(part, WARNING, text, "Mend that first.")]
        except Exception as fault:  # noqa: BLE001  (one part keeps no other from being looked at)
            told = f"could not be looked at: {type(fault).__name__}: {fault}"
            remedy = "Look at it yourself, and report the error: it should have been understood."
            seen = [Finding(part, WARNING, told, remedy)]
        found += seen or [Finding(part, WELL, "as it should be")]
    return found


_OF_THE_DATABASE = ("secrets", "workers", "alarms")


def _has_no_database() -> bool:
    return connection.vendor == "sqlite" and not Path(connection.settings_dict["NAME"]).exists()


def _is_postgresql() -> bool:
    return connection.vendor == "postgresql"


def _one(query: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone()[0]


def _database() -> Iterator[Finding]:
    if _has_no_database():
        remedy = "Start the node, or run `manage.py migrate`."
        yield Finding("database", WARNING, "there is none yet", remedy)
        return
    prepare.check_database()
    if not _is_postgresql() and (fault := _damage()):
        yield Finding("database", *fault)
        return
    executor = MigrationExecutor(connection)
    known = executor.loader.disk_migrations
    steps = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if steps:
        first = f"{steps[0][0].app_label}.{steps[0][0].name}"
        remedy = "Run `manage.py migrate`, before this version is started."
        yield Finding("database", WRONG, f"{len(steps)} migrations are missing: {first}…", remedy)
    if later := sorted(set(executor.loader.applied_migrations) - set(known)):
        text = f"it is of a later version, which has {'.'.join(later[-1])}"
        remedy = "Use that version's program, or restore a backup of this one's."
        yield Finding("database", WARNING, text, remedy)
    if _is_postgresql():
        yield from _postgresql()


def _damage() -> tuple[str, str, str] | None:
    """Have SQLite look through its file: state, text and remedy if that finds something."""
    connection.ensure_connection()
    until = time.monotonic() + _PATIENCE
    connection.connection.set_progress_handler(lambda: time.monotonic() > until, 100_000)
    try:
        found = str(_one("PRAGMA quick_check(1)"))
    except OperationalError as fault:
        if "interrupted" not in str(fault):
            raise
        text = f"it is too large to be looked through in {_PATIENCE:.0f} s"
        return WARNING, text, "Have `sqlite3` do it: PRAGMA quick_check."
    except DatabaseError as fault:
        found = str(fault)
    finally:
        connection.connection.set_progress_handler(None, 0)
    if found == "ok":
        return None
    text = f"it is damaged: {found.splitlines()[-1]}"
    return WRONG, text, f"{prepare.RESTORE} Look at the disk as well: its log is in `dmesg`."


def _postgresql() -> Iterator[Finding]:
    if int(_one("SHOW server_version_num")) < _LEAST_POSTGRESQL:
        text = f"it is PostgreSQL {_one('SHOW server_version')}"
        yield Finding("database", WRONG, text, "Upgrade it to PostgreSQL 14 or newer.")
    if _one("SHOW transaction_read_only") == "on":
        remedy = "Name the server that takes writes in DATABASE_URL, or end its read-only state."
        yield Finding("database", WRONG, "it can only be read: a standby, or a full disk", remedy)
    workers = Worker.objects.filter(lease_until__gte=timezone.now()).count() or 1
    threads = settings.REQUEST_THREADS
    needed = workers * (threads + _OF_A_WORKER) + threads + _OF_THE_WEB + _OF_JOBS
    most = int(_one("SHOW max_connections")) - int(_one("SHOW superuser_reserved_connections"))
    if needed > most:
        text = f"{workers} workers and a web process may need {needed} connections, it has {most}"
        remedy = "Raise `max_connections` of PostgreSQL, or lower REQUEST_THREADS."
        yield Finding("database", WARNING, text, remedy)
    is_away = settings.DATABASES["default"].get("HOST", "") not in ("", "localhost", "127.0.0.1")
    is_tls = _one(
        "SELECT coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)"
    )
    if is_away and not connection.settings_dict["HOST"].startswith("/") and not is_tls:
        remedy = "Add `sslmode=verify-full` to DATABASE_URL, or keep the network private."
        yield Finding("tls", WARNING, "the connection to PostgreSQL is not encrypted", remedy)


def _settings() -> Iterator[Finding]:
    is_production = settings.NODE_MODE == "production"
    for each in checks.run_checks(include_deployment_checks=is_production):
        if not each.is_silenced() and each.level >= checks.WARNING:
            state = WRONG if each.level >= checks.ERROR else WARNING
            yield Finding("settings", state, f"{each.id}: {each.msg}", each.hint or "")


def _secrets() -> Iterator[Finding]:
    for each in sealed_secrets.look():
        if each.unreadable:
            remedy = (
                "Name the former key in SECRET_KEY_FALLBACKS and run `manage.py secret_key "
                "--encrypt-anew`; if it is lost, enter them again (signing keys: `manage.py "
                "provider_key --replace-now`)."
            )
            text = f"no key reads {each.unreadable} of {each.number} {each.what}"
            yield Finding("secrets", WRONG, text, remedy)
        if each.by_former_key:
            text = f"{each.by_former_key} {each.what} need a former key"
            remedy = "Run `manage.py secret_key --encrypt-anew` once all processes have the new."
            yield Finding("secrets", WARNING, text, remedy)


def _disk() -> Iterator[Finding]:
    prepare.check_owner(settings.DATA_DIR)
    prepare.check_disk(settings.DATA_DIR)
    free, least = disk_usage(settings.DATA_DIR).free, int(settings.RECORD["MIN_FREE_BYTES"])
    if free < least:
        text = (
            f"{free >> 20:,} MiB are free in DATA_DIR {settings.DATA_DIR}: below "
            f"{least >> 20:,} the traffic is not recorded"
        )
        yield Finding("disk", WRONG, text, "Make room, or lower RECORD_MIN_FREE_BYTES.")


def _redis() -> Iterator[Finding]:
    if not settings.REDIS_URL:
        yield Finding("redis", WELL, "none is named: this node is one worker")
        return
    prepare.check_redis(settings.REDIS_URL)
    from msgnode.redis.cluster_client import information
    from msgnode.redis.url import parse

    told = information(settings.REDIS_URL)
    most, used = int(told.get("maxmemory", 0)), int(told.get("used_memory", 0))
    if most and used > most * _REDIS_FULL:
        text = f"it holds {used >> 20} of {most >> 20} MiB"
        remedy = "Raise its `maxmemory`, or free what others keep in it."
        yield Finding("redis", WARNING, text, remedy)
    if told.get("rdb_last_bgsave_status") == "err" or told.get("aof_last_write_status") == "err":
        remedy = (
            'Make room on its disk, or turn its saving off (`save ""`, `appendonly no`): the node '
            "keeps nothing there that must survive, and Redis refuses writes while it cannot save."
        )
        yield Finding("redis", WRONG, "it could not write its data to its disk", remedy)
    apart = abs(float(told["time"]) - time.time())
    if apart > _CLOCKS_APART:
        yield _clock("Redis", apart)
    url = parse(settings.REDIS_URL)
    if not url.path and url.tls is None and url.host not in ("", "localhost", "127.0.0.1", "::1"):
        remedy = "Use `rediss://`, or keep the network private."
        yield Finding("tls", WARNING, "the connection to Redis is not encrypted", remedy)


def _clock(of: str, apart: float) -> Finding:
    text = f"the clock of {of} and this machine's are {apart:.0f} s apart"
    remedy = "Let both machines take the time from the same source (chrony, systemd-timesyncd)."
    return Finding("clocks", WRONG if apart > 30 else WARNING, text, remedy)


def _clocks() -> Iterator[Finding]:
    if _is_postgresql():
        before = time.time()
        there = float(_one("SELECT extract(epoch FROM clock_timestamp())"))
        apart = abs(there - (before + time.time()) / 2)
        if apart > _CLOCKS_APART:
            yield _clock("PostgreSQL", apart)


def _tls() -> Iterator[Finding]:
    parts = urlsplit(settings.PUBLIC_URL)
    if parts.scheme != "https":
        yield Finding("tls", WELL, f"PUBLIC_URL is {settings.PUBLIC_URL}, without TLS")
        return
    host, port = parts.hostname or "", parts.port or 443
    try:
        with (
            socket.create_connection((host, port), _PATIENCE) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as tls,
        ):
            ends = ssl.cert_time_to_seconds(str((tls.getpeercert() or {})["notAfter"]))
    except ssl.SSLCertVerificationError as fault:
        text = f"browsers do not trust {host}:{port}: {fault.verify_message}"
        yield Finding("tls", WRONG, text, "Renew the certificate of the proxy in front.")
        return
    except OSError as fault:
        text = f"{host}:{port} (PUBLIC_URL) is not reached from here: {fault}"
        yield Finding("tls", WARNING, text, "Look at the proxy in front, and at the DNS.")
        return
    left = datetime.fromtimestamp(ends, UTC) - timezone.now()
    if left < _CERTIFICATE_LEFT:
        text = f"the certificate of {host} ends in {left.days} days"
        yield Finding("tls", WARNING, text, "Renew it; see why it was not renewed by itself.")


def _port() -> Iterator[Finding]:
    """Who listens at HOST and PORT of this machine: a worker of this node, or something else."""
    host, port = settings.HOST, settings.PORT
    with closing(http.client.HTTPConnection(reachable(host), port, timeout=_PATIENCE)) as there:
        try:
            name = name_of_ours(settings.ALLOWED_HOSTS, settings.DOMAIN)
            there.request("GET", "/health/ready", headers={"Host": name})
            told = json.load(there.getresponse())
            checked = {name: bool(is_well) for name, is_well in told["checks"].items()}
        except ConnectionRefusedError:
            prepare.check_port(host, port)
            remedy = "Start the node, if it is to run on this machine."
            yield Finding("port", WARNING, f"nothing listens at port {port} here", remedy)
            return
        except (OSError, ValueError, LookupError, AttributeError, http.client.HTTPException):
            remedy = "Stop it, or name another PORT; if it is a worker, see its log."
            yield Finding("port", WRONG, f"what listens at port {port} is no worker", remedy)
            return
    for name in [name for name, is_well in checked.items() if not is_well]:
        problem = told.get("problems", {}).get(name, "")
        text = f"the worker at port {port} says: {name} is not well. {problem}".strip()
        remedy = "docs/operations.md, health, says what each check means."
        yield Finding("port", WARNING if name == "jobs" else WRONG, text, remedy)


def _workers() -> Iterator[Finding]:
    status = node_status()
    if not status["joined"]:
        yield Finding("workers", WARNING, "no worker is registered", "Start the node.")
    for line in status["joined"]:
        text = f"{line['worker']} is {line['state']}, with {line['sessions']} sessions"
        if line["state"] == "starting":  # also one that serves, until it renews its lease
            remedy = "Ask again in some seconds; if it still does, see its log."
            yield Finding("workers", WARNING, text, remedy)
        elif line["state"] != "ready":
            remedy = "See its log; a worker that has ended without a word is removed by others."
            yield Finding("workers", WRONG, text, remedy)
        for link in line["links"]:
            if link["state"] != "up":
                text = f"the link of {line['worker']} to another is {link['state']}"
                yield Finding("workers", WRONG, text, "See Redis, and the log of both workers.")
    for other in Worker.objects.exclude(version__in=("", version())):
        text = f"{other.name} has version {other.version}, this program {version()}"
        yield Finding("workers", WARNING, text, "End the upgrade: restart it.")
    for line in status["components"]:
        if not line["is_heard"]:
            text = f"{line['kind']} {line['name']} was not heard of lately. {line['last_error']}"
            yield Finding("workers", WARNING, text.strip(), "See whether its worker runs.")


def _alarms() -> Iterator[Finding]:
    for alarm in node_status()["alarms"]:
        about = ALARMS.get(alarm["kind"])
        text = f"{alarm['kind']} since {alarm['raised_at']:%F %T}Z: {alarm['text']}"
        yield Finding("alarms", WARNING, text, about.remedy if about else "")


def _backups() -> Iterator[Finding]:
    there = archives()
    folder = settings.DATA_DIR / "backups"
    if not there:
        remedy = "Make one: `manage.py backup`, daily and by a timer. Yours may be elsewhere."
        yield Finding("backups", WARNING, f"there is none in {folder}", remedy)
    elif (age := timezone.now() - there[0]["at"]) > _BACKUP_AGE:
        text = f"the last one in {folder} is {age.days} days old"
        remedy = "Make one: `manage.py backup`, daily and by a timer."
        yield Finding("backups", WARNING, text, remedy)
