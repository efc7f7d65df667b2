"""When the node answers: its own word over HTTP, the worker's to a ping, beat's by its mark."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


def reachable(host: str) -> str:
    """Where a client on this machine finds a server that listens on `host`."""
    return _WILDCARDS.get(host, host)


def in_url(host: str) -> str:
    """A host as URLs write it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def name_of_ours(allowed: list[str], domain: str) -> str:
    """A host name that the node answers to."""
    first = next(iter(allowed), "*")
    return domain if first == "*" else first.removeprefix(".")


def node_is_ready(host: str, port: int, name: str, workers: int = 1) -> bool:
    """Whether /health/ready answers 200 and counts so many workers.

    It is asked by a `name` that the node answers to.
    """
    door = http.client.HTTPConnection(reachable(host), port, timeout=2)
    try:
        door.request("GET", "/health/ready", headers={"Host": name})
        answer = door.getresponse()
        return answer.status == 200 and int(json.load(answer)["workers"]) >= workers
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return False
    finally:
        door.close()


def worker_is_ready(name: str) -> bool:
    """Whether the worker of this node answers a ping."""
    from kombu.exceptions import OperationalError

    from msgnode.celery import app

    try:
        return bool(app.control.ping(destination=[name], timeout=0.5))
    except (OperationalError, OSError):
        return False


def open_points(
    host: str, port: int, name: str, worker: str, beat_mark: Path, workers: int = 1
) -> dict[str, Callable[[], bool]]:
    """What has to be true before the node is ready, by program."""
    return {
        "beat": beat_mark.exists,
        "node": lambda: node_is_ready(host, port, name, workers),
        "worker": lambda: worker_is_ready(worker),
    }
