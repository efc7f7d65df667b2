"""Checks of what is set for the registries (E010 to E012, E015)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error

ACCESS_WORDS = ("open", "read-open", "account")
MAY_BE_ZERO = frozenset(
    {"CLOSE_GRACE", "DEAD_AFTER", "PURGE_AFTER", "HISTORY_KEPT", "REMOTE_RETRIES"}
)


def faults() -> Iterator[CheckMessage]:
    """Access, numbers, and where registries elsewhere are."""
    registry = settings.REGISTRY
    if registry["ACCESS"] not in ACCESS_WORDS:
        yield Error(
            f"REGISTRY_ACCESS is {registry['ACCESS']!r}.",
            hint=f"One of {', '.join(ACCESS_WORDS)}.",
            id="msgnode.E010",
        )
    if registry["UNAVAILABLE_CODE"] not in (408, 500):
        yield Error(
            f"REGISTRY_UNAVAILABLE_CODE is {registry['UNAVAILABLE_CODE']}.",
            hint="408 as specified, or 500 for older runtimes.",
            id="msgnode.E011",
        )
    for name, value in registry.items():
        is_number = isinstance(value, (int, float))
        if is_number and not (value > 0 or (value == 0 and name in MAY_BE_ZERO)):
            least = "zero or more" if name in MAY_BE_ZERO else "more than zero"
            hint = f"It is {least}."
            yield Error(f"REGISTRY_{name} is {value}.", hint=hint, id="msgnode.E012")
    for name in ("DOMAIN", "GLOBAL"):
        base = urlsplit(registry[f"{name}_URL"])
        if any(base) and not (base.scheme in ("http", "https") and base.hostname):
            yield Error(
                f"{name}_REGISTRY_URL is {base.geturl()!r}.",
                hint="The base URL of a registry, such as https://registry.example.org/v1.",
                id="msgnode.E015",
            )
