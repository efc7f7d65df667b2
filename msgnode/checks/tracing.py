"""Checks of what is set for tracing (E021)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error


def faults() -> Iterator[CheckMessage]:
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
