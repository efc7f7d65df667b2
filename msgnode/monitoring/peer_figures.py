"""A worker's metrics of the peers that it serves; never of other domains or visitors.

A domain that a client merely claims is no metric label, because there is no limit to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from .collector import gauge

if TYPE_CHECKING:
    from msgnode.federation.peer import Link
    from msgnode.federation.service import Federation
    from msgnode.sessions.visitors import Visitors

_OUTCOMES = (
    *("sent", "received", "refused", "expired", "full", "failed", "unanswered"),
    *("discarded", "lost", "set_aside"),
)


def peers(federation: Federation) -> Iterator[Metric]:
    """The metrics of each peer of this worker."""
    links = list(federation.links.values())
    state = GaugeMetricFamily(
        "msgnode_peer_state", "The state a peer is in: 1.", labels=("peer", "state")
    )
    passed = CounterMetricFamily(
        "msgnode_peer_messages",
        "Messages to and from a peer by outcome.",
        labels=("peer", "outcome"),
    )
    for link in links:
        state.add_metric((link.peer.domain, link.state), 1)
        for outcome in _OUTCOMES:
            number = getattr(link.exchange.counters, outcome)
            passed.add_metric((link.peer.domain, outcome), number)
    yield state
    yield passed
    text = "Ends of a sandbox of a peer, an operator's restarts included."
    restarts = CounterMetricFamily("msgnode_peer_restarts", text, labels=("peer",))
    for link in links:
        restarts.add_metric((link.peer.domain,), link.exchange.counters.restarts)
    yield restarts
    text = "Messages that wait for a peer."
    yield _gauge("queue", text, {each: len(each.exchange.queue) for each in links})
    text = "How long the first of them has waited."
    oldest = {each: each.exchange.queue.oldest_seconds for each in links}
    yield _gauge("queue_oldest_seconds", text, oldest)
    text = "From handing the stub a request until its response, the last time."
    round_trips = {each: each.exchange.counters.round_trip for each in links}
    yield _gauge("round_trip_seconds", text, round_trips)
    text = "Memory of a peer's sandbox."
    memory = {each: each.sandbox.memory_bytes if each.sandbox else 0 for each in links}
    yield _gauge("sandbox_bytes", text, memory)
    text = "Processor time of a peer's sandbox, in seconds, since it was started."
    cpu = {each: each.sandbox.cpu_seconds if each.sandbox else 0.0 for each in links}
    yield _gauge("sandbox_cpu_seconds", text, cpu)
    text = "Addresses that are subscribed at a peer, or asked for."
    yield _gauge("subscriptions", text, {each: len(each.subscriptions) for each in links})


def visitors(known: Visitors) -> Iterator[Metric]:
    """Runtimes of other domains that have a session at this worker."""
    yield gauge("visitors", "Sessions of runtimes of other domains.", value=len(known))
    yield gauge("visitor_domains", "Domains that visitors are of.", value=known.domains)
    for name, text, counts in (
        ("refused", "Visitors that were given no session, by what kept them out.", known.refused),
        ("ended", "Visits that were ended because they were over.", known.ended),
    ):
        family = CounterMetricFamily(f"msgnode_visitors_{name}", text, labels=("reason",))
        for reason, number in counts.copy().items():
            family.add_metric((reason,), number)
        yield family


def _gauge(name: str, text: str, values: Mapping[Link, float]) -> Metric:
    family = GaugeMetricFamily(f"msgnode_peer_{name}", text, labels=("peer",))
    for link, value in values.items():
        family.add_metric((link.peer.domain,), value)
    return family
