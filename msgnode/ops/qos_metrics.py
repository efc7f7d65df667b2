"""What `/metrics` tells of quality of service for the node as a whole, from the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.conf import settings
from prometheus_client.core import GaugeMetricFamily, Metric

from msgnode.qos import figures


def of_the_node() -> Iterator[Metric]:
    """The TURN servers, what is booked, and what customers have used."""
    told = figures.read() if settings.QOS["BROKER"] else figures.Figures()
    yield _gauge("turn_up", "Whether a TURN server answers.", "server", told.up)
    text = "Bandwidth of a TURN server that may be booked."
    yield _gauge("turn_capacity_bits", text, "server", told.capacity)
    yield _gauge("turn_booked_bits", "Bandwidth that is booked on it.", "server", told.booked)
    text = "Allocations that it had when it was looked at last."
    yield _gauge("turn_allocations", text, "server", told.allocations)
    text = "Reservations that have not ended, by state."
    yield _gauge("qos_reservations", text, "state", told.reservations)
    yield _gauge("qos_used_bytes", "Bytes that a customer has used.", "customer", told.used)
    yield _gauge("qos_quota_bytes", "Bytes that it may use.", "customer", told.quota)


def _gauge(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    metric = GaugeMetricFamily(f"msgnode_{name}", text, labels=(label,))
    for key, value in values.items():
        metric.add_metric((key,), value)
    return metric
