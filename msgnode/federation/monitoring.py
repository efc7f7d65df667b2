"""What an operator sees of the peers that a worker serves, and what is done about it on his order.

Rules
- Alarms are raised, and cleared when the peer works again. The figures are the traffic to and from
  each peer, and what its sandbox uses.
- A message that has waited SHOWN_AFTER seconds gets a row, the first MOST of a peer. The row goes
  when the message has left. So does a request that has left and has had no response for as long,
  until it has, or none is waited for. Rows tell, nothing more: what waits is in memory.
- An order names a queue and numbers in it. It holds for those that are still there.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from msgnode.core.errors import NodeError
from msgnode.core.messages import Message
from msgnode.core.redaction import cut
from msgnode.models import ADDRESS_LENGTH, Peer, PeerMessage
from msgnode.sandbox.pipe import shown
from msgnode.storage.alarms import FAILING_ALARM, STUCK_ALARM
from msgnode.storage.control import Handler, post

from . import store
from .exchange import ASKED_SECONDS, Way
from .queue import PeerQueue, Waiting
from .states import IDLE, LIVE
from .stored_messages import shown_id

if TYPE_CHECKING:  # it needs the whole of federation, and commands need the rest of this
    from .peer import Link

FAILING_AFTER = 5
"""Ends of a sandbox after which an alarm is raised, if it was not live for a minute in between."""
STUCK_SECONDS = 60.0
"""Seconds without a live stub after which an alarm is raised."""
WAITING_SECONDS = 5.0
"""Seconds that the head of the queue waits after which an alarm is raised, too."""
LOOP_ALARM = "peer-loop"
SPOOF_ALARM = "peer-spoofs"
AGAIN_SECONDS = 60.0
"""Seconds after which one of these is raised again, if there was more."""
FIGURES_SECONDS = 10.0
"""Seconds between two rows of a peer, over which its rates are averaged."""
CARRIER_SECONDS = 1.0
"""The same, once something else carries the messages than before."""


class PeerAlarms:
    """One instance per worker.

    Args:
        raise_alarm, clear_alarm: the node's alarms.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        raise_alarm: Callable[[str, str, str], None],
        clear_alarm: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._clock = clock
        self._raised: dict[str, set[str]] = {}  # domain -> kinds
        self._away_since: dict[str, float] = {}
        self._well: set[str] = set()
        self._counted: dict[tuple[str, str], tuple[int, float]] = {}

    def look(self, link: Link) -> None:
        """Raise or clear the alarms about a peer."""
        domain = link.peer.domain
        is_live = link.state == LIVE
        now = self._clock()
        is_well = is_live or link.state == IDLE
        if is_well:
            self._away_since[domain] = now
        away = now - self._away_since.setdefault(domain, now)
        waits, oldest = len(link.exchange.queue), link.exchange.queue.oldest_seconds
        self._look_at_ours(link, now)
        is_failing = link.failures_in_a_row >= FAILING_AFTER
        if is_failing and self._is_new(FAILING_ALARM, domain):
            text = f"The stub of {domain} has failed {link.failures_in_a_row} times in a row: "
            self._raise_alarm(FAILING_ALARM, domain, text + link.last_error)
        what = "1 message waits" if waits == 1 else f"{waits} messages wait"
        text = ""
        if away >= STUCK_SECONDS:
            text = f"{domain} has been away for a minute ({link.state}), {what}: {link.last_error}"
        elif oldest >= WAITING_SECONDS:
            why = "does not read what it is sent" if is_live else f"is away ({link.state})"
            text = f"{domain} {why}: {what}."
        if text and self._is_new(STUCK_ALARM, domain):
            self._raise_alarm(STUCK_ALARM, domain, text)
        elif not text and is_well and not is_failing and domain not in self._well:
            self._clear(domain)

    def has_no_room(self, domain: str, why: str) -> bool:
        """Note that no worker serves a peer; return whether that lasts, and an alarm was raised."""
        now = self._clock()
        away = now - self._away_since.setdefault(domain, now)
        if away < STUCK_SECONDS or not self._is_new(STUCK_ALARM, domain):
            return False
        self._raise_alarm(STUCK_ALARM, domain, f"The node of {domain} is not served. {why}")
        return True

    def served_elsewhere(self, domain: str) -> None:
        """Note that another worker serves a peer, and raises its alarms."""
        self._raised.pop(domain, None)
        self._away_since.pop(domain, None)

    def _look_at_ours(self, link: Link, now: float) -> None:
        """Raise alarms about messages of a peer as this domain; only a person clears them."""
        domain, exchange = link.peer.domain, link.exchange
        if self._is_more(LOOP_ALARM, domain, exchange.returned, now):
            text = f"{domain} sends back what this node has sent there."
            self._raise_alarm(LOOP_ALARM, domain, text)
        if self._is_more(SPOOF_ALARM, domain, exchange.spoofed, now):
            text = f"{domain} speaks as somebody of this domain, or has: {link.last_error}"
            self._raise_alarm(SPOOF_ALARM, domain, text)

    def _is_more(self, kind: str, domain: str, count: int, now: float) -> bool:
        """Whether there is something new to report, and the last report is not recent."""
        told, at = self._counted.get((domain, kind), (0, now - AGAIN_SECONDS))
        if count <= told or now - at < AGAIN_SECONDS:
            return False
        self._counted[domain, kind] = (count, now)
        return True

    def forget(self, domain: str) -> None:
        """Forget a peer that is no longer served here."""
        self._clear(domain)
        self._well.discard(domain)
        self._away_since.pop(domain, None)
        for kind in (LOOP_ALARM, SPOOF_ALARM):
            self._counted.pop((domain, kind), None)

    def _is_new(self, kind: str, domain: str) -> bool:
        """Whether this alarm is not raised yet; it is noted as raised."""
        self._well.discard(domain)
        raised = self._raised.setdefault(domain, set())
        if kind in raised:
            return False
        raised.add(kind)
        return True

    def _clear(self, domain: str) -> None:
        """Clear all alarms, including those of the worker that served it before."""
        self._well.add(domain)
        self._raised.pop(domain, None)
        for kind in (FAILING_ALARM, STUCK_ALARM):
            self._clear_alarm(kind, domain)


class _Counted(NamedTuple):
    at: float
    sent: int
    received: int
    cpu: float
    carrier: tuple[Any, ...]


class LinkFigures:
    """One instance per worker.

    Args:
        links: the links to the peers of this worker, by the key of their rows.
        blocking: runs what uses the database.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        links: Mapping[int, Link],
        blocking: Callable[[Callable[[], None]], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._links = links
        self._blocking = blocking
        self._clock = clock
        self._before: dict[int, _Counted] = {}

    async def follow(self) -> None:
        """Store what is due."""
        now = self._clock()
        figures: dict[int, dict[str, Any]] = {}
        for pk, link in self._links.items():
            before, counted = self._before.get(pk), _counted(link, now)
            if before is None:
                self._before[pk] = counted
                continue
            is_other = counted.carrier != before.carrier
            if now - before.at >= (CARRIER_SECONDS if is_other else FIGURES_SECONDS):
                self._before[pk] = counted
                figures[pk] = _link_figures(link, before, counted)
        for pk in self._before.keys() - self._links.keys():
            del self._before[pk]
        if figures:
            await self._blocking(partial(store.note_figures, figures))


def _counted(link: Link, now: float) -> _Counted:
    counters, sandbox = link.exchange.counters, link.sandbox
    cpu = sandbox.cpu_seconds if sandbox is not None else 0.0
    carrier = link.carrier()
    of_link = carrier.get("link", {})
    told = carrier["way"], of_link.get("open"), of_link.get("key")
    return _Counted(now, counters.sent, counters.received, cpu, told)


def _link_figures(link: Link, before: _Counted, now: _Counted) -> dict[str, Any]:
    seconds = now.at - before.at
    queue, counters, sandbox = link.exchange.queue, link.exchange.counters, link.sandbox
    is_running = sandbox is not None and sandbox.is_running
    return {
        "sent_per_second": round((now.sent - before.sent) / seconds, 1),
        "received_per_second": round((now.received - before.received) / seconds, 1),
        "refused": counters.refused,
        "out": _shown_way(link.exchange.out),
        "in": _shown_way(link.exchange.into),
        "waiting": len(queue),
        "oldest_seconds": round(queue.oldest_seconds, 1),
        "round_trip_ms": round(counters.round_trip * 1000, 1),
        "restarts": counters.restarts,
        **link.carrier(),
        "sandbox_bytes": sandbox.memory_bytes if sandbox is not None and is_running else 0,
        # a restarted sandbox counts from zero
        "sandbox_cpu_percent": round(max(0.0, now.cpu - before.cpu) / seconds * 100, 1),
    }


def _shown_way(way: Way) -> dict[str, Any]:
    """The times of the last success and the last failure, as far as there was one."""
    told: dict[str, Any] = {}
    if way.passed_at:
        told["passed_at"] = round(way.passed_at, 1)
    if way.failed_at:
        told |= {"failed_at": round(way.failed_at, 1), "error": shown(way.error)}
    return told


# --- what waits -----------------------------------------------------------------------------------
RETRY = "peers.retry"
"""The control message that some of a queue get their whole time again, and the peer is tried."""
DISCARD = "peers.discard"
"""The control message that some of a queue, or all, wait no longer."""
_PORTION = 500
SHOWN_AFTER = 1.0
MOST = 500
_LARGEST = 8_000
"""Bytes of a message that is shown whole; of a larger one its head alone."""


class WaitingMessages:
    """One instance per worker.

    Args:
        links: to the peers of this worker, by the key of their rows.
        shown: a body as people may see it.
        blocking: runs what uses the database.
    """

    def __init__(
        self,
        links: Mapping[int, Link],
        shown: Callable[[Any], Any],
        blocking: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._links = links
        self._shown = shown
        self._blocking = blocking
        self._rows: dict[int, dict[int, float]] = {}  # peer -> number -> until

    def handlers(self) -> dict[str, Handler]:
        """Of the control messages."""
        return {RETRY: self._retry, DISCARD: self._discard}

    async def follow(self) -> None:
        """Have the rows be what waits now."""
        for pk, link in list(self._links.items()):
            queue = link.exchange.queue
            waits = queue.longest(SHOWN_AFTER, MOST)
            sent = link.exchange.awaited(SHOWN_AFTER, MOST)
            now = {n: one.until for n, one in waits.items()} | dict.fromkeys(sent, 0.0)
            before = self._rows.get(pk)
            known = before or {}
            new = [n for n, until in now.items() if known.get(n) != until]
            gone = [n for n in known if n not in now or known[n] != now[n]]
            if before is None or new or gone:
                rows = [
                    self._sent(pk, queue, n, *sent[n])
                    if n in sent
                    else self._row(pk, queue, n, waits[n])
                    for n in new
                ]
                await self._blocking(partial(show, pk, queue.id, rows, gone))
                self._rows[pk] = now

    async def forget(self, pk: int) -> None:
        """A peer is served here no more."""
        if self._rows.pop(pk, None) is not None:
            await self._blocking(partial(forget, pk))

    def _sent(
        self, pk: int, queue: PeerQueue, number: int, one: Waiting, ago: float
    ) -> PeerMessage:
        """The row of a request that has left some seconds ago."""
        row = self._row(pk, queue, number, one)
        row.is_sent, row.since = True, timezone.now() - timedelta(seconds=ago)
        row.until = row.since + timedelta(seconds=ASKED_SECONDS)
        return row

    def _row(self, pk: int, queue: PeerQueue, number: int, one: Waiting) -> PeerMessage:
        message = one.message
        until = timezone.now() + timedelta(seconds=queue.left(one))
        head = {"type": message.type, "from": cut(message.sender), "to": cut(message.recipients[0])}
        return PeerMessage(
            peer_id=pk, queue=queue.id, number=number, kind=one.class_.value,
            message_id=shown_id(message), type=message.type[:32],
            sender=head["from"][:ADDRESS_LENGTH], to=head["to"][:ADDRESS_LENGTH],
            size=len(message.frame),
            since=until - timedelta(seconds=one.until - one.since), until=until,
            text=msgspec.json.encode({**head, "body": self._body(message)}).decode(),
        )  # fmt: skip

    def _body(self, message: Message) -> Any:
        if len(message.frame) > _LARGEST:
            return f"{len(message.frame):,} bytes"
        try:
            return self._shown(message.fields())
        except NodeError as error:
            return error.description

    def _retry(self, payload: dict[str, Any]) -> None:
        """Give messages their whole time again, and try the peer at once."""
        for link in self._named(payload):
            link.exchange.queue.renew(payload["numbers"])
            link.hurry()

    def _discard(self, payload: dict[str, Any]) -> None:
        for link in self._named(payload):
            link.exchange.discard(payload["numbers"])

    def _named(self, payload: dict[str, Any]) -> list[Link]:
        """The link an order is for, if this worker has it."""
        return [
            link
            for link in self._links.values()
            if link.peer.domain == payload["domain"]
            and payload["queue"] in ("", link.exchange.queue.id)
        ]


# --- the rows (block) -----------------------------------------------------------------------------


def show(peer: int, queue: str, new: Collection[PeerMessage], gone: Collection[int]) -> None:
    """What waits in a queue now: these as well, and those no more. Other queues of the peer end."""
    with transaction.atomic():
        PeerMessage.objects.filter(peer=peer).exclude(queue=queue).delete()
        numbers = list(gone)
        for start in range(0, len(numbers), _PORTION):
            some = numbers[start : start + _PORTION]
            PeerMessage.objects.filter(queue=queue, number__in=some).delete()
        PeerMessage.objects.bulk_create(new, batch_size=_PORTION, ignore_conflicts=True)


def forget(peer: int) -> None:
    """Nothing waits for a peer any more."""
    PeerMessage.objects.filter(peer=peer).delete()


def order(kind: str, rows: Iterable[PeerMessage]) -> None:
    """Have the worker retry or discard messages. Takes part in the caller's transaction.

    Args:
        kind: RETRY or DISCARD.
        rows: with their peers. What has left the queue meanwhile is not touched.
    """
    chosen: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        chosen.setdefault((row.peer.domain, row.queue), []).append(row.number)
    for (domain, queue), numbers in chosen.items():
        post(kind, domain=domain, queue=queue, numbers=numbers)
        if kind == DISCARD:
            PeerMessage.objects.filter(queue=queue, number__in=numbers).delete()


def discard_all(peer: Peer) -> None:
    """Have all that waits for a peer be discarded, what no row shows too."""
    with transaction.atomic():
        post(DISCARD, domain=peer.domain, queue="", numbers=None)
        forget(peer.pk)


def waiting() -> QuerySet[PeerMessage]:
    """What a worker has said that waits, and cannot be over yet."""
    return told().filter(is_sent=False)


def told() -> QuerySet[PeerMessage]:
    """That, and what has left, for which there is no response yet."""
    return PeerMessage.objects.filter(until__gt=timezone.now()).select_related("peer")
