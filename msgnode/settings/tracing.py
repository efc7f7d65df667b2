"""Traces of messages (docs/console.md), and where they are sent."""

from __future__ import annotations

from typing import Any

from .environment import env

TRACING: dict[str, Any] = {
    # of the messages whose sender says no `traceparent`, 0 to 1; each worker traces 100 a second
    "RATIO": env.float("TRACE_SAMPLE_RATIO", default=0.0),
    # of an OpenTelemetry collector, OTLP over HTTP; its further variables are read by the SDK
    "ENDPOINT": env("OTEL_EXPORTER_OTLP_ENDPOINT", default=""),
}
