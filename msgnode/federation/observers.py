"""Observers of objects of other domains, and this node's subscriptions there on their behalf.

Rules
- The first subscription of an address of a peer is answered when the peer has answered: granted,
  with the peer's refusal, or 504. Further ones are answered at once.
- The worker that serves the peer subscribes there, once for the observers of all workers. When
  nobody has observed an address for `linger` seconds, it unsubscribes.
- What was subscribed here before the domain was a peer, or while it was paused, is subscribed there
  once the peer is served.
- When messages of the peer may have been lost, all observers, on every worker, are told of a gap.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any

from django.db.models import Exists, OuterRef
from django.utils import timezone

from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call, Writer, result_of, retrieve_error
from msgnode.core import addresses
from msgnode.core.addresses import is_event, parse
from msgnode.core.errors import GatewayTimeout, NodeError, Unavailable
from msgnode.models import Peer, PeerSubscription, Subscription
from msgnode.storage import control

from .held_subscriptions import Answered, HeldSubscriptions

log = logging.getLogger(__name__)

ASKED, ANSWERED, MISSED = "peers.asked", "peers.answered", "peers.missed"
"""Control messages: to the worker that serves a peer, and from it."""
ASK_SECONDS = 10.0
LINGER_SECONDS = 10.0
"""Time for an observer's page to be loaded again; one that is only detached is still subscribed."""
_SWEEP_AT_MOST = 500  # a look
_EARLIER_AFTER = (0.0, 10.0)
"""Delays, in seconds, of the searches for earlier subscriptions: until the later one another worker
may not know of the peer yet.
"""
_NOTE_AT_MOST = 500
MAX_ROWS = 20_000
"""Most addresses that are subscribed at one peer."""
_PART = 5_000
"""Subscriptions that are read together; other writes go in between."""
_OBSERVED = Subscription.objects.filter(address=OuterRef("address"))


class RefusedThere(NodeError):
    """A peer has refused a subscription."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code  # type: ignore[misc]  # the peer's


class Observers:
    """One instance per worker. Implements Observed, and the subscription manager's Abroad.

    Args:
        table: the routing table.
        writer: the worker's writer.
        missed: tells a session of a gap.
        is_alone: whether there are no other workers.
        linger: seconds for which a subscription at a peer outlives its last observer here.
    """

    def __init__(
        self,
        table: RoutingTable,
        writer: Writer,
        missed: Callable[[str], None],
        is_alone: bool,
        linger: float = LINGER_SECONDS,
    ) -> None:
        self.peers: dict[str, int] = {}  # domain -> row
        self._table = table
        self._writer = writer
        self._missed = missed
        self._is_alone = is_alone
        self._linger = linger
        self._served: dict[str, HeldSubscriptions] = {}
        self._waiting: dict[str, set[asyncio.Future[Answered]]] = {}
        self._idle: dict[str, dict[str, float]] = {}  # domain -> address -> since
        self._swept_at = 0.0
        self._earlier_at: dict[str, list[float]] = {}  # domain -> moments to look

    # --- for who subscribes -----------------------------------------------------------------------

    def abroad(self, named: Iterable[str]) -> list[str]:
        """Those of these addresses that must be subscribed at a peer."""
        peers = self._table.peers
        if not peers:
            return []
        return [a for a in named if addresses.is_event(a) and addresses.parse(a).home in peers]

    async def subscribe(self, wanted: Sequence[str]) -> None:
        """Subscribe these addresses at their peers.

        Raises:
            NodeError: a peer refuses, or does not answer in time.
        """
        by_domain: dict[str, list[str]] = {}
        for address in wanted:
            by_domain.setdefault(addresses.parse(address).home, []).append(address)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                for domain, named in by_domain.items():
                    await self._ask(domain, named)
        except TimeoutError:
            text = f"The node of {domain} has not granted the subscription in time: try again."
            raise GatewayTimeout(text) from None

    async def _ask(self, domain: str, named: list[str]) -> None:
        peer = self.peers.get(domain)
        if peer is None:
            raise Unavailable(f"Messages are not exchanged with {domain} any more.")
        answers = {address: self._wait(address) for address in named}
        try:

            def note() -> set[str] | NotNoted:
                missing = note_rows(peer, named)
                if missing and not isinstance(missing, NotNoted) and domain not in self._served:
                    control.post(ASKED, domain=domain, addresses=sorted(missing))
                return missing

            missing = await result_of(self._writer, note)
            if isinstance(missing, NotNoted):
                raise Unavailable(f"{domain} cannot be asked for more: {missing.value}.")
            self.asked({"domain": domain, "addresses": sorted(missing)})
            for address in missing:
                answer = await answers[address]
                if not answer.is_held:
                    text = f"{domain} does not grant the subscription: {answer.description}"
                    raise RefusedThere(answer.code, text)
        finally:
            for address, waiting in answers.items():
                self._forget(address, waiting)

    def _wait(self, address: str) -> asyncio.Future[Answered]:
        waiting: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, set()).add(waiting)
        return waiting

    def _forget(self, address: str, waiting: asyncio.Future[Answered]) -> None:
        others = self._waiting.get(address, set())
        others.discard(waiting)
        if not others:
            self._waiting.pop(address, None)

    # --- for who serves a peer --------------------------------------------------------------------

    async def serve(self, domain: str, held: HeldSubscriptions) -> None:
        """Serve a peer: subscribe what is wanted there."""
        self._served[domain] = held
        self._earlier_at[domain] = [time.monotonic() + after for after in _EARLIER_AFTER]
        rows = await result_of(self._writer, partial(rows_of, self.peers.get(domain, 0)))
        held.want((address for address, was_held in rows if was_held), were_held=True)
        held.want(address for address, was_held in rows if not was_held)

    def leave(self, domain: str) -> None:
        """Stop serving a peer."""
        self._served.pop(domain, None)
        self._idle.pop(domain, None)
        self._earlier_at.pop(domain, None)

    def answered(self, domain: str, answer: Answered) -> None:
        """Store the peer's answer, and tell the workers with waiting observers."""
        peer = self.peers.get(domain, 0)
        self.heard(answer._asdict())

        def note() -> None:
            change = grant_rows if answer.is_held else delete_refused_rows
            change(peer, answer.addresses)
            if not self._is_alone:
                control.post(ANSWERED, domain=domain, **answer._asdict())

        self._writer.submit(Call(note)).add_done_callback(retrieve_error)

    def missed(self, domain: str, named: list[str]) -> None:
        """Tell those who observe these addresses, on every worker, of a gap."""
        if self._is_alone:
            self.lost({"addresses": named})
            return
        post = Call(lambda: control.post(MISSED, addresses=named))
        self._writer.submit(post).add_done_callback(retrieve_error)

    async def sweep(self) -> None:
        """Subscribe what is newly observed at the peers served here; unsubscribe what is not."""
        now = time.monotonic()
        for domain, moments in list(self._earlier_at.items()):
            if moments and moments[0] <= now:
                await self._want_earlier(domain)
                del moments[0]
        if now - self._swept_at < self._linger / 2:
            return
        self._swept_at = now
        for domain, held in list(self._served.items()):
            peer = self.peers.get(domain, 0)
            found = await result_of(self._writer, partial(idle_rows, peer))
            before = self._idle.get(domain, {})
            since = self._idle[domain] = {each: before.get(each, now) for each in found}
            over = [each for each, at in since.items() if now - at >= self._linger]
            del over[_SWEEP_AT_MOST:]
            if over:
                end = partial(end_idle_rows, peer, over, self._linger)
                held.leave(await result_of(self._writer, end))

    async def _want_earlier(self, domain: str) -> None:
        """Subscribe at the peer what was subscribed here before it was served."""
        part = 0
        while True:
            look = partial(observed_rows, domain, part)
            found, part = await result_of(self._writer, look)
            for start in range(0, len(found), _NOTE_AT_MOST):
                await self._want_noted(domain, found[start : start + _NOTE_AT_MOST])
            if not part:
                return

    async def _want_noted(self, domain: str, named: list[str]) -> None:
        held, peer = self._served.get(domain), self.peers.get(domain)
        if held is None or peer is None:
            return
        missing = await result_of(self._writer, partial(note_rows, peer, named))
        if isinstance(missing, NotNoted):
            log.warning("%s is not asked for %d addresses: %s", domain, len(named), missing.value)
            self.missed(domain, named)
        else:  # their observers have missed everything until now
            held.want(sorted(missing), were_held=True)

    # --- what workers tell one another ------------------------------------------------------------

    def handlers(self) -> dict[str, control.Handler]:
        """The handlers of control messages."""
        return {ASKED: self.asked, ANSWERED: self.heard, MISSED: self.lost}

    def asked(self, payload: dict[str, Any]) -> None:
        """Subscribe addresses at a peer, if this worker serves it."""
        held = self._served.get(payload["domain"])
        if held is not None:
            held.want(payload["addresses"])

    def heard(self, payload: dict[str, Any]) -> None:
        """Take the answer of a peer to the worker that serves it."""
        answer = Answered(payload["addresses"], payload["code"], payload["description"])
        for address in answer.addresses:
            for waiting in self._waiting.get(address, ()):
                if not waiting.done():
                    waiting.set_result(answer)

    def lost(self, payload: dict[str, Any]) -> None:
        """Tell the observers here that messages at these addresses may have been lost."""
        peers = set(self._table.peers.values())
        told = {
            session.id
            for address in payload["addresses"]
            for session in self._table.subscribers(address)
            if session.is_here and session.runtime_url not in peers
        }
        for id_ in told:
            self._missed(id_)


# --- the rows: an address is there while the peer is asked for it, or has granted it (block) ------


class NotNoted(Enum):
    """Why addresses are not noted."""

    NO_PEER = "the peer is gone"
    FULL = "it has too many already"


def note_rows(peer: int, addresses: Sequence[str]) -> set[str] | NotNoted:
    """Somebody here observes these addresses of a peer: those that it has not granted yet."""
    if not Peer.objects.select_for_update(no_key=True).filter(pk=peer).values_list("pk"):
        return NotNoted.NO_PEER
    rows = PeerSubscription.objects.filter(peer=peer, address__in=addresses)
    rows.update(wanted_at=timezone.now())  # so that nobody ends them now, who saw them idle
    known = dict(rows.values_list("address", "is_held"))
    new = [address for address in addresses if address not in known]
    if new and PeerSubscription.objects.filter(peer=peer).count() + len(new) > MAX_ROWS:
        return NotNoted.FULL
    PeerSubscription.objects.bulk_create(
        [PeerSubscription(peer_id=peer, address=address) for address in new]
    )
    return {address for address in addresses if not known.get(address)}


def observed_rows(domain: str, after: int) -> tuple[list[str], int]:
    """What sessions here observe of a domain, by a part of their subscriptions.

    Args:
        domain: whose addresses.
        after: where the part begins: 0, or what was returned for the part before.

    Returns:
        The addresses, and where to go on, 0 after the last part.
    """
    rows = Subscription.objects.filter(pk__gt=after).order_by("pk").values_list("pk", "address")
    part = list(rows[:_PART])
    named = [address for _, address in part if domain in address.lower() and is_event(address)]
    found = [address for address in named if parse(address).home == domain]
    return found, part[-1][0] if len(part) == _PART else 0


def rows_of(peer: int) -> list[tuple[str, bool]]:
    """Each address, and whether the peer has granted it."""
    return list(PeerSubscription.objects.filter(peer=peer).values_list("address", "is_held"))


def grant_rows(peer: int, addresses: Collection[str]) -> None:
    """The peer has granted these."""
    PeerSubscription.objects.filter(peer=peer, address__in=addresses).update(is_held=True)


def delete_refused_rows(peer: int, addresses: Collection[str]) -> None:
    """The peer has refused these."""
    PeerSubscription.objects.filter(peer=peer, address__in=addresses).delete()


def idle_rows(peer: int) -> set[str]:
    """Those that nobody here observes."""
    rows = PeerSubscription.objects.filter(~Exists(_OBSERVED), peer=peer)
    return set(rows.values_list("address", flat=True))


def end_idle_rows(peer: int, addresses: Collection[str], seconds: float) -> list[str]:
    """End those of these that nobody observes now, nor has asked for in so many seconds."""
    before = timezone.now() - timedelta(seconds=seconds)
    ended: list[str] = []
    for address in addresses:
        rows = PeerSubscription.objects.filter(
            ~Exists(_OBSERVED), peer=peer, address=address, wanted_at__lt=before
        )
        if rows.delete()[0]:
            ended.append(address)
    return ended
