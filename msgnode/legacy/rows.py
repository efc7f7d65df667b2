"""The rows of legacy networks: what an operator may say of one, checked before it is stored."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils import timezone

from msgnode.federation import crossing
from msgnode.federation.store import CHANGED
from msgnode.identity.encryption import encrypt
from msgnode.models import LegacyNetwork, Peer
from msgnode.storage.control import post

SETTABLE = ("domain", "network", "host", "port", "component", "wants_receipts", "pool",
            "per_minute")  # fmt: skip
MAX_SECRET = 500
_HOST = re.compile(r"(?!-)[a-z0-9.-]{1,253}")


def faults(said: Mapping[str, Any], before: LegacyNetwork | None = None) -> dict[str, str]:
    """What is wrong with a row, by the names of its fields.

    Args:
        said: the fields that an operator gives, and the `secret`.
        before: the row that is changed, None for a new one.
    """
    wrong: dict[str, str] = {}
    domain = said.get("domain", before.domain if before else "")
    component = said.get("component", before.component if before else "")
    for name, value in (("domain", domain), ("component", component)):
        if fault := crossing.domain_fault(value):
            wrong[name] = f"{value} {fault}."
        elif value == settings.DOMAIN:
            wrong[name] = "It is this node's own domain."
    if not wrong and component == domain:
        wrong["component"] = "The gateway needs a domain beside that of the network's users."
    if before is None and not wrong and Peer.objects.filter(domain=domain).exists():
        wrong["domain"] = f"{domain} is a peer already."
    if not wrong and (other := _other_with(component, domain)):
        wrong["component"] = f"{other} has this domain of the gateway already."
    if "host" in said and not _is_host(said["host"]):
        wrong["host"] = "It must be a name or an IP address, without a port."
    if fault := _secret_fault(said.get("secret", ""), is_new=before is None):
        wrong["secret"] = fault
    return wrong


def save(row: LegacyNetwork, secret: str) -> None:
    """Store a row that has no fault, with its secret if a new one is given; workers follow."""
    if secret:
        row.sealed = encrypt(secret)
    if row._state.adding:  # who adds a network wants it
        row.decision, row.approved_at = Peer.Decision.APPROVED, timezone.now()
    row.save()
    post(CHANGED)


def _is_host(text: str) -> bool:
    """Whether a text is a name or an IP address."""
    try:
        return bool(_HOST.fullmatch(text) or ipaddress.ip_address(text))
    except ValueError:
        return False


def _other_with(component: str, domain: str) -> str:
    """The other network with this domain of the gateway: a server takes one of a name."""
    found = LegacyNetwork.objects.filter(component=component).exclude(domain=domain)
    return found.values_list("domain", flat=True).first() or ""


def _secret_fault(secret: str, is_new: bool) -> str:
    if is_new and not secret:
        return "The server asks for a secret: give the one that it was told."
    if len(secret) > MAX_SECRET or not secret.isprintable():
        return f"It may have {MAX_SECRET} characters, none of which is a control character."
    return ""
