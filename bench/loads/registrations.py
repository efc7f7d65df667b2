"""Registrations through the connector: sessions enter hyperties, answered after the commit.

Each session keeps `window` requests under way; what it registers is new.
"""

from __future__ import annotations

from typing import Any

from .requests import RequestLoad
from .runtimes import runtime_url

REGISTRY = "domain://registry.localhost"


class RegistrationLoad(RequestLoad):
    name = "registrant"

    def request(self, name: str, number: int) -> dict[str, Any]:
        return registration(name, number)


def registration(name: str, number: int) -> dict[str, Any]:
    """The request of a runtime of the field, with all it writes."""
    return {
        "id": number,
        "type": "create",
        "from_": f"{runtime_url(name)}/registry",
        "to": REGISTRY,
        "body": {
            "value": {
                "user": f"{name}@example.org",
                "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Chat",
                "url": f"hyperty://localhost/{name}-{number}",
                "expires": 3600,
                "resources": ["chat"],
                "dataSchemes": ["comm"],
                "runtime": runtime_url(name),
                "status": "live",
                "p2pRequester": f"{runtime_url(name)}/p2prequester/{number}",
                "p2pHandler": f"{runtime_url(name)}/p2phandler/{number}",
            },
            "policy": "policy",
        },
    }
