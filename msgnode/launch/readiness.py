"""Whether the node is ready: asks it over HTTP."""

from __future__ import annotations

import http.client
import json

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
