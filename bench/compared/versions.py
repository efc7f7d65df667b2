"""A version of the node that is measured: its files, its Python, and a Redis for its workers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection

from bench.plan import Plan
from bench.processes import Server
from bench.servers import Servers

BEFORE, NOW = "before", "now"
_BATCHES = re.compile(r"^msgnode_link_batches_total\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Version:
    """`name` is BEFORE or NOW; `redis` a URL, `database` one of PostgreSQL, or "" for SQLite."""

    name: str
    servers: Servers
    redis: str
    database: str = ""


@contextmanager
def started(*workers: Server) -> Iterator[None]:
    """These workers run, and are ready."""
    with ExitStack() as stack:
        for each in workers:
            stack.enter_context(each)
        for each in workers:
            wait_until_ready(each)
        yield


def in_turns(plan: Plan, versions: Sequence[Version]) -> Iterator[tuple[int, Version]]:
    """Each version once a round, with the number of the round."""
    for number, turn in enumerate(plan.rotations(versions)):
        for version in turn:
            yield number, version


def is_ready(server: Server) -> bool:
    """Whether a worker says that it serves."""
    try:
        return _get(server, "/health/ready")[0] == HTTPStatus.OK
    except OSError:
        return False


def wait_until_ready(server: Server, patience: float = 60.0) -> None:
    """Raises RuntimeError if it is not in time."""
    limit = time.monotonic() + patience
    while not is_ready(server):
        if time.monotonic() > limit:
            raise RuntimeError(f"A worker is not ready:\n{server.log.read_text()[-2000:]}")
        time.sleep(0.01)


def batches(server: Server) -> float:
    """The batches that the workers of a node have sent one another, by what one of them tells."""
    return sum(map(float, _BATCHES.findall(_get(server, "/metrics")[1])))


def _get(server: Server, path: str) -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
