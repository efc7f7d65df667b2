"""What must be there before the programs start.

Folders, a free port, services that answer, tables, the operator's account. Every step may be
repeated and says at once what is wrong.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, connection

from msgnode.redis.faults import RedisFault

from .error_messages import StartFailed, without_password

OPERATOR = "operator"

_FILES = 1_048_576  # more than MAX_CONNECTIONS; some programs walk through all they may open


def hold(data_dir: Path, patience: float) -> IO[str]:
    """Take the data directory for us alone, until the file given back is closed by all who have it.

    supervisord inherits it: remains of a launcher that was killed are waited for, at most
    `patience` seconds.
    """
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


def clear_remains(data_dir: Path) -> None:
    """Drop what an earlier run left that would mislead this one. Queued tasks stay."""
    for name in ("supervisord.pid", "beat.started", "worker.started"):
        (data_dir / name).unlink(missing_ok=True)
    # Mailboxes of workers that are gone; nobody would empty them.
    shutil.rmtree(data_dir / "celery" / "control")
    (data_dir / "celery" / "control").mkdir()
    for mail in (data_dir / "celery" / "queue").glob("*pidbox.msg"):
        mail.unlink(missing_ok=True)


def raise_file_limit() -> None:
    """Let the programs, which inherit it, open as many sockets as the system allows us.

    Many systems allow 1,024 to those who do not ask.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(most, _FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def check_port(host: str, port: int) -> None:
    """Whether we may listen.

    Asked here because workers share their port and would share it with a stranger's node as well.
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
            raise StartFailed(f"port {port} of {host} is in use; name another PORT.") from None
        raise StartFailed(f"cannot listen on {host} port {port}: {fault}") from None


def check_redis(url: str) -> None:
    """Look whether Redis answers."""
    if not url:
        return
    from msgnode.redis.cluster_client import check  # its client is for who has a Redis

    try:
        check(url)
    except RedisFault as fault:
        raise StartFailed(f"Redis at {without_password(url)}: {fault}") from None


def migrate() -> None:
    """Bring the tables up to date."""
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except DatabaseError as fault:
        first = str(fault).strip().splitlines()[0]
        raise StartFailed(f"the database refuses: {first}") from None
    finally:
        connection.close()


def make_operator(say: Callable[[str], Any]) -> None:
    """The account for a console that nobody can enter yet; its password is said this once."""
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
        f"console account: {OPERATOR}, password {password} (said only now; "
        f"`{program} changepassword {OPERATOR}` sets another)"
    )
