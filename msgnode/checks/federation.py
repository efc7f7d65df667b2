"""Checks of what is set for federation, and of what it needs on the machine (E022, W002)."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from msgnode.core.networks import not_networks
from msgnode.sandbox import process

MODES = ("off", "listed", "approve", "open")


def faults() -> Iterator[CheckMessage]:
    """Its words and numbers, and whether the sandbox of its stubs can be made."""
    if settings.FEDERATION not in MODES:
        yield Error(
            f"FEDERATION is {settings.FEDERATION!r}.",
            hint=f"It is one of {', '.join(MODES)}.",
            id="msgnode.E022",
        )
    if settings.FEDERATION == "off":
        return
    if not process.find_deno():
        yield Error(
            "FEDERATION is on, but Deno, which runs the protostubs of peers, is not installed.",
            hint="Run pip install 'messaging-node[federation]', or install Deno on this machine.",
            id="msgnode.E022",
        )
    wraps = settings.SANDBOX["BUBBLEWRAP"]
    if wraps not in ("auto", "required", "off"):
        yield Error(
            f"SANDBOX_BUBBLEWRAP is {wraps!r}.",
            hint="It is auto, required or off.",
            id="msgnode.E022",
        )
    elif wraps == "required" and not process.can_wrap():
        yield Error(
            "SANDBOX_BUBBLEWRAP is required, but bubblewrap does not work here.",
            hint="Install bubblewrap and allow user namespaces, or set auto.",
            id="msgnode.E022",
        )
    elif wraps == "auto" and process.find_deno() and not process.can_wrap():
        yield Warning(
            "Bubblewrap does not work here: sandboxes lack one layer of isolation.",
            hint="Install bubblewrap and allow user namespaces, or set SANDBOX_BUBBLEWRAP=off.",
            id="msgnode.W002",
        )
    for each in not_networks(settings.FEDERATION_NETWORKS):
        yield Error(
            f"FEDERATION_NETWORKS names {each!r}.",
            hint="Networks, such as 10.1.0.0/16, separated by commas.",
            id="msgnode.E022",
        )
    numbers = [*settings.PEERS.items(), *settings.SANDBOX.items()]
    for name, value in numbers:
        if isinstance(value, (int, float)) and not value > 0:
            yield Error(f"{name} is {value}.", hint="It is more than zero.", id="msgnode.E022")
