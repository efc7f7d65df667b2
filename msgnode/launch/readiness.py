"""Whether the node is ready, which is asked over HTTP, and where it then is."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import NamedTuple

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


def reachable(host: str) -> str:
    """The host at which a client on this machine reaches a server that listens on `host`."""
    return _WILDCARDS.get(host, host)


def in_url(host: str) -> str:
    """A host as in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def name_of_ours(allowed: list[str], domain: str) -> str:
    """A host name that the node answers to."""
    first = next(iter(allowed), "*")
    return domain if first == "*" else first.removeprefix(".")


def node_is_ready(host: str, port: int, name: str, workers: int = 1) -> bool:
    """Whether /health/ready answers 200 and counts so many workers.

    The request uses a `name` that the node accepts as host.
    """
    connection = http.client.HTTPConnection(reachable(host), port, timeout=2)
    try:
        connection.request("GET", "/health/ready", headers={"Host": name})
        answer = connection.getresponse()
        return answer.status == 200 and int(json.load(answer)["workers"]) >= workers
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return False
    finally:
        connection.close()


_NAME = "address.json"


class Address(NamedTuple):
    """Where the node of a data directory is, for commands that talk to it: `address.json`.

    Written when the node is ready, removed when it ends; after a power cut it has the last one.
    `place` is host and port as in a URL.
    """

    place: str
    domain: str


def write_address(data_dir: Path, address: Address) -> None:
    """Write the node's address."""
    (data_dir / _NAME).write_text(json.dumps(address._asdict()) + "\n", encoding="utf-8")


def read_address(data_dir: Path) -> Address | None:
    """The address of the node of this directory, None if none runs or it cannot be read."""
    try:
        said = json.loads((data_dir / _NAME).read_text(encoding="utf-8"))
        return Address(str(said["place"]), str(said["domain"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_address(data_dir: Path) -> None:
    """Remove the address of a node that has ended."""
    (data_dir / _NAME).unlink(missing_ok=True)
