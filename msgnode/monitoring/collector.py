"""A worker's own numbers, read when somebody asks for them: here, or from another worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from msgnode.bus.recording import CountingRecorder
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from msgnode.core.histogram import Histogram
from msgnode.devices.mqtt.connector import CONNECTED, STANDBY, MqttConnector
from msgnode.devices.push import PushWakeups
from msgnode.devices.webhook import Webhooks
from msgnode.identity.service import IdentityService
from msgnode.monitoring.sampler import Sampler
from msgnode.monitoring.session_watch import SessionWatch
from msgnode.qos.service import QosService
from msgnode.sessions.budgets import AnswerBudget
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.manager import SessionManager
from msgnode.storage.writer import GroupWriter
from msgnode.traffic.recorder import ParquetRecorder
from msgnode.workers.cluster import Cluster
from msgnode.workers.lease import Lease


class MeasuredNode(Protocol):
    """The parts of a worker that are measured; the node implements it."""

    @property
    def sessions(self) -> SessionManager: ...
    @property
    def sockets(self) -> ConnectionLimits: ...
    @property
    def answers(self) -> AnswerBudget: ...
    @property
    def table(self) -> RoutingTable: ...
    @property
    def writer(self) -> GroupWriter: ...
    @property
    def recorder(self) -> CountingRecorder: ...
    @property
    def record(self) -> ParquetRecorder | None: ...
    @property
    def identities(self) -> IdentityService: ...
    @property
    def guard(self) -> ResponseGuard: ...
    @property
    def cluster(self) -> Cluster | None: ...
    @property
    def webhooks(self) -> Webhooks | None: ...
    @property
    def wakeups(self) -> PushWakeups | None: ...
    @property
    def mqtt(self) -> MqttConnector | None: ...
    @property
    def qos(self) -> QosService: ...
    @property
    def lease(self) -> Lease: ...
    @property
    def times_fenced(self) -> int: ...
    @property
    def sampler(self) -> Sampler: ...
    @property
    def watch(self) -> SessionWatch: ...


class Sample(msgspec.Struct, array_like=True):
    """One number with its labels, under its whole name."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, array_like=True):
    """Numbers of one name and kind, as workers tell them each other."""

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
    """What a worker knows of itself. Takes copies: the event loop goes on meanwhile."""

    def __init__(self, node: MeasuredNode) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        node = self._node
        sessions = list(node.sessions.sessions.values())
        states = Counter(str(session.state) for session in sessions)
        yield _gauge("sessions", "Sessions by state.", "state", states)
        yield _gauge("sockets", "Open WebSocket connections.", value=len(node.sockets.connections))
        yield _gauge("routes", "Entries of the routing table.", "table", node.table.sizes)
        steps = CounterMetricFamily(
            "msgnode_session_steps", "Sessions opened, resumed, lost and ended.", labels=("event",)
        )
        for event, number in node.sessions.steps.counts.copy().items():
            steps.add_metric((str(event),), number)
        yield steps
        queues = node.sessions.queues
        text = "Bytes that wait in the sessions' outboxes."
        yield _gauge("outbox_bytes", text, value=queues.bytes)
        text = "Frames and queues dropped because a source, a subject or the node has no room."
        yield _counter("queue_budget_refusals", text, queues.dropped)
        pending = node.answers.pending
        yield _gauge("answers_pending", "Requests whose answers are under way.", value=pending)
        yield _gauge("commit_backlog", "Changes that wait for a commit.", value=node.writer.backlog)
        yield _counter("changes_committed", "Changes committed.", node.writer.changes)
        yield _histogram("commit_seconds", "Duration of a group commit.", node.writer.durations)
        messages = CounterMetricFamily(
            "msgnode_messages", "Messages by type and outcome.", labels=("type", "outcome")
        )
        for (type_, outcome), count in dict(node.recorder.messages).items():
            messages.add_metric((type_, str(outcome)), count)
        yield messages
        yield _counter("message_bytes", "Bytes of the messages read.", node.recorder.bytes)
        yield _histogram(
            "delivery_seconds", "From a frame to its last listener.", node.recorder.latencies
        )
        faults = CounterMetricFamily(
            "msgnode_faults", "Failures that were kept to the one they belong to.", labels=("part",)
        )
        for part, number in FAULTS.counts.copy().items():
            faults.add_metric((part,), number)
        yield faults
        if node.record is not None:
            yield _counter("record_rows_written", "Rows of the record.", node.record.written)
            yield _counter("record_rows_lost", "Rows that did not fit.", node.record.lost)
            yield _gauge("record_rows_held", "Rows not yet written.", value=node.record.held)
        verified = node.identities.verifier.verifications
        yield _counter("identity_verifications", "Signatures of identities checked.", verified)
        bound = len(node.identities.logged_in)
        yield _gauge("sessions_bound", "Sessions that are logged in.", value=bound)
        unasked = node.guard.dropped
        yield _counter("responses_unasked", "Responses of who was not asked, dropped.", unasked)
        lease = node.lease
        text = "Seconds since the last renewal of the worker's lease was sent."
        yield _gauge("lease_age_seconds", text, value=lease.age)
        yield _gauge("lease_held", "Whether the worker holds it.", value=int(lease.is_held))
        yield _counter("lease_renewals", "Renewals that succeeded.", lease.renewed)
        yield _counter("lease_failures", "Renewals that failed.", lease.failed)
        text = "How often this process has lost its lease and begun again."
        yield _counter("lease_losses", text, node.times_fenced)
        if node.webhooks is not None:
            yield from _webhooks(node.webhooks)
        if node.wakeups is not None:
            yield from _wakeups(node.wakeups)
        if node.mqtt is not None:
            yield from _mqtt(node.mqtt)
        yield from _qos(node.qos)
        if node.cluster is not None:
            yield from _links(node.cluster.transport.figures())
            homes = node.cluster.homes
            text = "Addresses that were not known here and asked of the directory."
            yield _counter("holders_asked", text, homes.asked)
            text = "Of these, those of which nothing could be found out."
            yield _counter("holders_unknown", text, homes.not_known)
            text = "Addresses whose listeners on other workers are kept up here."
            yield _gauge("watched_addresses", text, value=node.cluster.interest.number_watched)


def _links(links: list[dict[str, Any]]) -> Iterator[Metric]:
    """The links to the other workers, by the name of the other."""
    up = {link["to"]: int(link["state"] == "up") for link in links}
    yield _gauge("link_up", "Whether a worker is heard of.", "to", up)
    waiting = {link["to"]: link["waiting_bytes"] for link in links}
    yield _gauge("link_bytes", "Bytes that another worker has not acknowledged.", "to", waiting)
    for name, text in (
        ("batches", "Batches published."),
        ("resent", "Batches published again."),
        ("gaps", "Losses between workers that were noticed."),
        ("missed", "Batches that had to be asked for again."),
        ("lost", "Sessions told of a gap on a link."),
    ):
        counter = CounterMetricFamily(f"msgnode_link_{name}", text, labels=("to",))
        for link in links:
            counter.add_metric((link["to"],), link[name])
        yield counter


def _webhooks(webhooks: Webhooks) -> Iterator[Metric]:
    """What is posted to network servers."""
    yield _gauge("webhooks", "Sessions with a webhook at this worker.", value=len(webhooks))
    posts = CounterMetricFamily(
        "msgnode_webhook_posts", "Requests to webhooks by outcome.", labels=("outcome",)
    )
    posts.add_metric(("delivered",), webhooks.counters.delivered)
    posts.add_metric(("failed",), webhooks.counters.failed)
    yield posts
    text = "Webhooks that were removed: their servers said 410, or nothing for a day."
    yield _counter("webhooks_removed", text, webhooks.counters.removed)


def _wakeups(wakeups: PushWakeups) -> Iterator[Metric]:
    """What is said to push services."""
    number = len(wakeups)
    yield _gauge("push_subscriptions", "Sessions that are woken by push.", value=number)
    counted = CounterMetricFamily(
        "msgnode_push_wakeups", "Wake-ups by outcome.", labels=("outcome",)
    )
    counted.add_metric(("sent",), wakeups.counters.sent)
    counted.add_metric(("failed",), wakeups.counters.failed)
    yield counted


def _mqtt(mqtt: MqttConnector) -> Iterator[Metric]:
    """The MQTT connector; where another worker serves the broker, all but the counters are 0."""
    text = "Whether this worker is the one that serves the MQTT broker."
    yield _gauge("mqtt_serves", text, value=int(mqtt.state != STANDBY))
    text = "Whether it is connected to the broker."
    yield _gauge("mqtt_connected", text, value=int(mqtt.state == CONNECTED))
    yield _gauge("mqtt_devices", "Devices with an open session.", value=mqtt.devices)
    yield _gauge("mqtt_topics", "Sensor topics that are connected.", value=mqtt.topics)
    yield _gauge("mqtt_objects", "Data objects of sensors.", value=mqtt.objects)
    text = "Messages of QoS 1 that were read and not carried yet."
    yield _gauge("mqtt_unacknowledged", text, value=mqtt.unacknowledged)
    counters = mqtt.counters
    for name, text, value in (
        ("received", "Messages from the broker.", counters.received),
        ("published", "Messages to the broker that it has.", counters.published),
        ("repeated", "Messages that came again and were not carried twice.", counters.repeated),
        ("refused", "Messages that no session could carry.", counters.refused),
        ("dropped", "Messages of QoS 0 that came faster than they may.", counters.dropped),
        ("lost_connections", "Connections lost or not made.", counters.lost_connections),
    ):
        yield _counter(f"mqtt_{name}", text, value)


def _qos(qos: QosService) -> Iterator[Metric]:
    """The QoS broker; where another worker supervises, that one counts what ends and is carried."""
    requests = CounterMetricFamily(
        "msgnode_qos_requests", "Requests by what they ask for and code.", labels=("asked", "code")
    )
    for (asked, code), number in qos.connector.requests.copy().items():
        requests.add_metric((asked, str(code)), number)
    yield requests
    ended = CounterMetricFamily(
        "msgnode_qos_ended", "Reservations that have ended, by reason.", labels=("reason",)
    )
    supervisor = qos.supervisor
    for reason, number in (supervisor.ended.copy() if supervisor else {}).items():
        ended.add_metric((reason,), number)
    yield ended
    relays = supervisor.relays if supervisor else None
    text = "Whether this worker supervises reservations and TURN servers."
    yield _gauge(
        "qos_supervises", text, value=int(supervisor is not None and supervisor.supervises)
    )
    text = "Whether it hears from their Redis what TURN servers carry."
    metric = GaugeMetricFamily("msgnode_qos_redis_up", text)
    if relays is not None and relays.hears is not None:
        metric.add_metric((), int(relays.hears))
    yield metric
    carried = CounterMetricFamily(
        "msgnode_qos_bytes", "Bytes of peers that were relayed, as counted.", labels=("direction",)
    )
    carried.add_metric(("received",), relays.received if relays else 0)
    carried.add_metric(("sent",), relays.sent if relays else 0)
    yield carried
    text = "Events of allocations that found no room to be counted."
    yield _counter("qos_uncounted", text, relays.uncounted if relays else 0)


def _gauge(
    name: str,
    text: str,
    label: str = "",
    values: dict[str, int] | None = None,
    value: float | None = None,
) -> Metric:
    metric = GaugeMetricFamily(
        f"msgnode_{name}", text, value=value, labels=(label,) if label else None
    )
    for key, count in (values or {}).items():
        metric.add_metric((key,), count)
    return metric


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"msgnode_{name}", text, value=value)


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    buckets = list(histogram.cumulative())
    return HistogramMetricFamily(f"msgnode_{name}", text, buckets, histogram.total)
