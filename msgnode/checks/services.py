"""Checks of what is set for registries, policies and traces (E010 to E015, E021)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django.conf import settings

ACCESS_WORDS = ("open", "read-open", "account")
MAY_BE_ZERO = frozenset({"CLOSE_GRACE", "PURGE_AFTER", "HISTORY_KEPT"})


def faults() -> Iterator[tuple[str, str, str]]:
    """Those of each."""
    yield from _registries()
    yield from _policies()
    yield from _traces()


def _registries() -> Iterator[tuple[str, str, str]]:
    """Access, numbers, and where registries elsewhere are."""
    registry = settings.REGISTRY
    if registry["ACCESS"] not in ACCESS_WORDS:
        text = f"REGISTRY_ACCESS is {registry['ACCESS']!r}."
        yield "E010", text, f"One of {', '.join(ACCESS_WORDS)}."
    if registry["UNAVAILABLE_CODE"] not in (408, 500):
        text = f"REGISTRY_UNAVAILABLE_CODE is {registry['UNAVAILABLE_CODE']}."
        yield "E011", text, "408 as specified, or 500 for older runtimes."
    for name, value in registry.items():
        is_number = isinstance(value, (int, float))
        if is_number and not (value > 0 or (value == 0 and name in MAY_BE_ZERO)):
            least = "zero or more" if name in MAY_BE_ZERO else "more than zero"
            hint = f"It is {least}."
            yield "E012", f"REGISTRY_{name} is {value}.", hint
    for name in ("DOMAIN", "GLOBAL"):
        base = urlsplit(registry[f"{name}_URL"])
        if any(base) and not (base.scheme in ("http", "https") and base.hostname):
            hint = "The base URL of a registry, such as https://registry.example.org/v1."
            yield "E015", f"{name}_REGISTRY_URL is {base.geturl()!r}.", hint


def _policies() -> Iterator[tuple[str, str, str]]:
    """The time zone that rules are written in, and how much is kept of decisions."""
    policy = settings.POLICY
    try:
        ZoneInfo(policy["TIME_ZONE"])
    except (OSError, ValueError, KeyError):  # no such zone, or a name that is none
        text = f"POLICY_TIME_ZONE {policy['TIME_ZONE']!r} is not a time zone."
        yield "E013", text, "A name such as UTC or Europe/Berlin."
    for name in ("LOG_SAMPLE", "LOG_DAYS"):
        if not policy[name] >= 0:
            yield "E014", f"POLICY_{name} is {policy[name]}.", "0 or more."


def _traces() -> Iterator[tuple[str, str, str]]:
    """How much is traced, and where it is sent."""
    if not 0 <= settings.TRACING["RATIO"] <= 1:
        text = f"TRACE_SAMPLE_RATIO is {settings.TRACING['RATIO']}."
        yield "E021", text, "Set the fraction of messages to trace, from 0 to 1."
    endpoint = settings.TRACING["ENDPOINT"]
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        hint = "Set the URL of a collector that accepts OTLP over HTTP: http://127.0.0.1:4318"
        yield "E021", f"OTEL_EXPORTER_OTLP_ENDPOINT is {endpoint!r}.", hint
    if endpoint and find_spec("opentelemetry") is None:
        text = "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed."
        yield "E021", text, "Run pip install 'messaging-node[otlp]'."
