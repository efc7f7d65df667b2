"""Makes metric families of prometheus_client."""

from __future__ import annotations

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from msgnode.core.histogram import Histogram


def gauge(
    name: str,
    text: str,
    label: str = "",
    values: dict[str, int] | None = None,
    value: float | None = None,
) -> Metric:
    """A gauge: one `value`, or `values` by the label `label`."""
    metric = GaugeMetricFamily(
        f"msgnode_{name}", text, value=value, labels=(label,) if label else None
    )
    for key, count in (values or {}).items():
        metric.add_metric((key,), count)
    return metric


def counter(name: str, text: str, value: float) -> Metric:
    """A counter of one value."""
    return CounterMetricFamily(f"msgnode_{name}", text, value=value)


def histogram(name: str, text: str, told: Histogram) -> Metric:
    """A histogram, its total in seconds."""
    buckets = list(told.cumulative())
    return HistogramMetricFamily(f"msgnode_{name}", text, buckets, told.total)
