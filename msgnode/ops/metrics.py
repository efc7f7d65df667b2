"""`/metrics`: the metrics of all workers of the node in Prometheus' text format.

The worker that is asked queries the others over their links, for at most PATIENCE seconds, so that
one scrape of a shared port has the whole node. Metrics of a worker have its name as the label
`worker`; a node without REDIS_URL is one worker, whose metrics have no such label. `?worker=this`
returns only the answering worker's. The web process returns only its own. Metrics that need the
database are left out if it does not answer within PATIENCE seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from msgnode import models
from msgnode.core import database_errors, database_limit
from msgnode.core.explanations import ALARMS
from msgnode.core.faults import FAULTS
from msgnode.monitoring import worker_queries
from msgnode.monitoring.collector import Family, build_info, families, faults, gauge
from msgnode.node import get_node
from msgnode.qos import figures

PATIENCE = 1.0


def metrics(request: HttpRequest) -> HttpResponse:
    """The numbers of the node, or of the worker that answers."""
    asked = request.GET.get("worker", "")
    if asked not in ("", "this"):
        return HttpResponseBadRequest("`worker` is `this`, or is left out.", "text/plain")
    if settings.ROLE == "web":
        return _of_the_web_process()
    parts = get_node().parts
    own = families(parts)
    told: dict[str, list[Family] | None] = {"" if parts.cluster.is_alone else parts.worker: own}
    if not asked:
        told |= worker_queries.metrics(parts.cluster.rpc, PATIENCE)
    registry = CollectorRegistry()
    registry.register(_All(told))
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _of_the_web_process() -> HttpResponse:
    """What this process takes; a worker tells the rest of the node."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(_OfTheWebProcess())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _OfTheWebProcess(Collector):
    """Failures that it has kept to one request, and its version."""

    def collect(self) -> Iterator[Metric]:
        yield faults()
        yield build_info()


class _All(Collector):
    """The numbers of workers by their names (None: it did not tell), and of the node."""

    def __init__(self, told: Mapping[str, list[Family] | None]) -> None:
        self._told = told

    def collect(self) -> Iterator[Metric]:
        yield from _joined(self._told)
        yield from of_the_node(self._told)


def of_the_node(told: Mapping[str, list[Family] | None]) -> Iterator[Metric]:
    """What is said of the node as a whole: who has told its numbers, and what alarms stand."""
    answered = {worker: own is not None for worker, own in told.items() if worker}
    yield gauge("worker_answered", "Whether a worker has told its numbers.", answered, "worker")
    told_of_it: list[Metric] = []
    up = 1
    try:
        with database_limit.at_most(PATIENCE):
            told_of_it = [_alarms(), *of_qos()]
    except (DatabaseError, InterfaceError) as error:
        FAULTS.note(database_errors.PART, error)
        up = 0
    yield gauge("database_up", "Whether the database has told its numbers.", up)
    yield from told_of_it


def _alarms() -> Metric:
    standing = models.Alarm.objects.filter(cleared_at=None).order_by()
    counted = dict(standing.values_list("kind").annotate(number=Count("pk")))
    numbers = dict.fromkeys(ALARMS, 0) | counted
    return gauge("alarms", "Standing alarms by kind.", numbers, "kind")


def _joined(told: Mapping[str, Iterable[Family] | None]) -> Iterable[Metric]:
    joined: dict[str, Metric] = {}
    for worker, own in told.items():
        label = {"worker": worker} if worker else {}
        for family in own or ():
            metric = joined.get(family.name)
            if metric is None:
                metric = joined[family.name] = Metric(family.name, family.text, family.kind)
            for each in family.samples:
                metric.add_sample(each.name, {**each.labels, **label}, each.value)
    return joined.values()


def of_qos() -> Iterator[Metric]:
    """The TURN servers, what is booked, and what customers have used, from the database."""
    told = figures.read() if settings.QOS["BROKER"] else figures.Figures()
    yield gauge("turn_up", "Whether a TURN server answers.", told.up, "server")
    text = "Bandwidth of a TURN server that may be booked."
    yield gauge("turn_capacity_bits", text, told.capacity, "server")
    yield gauge("turn_booked_bits", "Bandwidth that is booked on it.", told.booked, "server")
    text = "Allocations that it had when it was looked at last."
    yield gauge("turn_allocations", text, told.allocations, "server")
    text = "Reservations that have not ended, by state."
    yield gauge("qos_reservations", text, told.reservations, "state")
    yield gauge("qos_used_bytes", "Bytes that a customer has used.", told.used, "customer")
    yield gauge("qos_quota_bytes", "Bytes that it may use.", told.quota, "customer")
