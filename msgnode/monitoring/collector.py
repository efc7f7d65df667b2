"""Collects a worker's metrics, when this or another worker asks for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
        yield from _faults()
        yield from _caches()
        for each in self._node.subsystems:
            yield from each.metrics()


def build_info() -> Metric:
    """The version of this process; while a node is upgraded, workers differ."""
    return gauge("build_info", "1, with the version of the process.", "version", {version(): 1})


def _sessions(node: MeasuredNode) -> Iterator[Metric]:
    """Sessions, sockets and queues."""
    sessions = list(node.sessions.sessions.values())
    states = Counter(str(session.state) for session in sessions)
    yield gauge("sessions", "Sessions by state.", "state", states)
    yield gauge("sockets", "Open WebSocket connections.", value=len(node.sockets.connections))
    steps = CounterMetricFamily(
        "msgnode_session_steps", "Sessions opened, resumed, lost and ended.", labels=("event",)
    )
    for event, number in node.sessions.steps.counts.copy().items():
        steps.add_metric((str(event),), number)
    yield steps
    queues = node.sessions.queues
    text = "Bytes that wait in the sessions' outboxes."
    yield gauge("outbox_bytes", text, value=queues.bytes)
    text = "Frames and queues dropped because a source, a subject or the node has no room."
    yield counter("queue_budget_refusals", text, queues.dropped)


def _messages(node: MeasuredNode) -> Iterator[Metric]:
    """Messages, and what decides on them."""
    yield gauge("routes", "Entries of the routing table.", "table", node.table.sizes)
    pending = node.answers.pending
    yield gauge("answers_pending", "Requests whose answers are under way.", value=pending)
    messages = CounterMetricFamily(
        "msgnode_messages", "Messages by type and outcome.", labels=("type", "outcome")
    )
    for (type_, outcome), count in dict(node.recorder.messages).items():
        messages.add_metric((type_, str(outcome)), count)
    yield messages
    invitations = CounterMetricFamily(
        "msgnode_p2p_invitations", "Invitations to P2P connections.", labels=("outcome",)
    )
    for outcome, count in dict(node.recorder.invitations).items():
        invitations.add_metric((str(outcome),), count)
    yield invitations
    yield counter("message_bytes", "Bytes of the messages read.", node.recorder.bytes)
    text = "From a frame to its last listener."
    yield histogram("delivery_seconds", text, node.recorder.latencies)
    text = "Decisions that the policies were asked for; other messages had one that was kept."
    yield counter("policy_evaluations", text, node.enforcer.evaluated)
    unasked = node.guard.dropped
    yield counter("responses_unasked", "Responses of who was not asked, dropped.", unasked)


def _commits(node: MeasuredNode) -> Iterator[Metric]:
    """Changes of the database."""
    yield gauge("commit_backlog", "Changes that wait for a commit.", value=node.writer.backlog)
    yield counter("changes_committed", "Changes committed.", node.writer.changes)
    yield histogram("commit_seconds", "Duration of a group commit.", node.writer.durations)


def _identities(node: MeasuredNode) -> Iterator[Metric]:
    """Identities, and their issuers' keys."""
    verified = node.identities.verifier.verifications
    yield counter("identity_verifications", "Signatures of identities checked.", verified)
    keys = GaugeMetricFamily(
        "msgnode_issuer_keys", "Keys in an issuer's set.", labels=("issuer", "state")
    )
    for url, (usable, unusable) in node.identities.keys.counts().items():
        keys.add_metric((url, "usable"), usable)
        keys.add_metric((url, "unusable"), unusable)
    yield keys
    bound = len(node.identities.logged_in)
    yield gauge("sessions_bound", "Sessions that are logged in.", value=bound)


def _lease(node: MeasuredNode) -> Iterator[Metric]:
    """The lease of the worker."""
    lease = node.lease
    text = "Seconds since the last renewal of the worker's lease was sent."
    yield gauge("lease_age_seconds", text, value=lease.age)
    yield gauge("lease_held", "Whether the worker holds it.", value=int(lease.is_held))
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
        spans = CounterMetricFamily(
            "msgnode_spans_exported", "Spans for the collector by outcome.", labels=("outcome",)
        )
        for end in ("sent", "failed"):
            spans.add_metric((end,), node.tracer.spans[end])
        yield spans


def _faults() -> Iterator[Metric]:
    """Failures in this process."""
    faults = CounterMetricFamily(
        "msgnode_faults", "Failures that were kept to the one they belong to.", labels=("part",)
    )
    for part, number in FAULTS.counts.copy().items():
        faults.add_metric((part,), number)
    yield faults


def _caches() -> Iterator[Metric]:
    """The hit rates of caches of messages' texts."""
    lookups = CounterMetricFamily(
        "msgnode_cache_lookups", "Look-ups in caches of texts.", labels=("cache", "outcome")
    )
    lookups.add_metric(("addresses", "miss"), addresses.misses())
    told = redaction.known.cache_info()
    lookups.add_metric(("redaction", "hit"), told.hits)
    lookups.add_metric(("redaction", "miss"), told.misses)
    yield lookups


def record(record: ParquetRecorder) -> Iterator[Metric]:
    """The traffic record."""
    yield counter("record_rows_written", "Rows of the record.", record.written)
    yield counter("record_rows_lost", "Rows that did not fit.", record.lost)
    yield gauge("record_rows_held", "Rows not yet written.", value=record.held)


def other_workers(cluster: Cluster) -> Iterator[Metric]:
    """The links to the other workers, and what their directory was asked."""
    yield from _links(cluster.transport.figures())
    network = cluster.network
    text = "Names, of addresses and above them, that the directory was asked for."
    yield counter("holders_asked", text, network.homes.asked)
    text = "Of these, those of which nothing could be found out."
    yield counter("holders_unknown", text, network.homes.not_known)
    text = "Names of which it is kept up here who is there on other workers."
    yield gauge("watched_addresses", text, value=len(network.interest.watched))


def _links(links: list[dict[str, Any]]) -> Iterator[Metric]:
    """The links to the other workers, by the name of the other."""
    up = {link["to"]: int(link["state"] == "up") for link in links}
    yield gauge("link_up", "Whether a worker is heard of.", "to", up)
    waiting = {link["to"]: link["waiting_bytes"] for link in links}
    yield gauge("link_bytes", "Bytes that another worker has not acknowledged.", "to", waiting)
    for name, text in (
        ("batches", "Batches published."),
        ("resent", "Batches published again."),
        ("gaps", "Losses between workers that were noticed."),
        ("missed", "Batches that had to be asked for again."),
        ("lost", "Sessions told of a gap on a link."),
    ):
        counted = CounterMetricFamily(f"msgnode_link_{name}", text, labels=("to",))
        for link in links:
            counted.add_metric((link["to"],), link[name])
        yield counted
