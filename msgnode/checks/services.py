"""Checks of what is set for registries, policies and traces (E010 to E015, E021)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.checks import CheckMessage, Error

ACCESS_WORDS = ("open", "read-open", "account")
MAY_BE_ZERO = frozenset({"CLOSE_GRACE", "PURGE_AFTER", "HISTORY_KEPT"})


def faults() -> Iterator[CheckMessage]:
    """Those of each."""
    yield from _registries()
    yield from _policies()
    yield from _traces()


def _registries() -> Iterator[CheckMessage]:
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


def _policies() -> Iterator[CheckMessage]:
    """The time zone that rules are written in, and how much is kept of decisions."""
    policy = settings.POLICY
    try:
        ZoneInfo(policy["TIME_ZONE"])
    except (OSError, ValueError, KeyError):  # no such zone, or a name that is none
        yield Error(
            f"POLICY_TIME_ZONE {policy['TIME_ZONE']!r} is not a time zone.",
            hint="A name such as UTC or Europe/Berlin.",
            id="msgnode.E013",
        )
    for name in ("LOG_SAMPLE", "LOG_DAYS"):
        if not policy[name] >= 0:
            yield Error(f"POLICY_{name} is {policy[name]}.", hint="0 or more.", id="msgnode.E014")


def _traces() -> Iterator[CheckMessage]:
    """How much is traced, and where it is sent."""
    if not 0 <= settings.TRACING["RATIO"] <= 1:
        yield Error(
            f"TRACE_SAMPLE_RATIO is {settings.TRACING['RATIO']}.",
            hint="Set the fraction of messages to trace, from 0 to 1.",
            id="msgnode.E021",
        )
    endpoint = settings.TRACING["ENDPOINT"]
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        yield Error(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is {endpoint!r}.",
            hint="Set the URL of a collector that accepts OTLP over HTTP: http://127.0.0.1:4318",
            id="msgnode.E021",
        )
    if endpoint and find_spec("opentelemetry") is None:
        yield Error(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed.",
            hint="Run pip install 'messaging-node[otlp]'.",
            id="msgnode.E021",
        )
