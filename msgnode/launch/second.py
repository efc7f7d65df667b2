"""A second node for trying out federation, beside the first on this machine.

It is an embedded node of its own: the next port, the domain `second.<domain>`, a data directory in
that of the first. Users of both can be found and invited, which only this machine can request.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .error_messages import StartFailed

INVITED = {
    "CONTACT_CARDS": "*",
    "INVITATIONS": "true",
    "WEBHOOK_NETWORKS": "127.0.0.0/8,::1/128",
}


def environment(
    first: Mapping[str, Any], is_embedded: bool, has_services: bool, given: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a second node.

    Args:
        first: DOMAIN, PORT and DATA_DIR of the first.
        is_embedded: whether the first is an embedded node.
        has_services: whether the first has a database or a Redis of its own.
        given: the present environment; it takes precedence over INVITED.

    Raises:
        StartFailed: the first is not for trying out.
    """
    if not is_embedded or has_services:
        raise StartFailed(
            "--second is for trying out, beside a node without DATABASE_URL, REDIS_URL and "
            "NODE_MODE; name DOMAIN, PORT, DATA_DIR and those for another one."
        )
    port = int(first["PORT"]) + 1
    return {
        "DOMAIN": f"second.{first['DOMAIN']}",
        "PORT": str(port),
        "PUBLIC_URL": f"http://localhost:{port}",
        "DATA_DIR": str(Path(first["DATA_DIR"]) / "second"),
        **{name: given.get(name, value) for name, value in INVITED.items()},
        "NODE_BESIDE": f"localhost:{first['PORT']}",
    }
