"""Checks of what is set for federation, and of what it needs on the machine (E022, W002)."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from msgnode.core.networks import not_networks
from msgnode.sandbox import process

MODES = ("off", "listed", "approve", "open")


def faults() -> Iterator[tuple[str, str, str]]:
    """Its words and numbers, and whether the sandbox of its stubs can be made."""
    if settings.FEDERATION not in MODES:
        yield "E022", f"FEDERATION is {settings.FEDERATION!r}.", f"It is one of {', '.join(MODES)}."
    if settings.FEDERATION == "off":
        return
    if not process.find_deno():
        text = "FEDERATION is on, but Deno, which runs the protostubs of peers, is not installed."
        hint = "Run pip install 'messaging-node[federation]', or install Deno on this machine."
        yield "E022", text, hint
    wraps = settings.SANDBOX["BUBBLEWRAP"]
    if wraps not in ("auto", "required", "off"):
        yield "E022", f"SANDBOX_BUBBLEWRAP is {wraps!r}.", "It is auto, required or off."
    elif wraps == "required" and not process.can_wrap():
        text = "SANDBOX_BUBBLEWRAP is required, but bubblewrap does not work here."
        yield "E022", text, "Install bubblewrap and allow user namespaces, or set auto."
    elif wraps == "auto" and process.find_deno() and not process.can_wrap():
        hint = "Install bubblewrap and allow user namespaces, or set SANDBOX_BUBBLEWRAP=off."
        yield "W002", "Bubblewrap does not work here: sandboxes lack one layer of isolation.", hint
    for each in not_networks(settings.FEDERATION_NETWORKS):
        text = f"FEDERATION_NETWORKS names {each!r}."
        yield "E022", text, "Networks, such as 10.1.0.0/16, separated by commas."
    numbers = [*settings.PEERS.items(), *settings.SANDBOX.items()]
    for name, value in numbers:
        if isinstance(value, (int, float)) and not value > 0:
            yield "E022", f"{name} is {value}.", "It is more than zero."
