"""Collects a worker's metrics, when this or another worker asks for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from msgnode.core import addresses, redaction
from msgnode.core.faults import FAULTS
from msgnode.core.histogram import Histogram
from msgnode.resources import version

from .measured_node import MeasuredNode

Told = float | Mapping[Any, float]
"""A number; or numbers by what a label is, or by a tuple of what several are."""


def gauge(name: str, text: str, told: Told, labels: str = "") -> Metric:
    """A gauge. Labels are separated by blanks."""
    return _filled(GaugeMetricFamily, name, text, told, labels)


def counter(name: str, text: str, told: Told, labels: str = "") -> Metric:
    """A counter. Labels are separated by blanks."""
    return _filled(CounterMetricFamily, name, text, told, labels)


def _filled(kind: Any, name: str, text: str, told: Told, labels: str) -> Metric:
    metric = kind(f"msgnode_{name}", text, labels=labels.split())
    numbers = dict(told) if isinstance(told, Mapping) else {(): told}
    for key, number in numbers.items():
        of = key if isinstance(key, tuple) else (key,)
        metric.add_metric([str(each) for each in of], number)
    return cast("Metric", metric)


def histogram(name: str, text: str, told: Histogram) -> Metric:
    """A histogram, its total in seconds."""
    buckets = list(told.cumulative())
    return HistogramMetricFamily(f"msgnode_{name}", text, buckets, told.total)


if TYPE_CHECKING:
    from msgnode.traffic.recorder import ParquetRecorder
    from msgnode.workers.cluster import Cluster


class Sample(msgspec.Struct, array_like=True):
    """One number with its labels, under its whole name."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, array_like=True):
    """Metrics of one name and kind, as exchanged between workers."""

    name: str
    text: str
    kind: str
    samples: list[Sample]


def families(node: MeasuredNode) -> list[Family]:
    """All numbers of this worker and its process. Not for the event loop: sessions are counted."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(node))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [Sample(each.name, dict(each.labels), float(each.value)) for each in metric.samples],
        )
        for metric in registry.collect()
    ]


class NodeCollector(Collector):
    """Collects a worker's metrics from copies, while the event loop runs."""

    def __init__(self, node: MeasuredNode) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """Collect all metrics, while the event loop runs."""
        for part in (_sessions, _messages, _commits, _identities, _lease, _traces):
            yield from part(self._node)
        yield build_info()
        yield faults()
        yield from _caches()
        for each in self._node.subsystems:
            yield from each.metrics()


def build_info() -> Metric:
    """The version of this process; while a node is upgraded, workers differ."""
    return gauge("build_info", "1, with the version of the process.", {version(): 1}, "version")


def _sessions(node: MeasuredNode) -> Iterator[Metric]:
    """Sessions, sockets and queues."""
    sessions = list(node.sessions.sessions.values())
    states = Counter(str(session.state) for session in sessions)
    yield gauge("sessions", "Sessions by state.", states, "state")
    yield gauge("sockets", "Open WebSocket connections.", len(node.sockets.connections))
    text = "Sessions opened, resumed, lost and ended."
    yield counter("session_steps", text, node.sessions.steps.counts, "event")
    queues = node.sessions.queues
    text = "Bytes that wait in the sessions' outboxes."
    yield gauge("outbox_bytes", text, queues.bytes)
    text = "Frames and queues dropped because a source, a subject or the node has no room."
    yield counter("queue_budget_refusals", text, queues.dropped)


def _messages(node: MeasuredNode) -> Iterator[Metric]:
    """Messages, and what decides on them."""
    yield gauge("routes", "Entries of the routing table.", node.table.sizes, "table")
    pending = node.answers.pending
    yield gauge("answers_pending", "Requests whose answers are under way.", pending)
    text = "Messages by type and outcome."
    yield counter("messages", text, node.recorder.messages, "type outcome")
    text = "Invitations to P2P connections."
    yield counter("p2p_invitations", text, node.recorder.invitations, "outcome")
    yield counter("message_bytes", "Bytes of the messages read.", node.recorder.bytes)
    text = "From a frame to its last listener."
    yield histogram("delivery_seconds", text, node.recorder.latencies)
    text = "Decisions that the policies were asked for; other messages had one that was kept."
    yield counter("policy_evaluations", text, node.enforcer.evaluated)
    unasked = node.guard.dropped
    yield counter("responses_unasked", "Responses of who was not asked, dropped.", unasked)


def _commits(node: MeasuredNode) -> Iterator[Metric]:
    """Changes of the database."""
    yield gauge("commit_backlog", "Changes that wait for a commit.", node.writer.backlog)
    yield counter("changes_committed", "Changes committed.", node.writer.changes)
    yield histogram("commit_seconds", "Duration of a group commit.", node.writer.durations)


def _identities(node: MeasuredNode) -> Iterator[Metric]:
    """Identities, and their issuers' keys."""
    verified = node.identities.verifier.verifications
    yield counter("identity_verifications", "Signatures of identities checked.", verified)
    keys = {
        (url, state): number
        for url, numbers in node.identities.keys.counts().items()
        for state, number in zip(("usable", "unusable"), numbers, strict=True)
    }
    yield gauge("issuer_keys", "Keys in an issuer's set.", keys, "issuer state")
    bound = len(node.identities.logged_in)
    yield gauge("sessions_bound", "Sessions that are logged in.", bound)


def _lease(node: MeasuredNode) -> Iterator[Metric]:
    """The lease of the worker."""
    lease = node.lease
    text = "Seconds since the last renewal of the worker's lease was sent."
    yield gauge("lease_age_seconds", text, lease.age)
    yield gauge("lease_held", "Whether the worker holds it.", int(lease.is_held))
    yield counter("lease_renewals", "Renewals that succeeded.", lease.renewed)
    yield counter("lease_failures", "Renewals that failed.", lease.failed)
    text = "How often this process has lost its lease and begun again."
    yield counter("lease_losses", text, node.times_fenced)


def _traces(node: MeasuredNode) -> Iterator[Metric]:
    """Traced messages, and what of them went to a collector."""
    text = "Messages whose steps were noted."
    yield counter("traces", text, node.tracer.traced)
    text = "Messages that were to be traced and were too many."
    yield counter("traces_left_out", text, node.tracer.untraced)
    if node.tracer.spans is not None:
        spans = {end: node.tracer.spans[end] for end in ("sent", "failed")}
        text = "Spans for the collector by outcome."
        yield counter("spans_exported", text, spans, "outcome")


def faults() -> Metric:
    """Failures in this process."""
    text = "Failures that were kept to the one they belong to."
    return counter("faults", text, FAULTS.counts, "part")


def _caches() -> Iterator[Metric]:
    """The hit rates of caches of messages' texts."""
    told = redaction.known.cache_info()
    lookups = {
        ("addresses", "miss"): addresses.misses(),
        ("redaction", "hit"): told.hits,
        ("redaction", "miss"): told.misses,
    }
    text = "Look-ups in caches of texts."
    yield counter("cache_lookups", text, lookups, "cache outcome")


def record(record: ParquetRecorder) -> Iterator[Metric]:
    """The traffic record."""
    yield counter("record_rows_written", "Rows of the record.", record.written)
    yield counter("record_rows_lost", "Rows that did not fit.", record.lost)
    yield gauge("record_rows_held", "Rows not yet written.", record.held)


def other_workers(cluster: Cluster) -> Iterator[Metric]:
    """The links to the other workers, and what their directory was asked."""
    yield from _links(cluster.transport.figures())
    network = cluster.network
    text = "Names, of addresses and above them, that the directory was asked for."
    yield counter("holders_asked", text, network.homes.asked)
    text = "Of these, those of which nothing could be found out."
    yield counter("holders_unknown", text, network.homes.not_known)
    text = "Names of which it is kept up here who is there on other workers."
    yield gauge("watched_addresses", text, len(network.interest.watched))


def _links(links: list[dict[str, Any]]) -> Iterator[Metric]:
    """The links to the other workers, by the name of the other."""
    up = {link["to"]: int(link["state"] == "up") for link in links}
    yield gauge("link_up", "Whether a worker is heard of.", up, "to")
    waiting = {link["to"]: link["waiting_bytes"] for link in links}
    yield gauge("link_bytes", "Bytes that another worker has not acknowledged.", waiting, "to")
    for name, text in (
        ("batches", "Batches published."),
        ("resent", "Batches published again."),
        ("gaps", "Losses between workers that were noticed."),
        ("missed", "Batches that had to be asked for again."),
        ("lost", "Sessions told of a gap on a link."),
    ):
        counts = {link["to"]: link[name] for link in links}
        yield counter(f"link_{name}", text, counts, "to")
