"""The rows of legacy networks: what an operator says of one, and what its gateway keeps. Blocks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.conf import settings
from django.utils import timezone

from msgnode.bus.writing import Call, Writer, result_of, retrieve_error
from msgnode.federation import crossing
from msgnode.federation.store import CHANGED
from msgnode.identity.encryption import encrypt
from msgnode.models import ADDRESS_LENGTH, LegacyAddress, LegacyNetwork, Peer
from msgnode.storage.control import post

SETTABLE = ("domain", "network", "host", "port", "transport", "component", "wants_receipts",
            "pool", "per_minute", "media", "trusted")  # fmt: skip
MAX_SECRET = 500
_HOST = re.compile(r"(?!-)[a-z0-9.-]{1,253}")


def as_stored(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that an operator gives, with names as they are stored: in lower case."""
    names = {"domain", "component", "host", "media"} & said.keys()
    return {**said, **{name: said[name].strip().lower() for name in names}}


def faults(said: Mapping[str, Any], before: LegacyNetwork | None = None) -> dict[str, str]:
    """What is wrong with a row, by the names of its fields.

    Args:
        said: the fields that an operator gives, and the `secret`.
        before: the row that is changed, None for a new one.
    """
    wrong: dict[str, str] = {}
    domain = said.get("domain", before.domain if before else "")
    component = said.get("component", before.component if before else "")
    network = said.get("network", before.network if before else LegacyNetwork.Network.XMPP)
    is_script = network == LegacyNetwork.Network.SCRIPT
    is_sip = network == LegacyNetwork.Network.SIP or is_script
    for name, value in (("domain", domain), ("component", component)):
        if is_sip and name == "component" and not value:
            if not said.get("pool", before.pool if before else 0):
                wrong["pool"] = "Without a domain of the gateway, all users are lent addresses."
        elif fault := crossing.domain_fault(value):
            wrong[name] = f"{value} {fault}."
        elif value == settings.DOMAIN:
            wrong[name] = "It is this node's own domain."
    if not wrong and component == domain:
        wrong["component"] = "The gateway needs a domain beside that of the network's users."
    if before is None and not wrong and Peer.objects.filter(domain=domain).exists():
        wrong["domain"] = f"{domain} is a peer already."
    if not wrong and component and (other := _other_with(component, domain)):
        wrong["component"] = f"{other} has this domain of the gateway already."
    is_told = "host" in said or before is None
    if not is_script and is_told and not _is_host(said.get("host", "")):
        wrong["host"] = "It must be a name or an IP address, without a port."
    kind = said.get("network", before.network if before else "")
    scripted = LegacyNetwork.objects.filter(network=LegacyNetwork.Network.SCRIPT)
    if is_script and (served := scripted.exclude(domain=domain).first()):
        wrong["network"] = f"The script speaks to {served} already."
    if is_script and component:
        wrong["component"] = "The users of this node are lent addresses of a script's network."
    if said.get("trusted") and kind == LegacyNetwork.Network.SIP:
        wrong["trusted"] = "A SIP proxy does not say who writes: leave it off."
    if (media := said.get("media")) and not _is_place(media):
        wrong["media"] = "It must be host:port, such as 127.0.0.1:22222."
    if fault := _secret_fault(said.get("secret", ""), is_new=before is None and not is_script):
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


def replace_secret(row: LegacyNetwork, secret: str) -> str:
    """Store another secret of a network, to which workers connect anew; return the obstacle."""
    if row.network == LegacyNetwork.Network.SCRIPT:
        return "Its script has the secrets: manage.py connectors secret legacy."
    if fault := _secret_fault(secret, is_new=True):
        return fault
    row.sealed = encrypt(secret)
    row.save(update_fields=["sealed"])  # workers write the other fields
    post(CHANGED)
    return ""


def _is_host(text: str) -> bool:
    """Whether a text is a name or an IP address."""
    try:
        return bool(_HOST.fullmatch(text) or ipaddress.ip_address(text))
    except ValueError:
        return False


def _is_place(text: str) -> bool:
    """Whether a text is a host and a port."""
    host, _, port = text.rpartition(":")
    return _is_host(host.strip("[]")) and port.isdecimal() and 0 < int(port[:6]) < 65_536


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


# --- what the gateway keeps -----------------------------------------------------------------------


class KeptAddresses:
    """The contacts and the lent addresses of a network, read and written in a worker's writer.

    Args:
        writer: the worker's writer.
        network: the key of the network's row.
    """

    def __init__(self, writer: Writer, network: int) -> None:
        self._writer = writer
        self._network = network

    async def read(self) -> list[tuple[str, str, str]]:
        """All of them: kind, address here, address there. Raises NodeError."""
        return await result_of(self._writer, self._read)

    def write(self, kind: str, here: str, there: str, is_kept: bool) -> None:
        """Store one, or delete it; one too long for a row is known to this worker alone."""
        if len(here) > ADDRESS_LENGTH or len(there) > ADDRESS_LENGTH:
            return
        row = {"network_id": self._network, "kind": kind, "here": here, "there": there}
        change = partial(_keep, row) if is_kept else partial(_drop, row)
        self._writer.submit(Call(change)).add_done_callback(retrieve_error)

    def _read(self) -> list[tuple[str, str, str]]:
        found = LegacyAddress.objects.filter(network=self._network).order_by("id")
        return list(found.values_list("kind", "here", "there"))


def _keep(row: dict[str, Any]) -> None:
    LegacyAddress.objects.get_or_create(**row)


def _drop(row: dict[str, Any]) -> None:
    LegacyAddress.objects.filter(**row).delete()
