"""A worker's metrics of the peers that it serves; never of other domains or visitors.

A domain that a client merely claims is no metric label, because there is no limit to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from .collector import counter, gauge

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
    states = {(link.peer.domain, link.state): 1 for link in links}
    yield gauge("peer_state", "The state a peer is in: 1.", states, "peer state")
    passed = {
        (link.peer.domain, outcome): getattr(link.exchange.counters, outcome)
        for link in links
        for outcome in _OUTCOMES
    }
    text = "Messages to and from a peer by outcome."
    yield counter("peer_messages", text, passed, "peer outcome")
    text = "Ends of a peer's sandbox, or connection, an operator's restarts included."
    restarts = {link.peer.domain: link.exchange.counters.restarts for link in links}
    yield counter("peer_restarts", text, restarts, "peer")
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
    yield gauge("visitors", "Sessions of runtimes of other domains.", len(known))
    yield gauge("visitor_domains", "Domains that visitors are of.", known.domains)
    for name, text, counts in (
        ("refused", "Visitors that were given no session, by what kept them out.", known.refused),
        ("ended", "Visits that were ended because they were over.", known.ended),
    ):
        yield counter(f"visitors_{name}", text, counts, "reason")


def _gauge(name: str, text: str, values: Mapping[Link, float]) -> Metric:
    of_domains = {link.peer.domain: value for link, value in values.items()}
    return gauge(f"peer_{name}", text, of_domains, "peer")
