"""Exports finished traces as spans to an OpenTelemetry collector, by OTLP over HTTP.

The SDK is an optional dependency (`messaging-node[otlp]`), imported only if an endpoint is set. Its
batch processor has a bounded queue and sends in a thread of its own: if the collector is away,
spans are lost and counted, nothing else. Headers, certificates and limits are set by the variables
that OpenTelemetry documents (OTEL_EXPORTER_OTLP_HEADERS and so on).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgnode.bus.trace import Span, TracePart


class OtlpExport:
    """Sends traces to a collector.

    Args:
        endpoint: URL of the collector; spans are posted to `<endpoint>/v1/traces`.
        domain: of the node.
        worker: its name.
    """

    def __init__(self, endpoint: str, domain: str, worker: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import (
            BatchSpanProcessor,
            SpanExporter,
            SpanExportResult,
        )
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        sent: Counter[str] = Counter()

        class Counting(SpanExporter):
            """The exporter, with its results counted."""

            def __init__(self) -> None:
                self._inner = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")

            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                result = self._inner.export(spans)
                is_sent = result is SpanExportResult.SUCCESS
                sent["sent" if is_sent else "failed"] += len(spans)
                return result

            def shutdown(self) -> None:
                self._inner.shutdown()

        self.sent = sent
        self._resource = Resource.create(
            {
                "service.name": "messaging-node",
                "service.namespace": domain,
                "service.instance.id": worker,
            }
        )
        self._scope = InstrumentationScope("msgnode")
        self._processor = BatchSpanProcessor(Counting())

    def export(self, part: TracePart) -> None:
        """Queue the trace of a message; never blocks."""
        facts: dict[str, Any] = {
            "messaging.system": "rethink",
            "messaging.message.id": part.id,
            "messaging.destination.name": part.to,
            "messaging.client.id": part.runtime,
            "rethink.from": part.sender,
            "rethink.session": part.session,
            "rethink.outcome": part.outcome,
            "rethink.code": part.code,
            "rethink.rule": part.rule,
            "enduser.id": part.user,
        }
        first = part.spans[0]
        for span in part.spans:
            more = facts if span is first else {}
            self._processor.on_end(self._readable(part, span, {**more, **span.facts}))

    def close(self) -> None:
        """Send what is queued, and end. Blocks for the collector."""
        self._processor.shutdown()

    def _readable(self, part: TracePart, span: Span, facts: dict[str, Any]) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(id_: str, is_remote: bool) -> SpanContext:
            return SpanContext(
                int(part.trace, 16), int(id_, 16), is_remote, TraceFlags(TraceFlags.SAMPLED)
            )

        is_first = span is part.spans[0]
        began = int(span.at * 1e9)
        return ReadableSpan(
            name=f"{part.type} {part.to}"[:200] if is_first else span.name,
            context=context(span.id, False),
            parent=context(span.parent, is_first) if span.parent else None,
            resource=self._resource,
            attributes={name: value for name, value in facts.items() if value not in ("", None)},
            kind=SpanKind.CONSUMER if is_first else SpanKind.INTERNAL,
            instrumentation_scope=self._scope,
            status=Status(StatusCode.ERROR if span.is_error else StatusCode.UNSET),
            start_time=began,
            end_time=began + int(span.seconds * 1e9),
        )
