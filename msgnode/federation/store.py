"""The rows of peers and their stubs. All functions block.

Rules
- The catalogue of a peer is looked at at once if a person wants it or has changed where it is; then
  every hour, and every five minutes while it has no usable stub. For a stub that waits for
  approval, and a peer that is paused or blocked, only if a person wants it.
- Where a peer has keys, or FEDERATION_SIGNED is set, the approved stub must have been signed with
  one of the keys of now, also if it was approved before there were keys: else it does not run. A
  signature is good for as long as the key that made it is among the peer's, by its thumbprint: a
  key that has only the same id is another one.
- Who serves a peer clears its alarms when that ends. But an operator may also remove, pause or
  block a peer that waits for approval, or that no worker serves: `clear_settled` clears those.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from msgnode.core.errors import BadGateway, Forbidden, GatewayTimeout, NodeError, Unavailable
from msgnode.models import Alarm, LegacyNetwork, Peer, PeerStub
from msgnode.models.federation import RATE
from msgnode.sandbox import approval, process
from msgnode.storage import claims
from msgnode.storage.alarms import (
    FAILING_ALARM,
    PEER_PENDING,
    STUB_CHANGED,
    STUB_UNSIGNED,
    STUCK_ALARM,
    clear_alarm,
    raise_alarm,
)
from msgnode.storage.control import post

from . import kinds, link_keys, stub_signature
from .descriptor import FoundStub
from .link_keys import FoundNode

CHANGED = "peers.changed"
"""The control message for changed rows of peers."""
RESTART = "peers.restart"
"""The control message to restart the stub of a peer."""
DIAL = "peers.dial"
"""The control message to dial the node of a peer at once: it has come to another worker."""
_LATELY = timedelta(seconds=30)
LOOKS_EVERY, LOOKS_AGAIN_EVERY = timedelta(hours=1), timedelta(minutes=5)
Place = tuple[str, frozenset[str], str]
"""Where a stub is looked for, the allowed hosts, and the keys that must have signed it."""
NO_PLACE: Place = ("", frozenset(), "")
"""The place of a domain without a row."""
MAX_STUBS = 50
"""Most stubs of one domain that are kept; the oldest are deleted first."""
MAX_ROWS = 1_000
"""Most peers that wait for an operator; further ones are looked for again once there is room."""
UNSIGNED = "the stub that was approved is not signed with a key of this peer"


@dataclass(frozen=True, slots=True)
class LegacyRow:
    """How a legacy network is reached, as a worker sees its row; `sealed` is its secret."""

    network: str
    host: str
    port: int
    component: str
    sealed: str
    wants_receipts: bool
    pool: int
    per_minute: int
    transport: str = "tcp"
    media: str = ""
    trusted: bool = False


_LEGACY = tuple(each.name for each in fields(LegacyRow))


@dataclass(frozen=True, slots=True)
class PeerRow:
    """The row of a peer, as a worker sees it.

    `hosts` are lower case; `look_at` is when its stub is to be looked for, in seconds since 1970.
    `legacy` is None for a node; a network of another protocol has no stub.
    """

    pk: int
    domain: str
    url: str
    hosts: frozenset[str]
    decision: str
    approved_digest: str
    discovery: str
    look_at: float
    stub_id: str
    runtime_id: str
    keys: str = ""
    is_unsigned: bool = False
    kind: str = kinds.UNKNOWN
    has_visitors: bool = False
    legacy: LegacyRow | None = None
    node_keys: str = ""
    messages_per_second: int = RATE
    vouches: bool = False

    @property
    def place(self) -> Place:
        """The place of its stub."""
        return self.url, self.hosts, self.keys

    @property
    def needs_look(self) -> bool:
        """Whether its stub is to be looked for now."""
        return time.time() >= self.look_at

    @property
    def is_served(self) -> bool:
        """Whether messages may pass."""
        return self.is_approved and not self.is_unsigned

    @property
    def is_approved(self) -> bool:
        """Whether an operator wants messages to pass, and there is a way: an approved stub."""
        has_way = bool(self.approved_digest or self.node_keys) or self.legacy is not None
        return self.decision == Peer.Decision.APPROVED and has_way

    @property
    def is_pending(self) -> bool:
        """Whether no operator has decided yet."""
        return self.decision == Peer.Decision.PENDING

    def is_served_as(self, now: PeerRow | None) -> bool:
        """Whether a served peer may continue unchanged after the row has changed to `now`."""
        if now is None:
            return False
        return self.has_place_of(now) and self.approved_digest == now.approved_digest

    def has_place_of(self, now: PeerRow | None) -> bool:
        """Whether at most the stub differs."""
        return now is not None and self._kept == now._kept

    @property
    def _kept(self) -> tuple[object, ...]:
        return (
            self.url, self.hosts, self.kind, self.legacy, self.messages_per_second, self.vouches
        )  # fmt: skip

    @property
    def stub_url(self) -> str:
        """The runtime URL of its stub here, in its domain."""
        return f"runtime://{self.domain}/messaging-node-{self.stub_id}"


def read() -> list[PeerRow]:
    """All peers."""
    unsigned = unsigned_peers()
    peers = list(Peer.objects.all())
    found = kinds_of(peers)
    legacy = LegacyNetwork.objects.values_list("pk", *_LEGACY)
    networks = {pk: LegacyRow(*row) for pk, *row in legacy}
    return [
        PeerRow(
            row.pk,
            row.domain,
            *_place_of(row)[:2],
            row.decision,
            row.approved_digest,
            row.discovery,
            math.inf if row.pk in networks else next_look(row),
            row.stub_id.hex,
            row.runtime_id.hex,
            row.keys,
            row.pk in unsigned,
            found[row.pk],
            has_visitors(row, found[row.pk]),
            networks.get(row.pk),
            row.node_keys,
            row.messages_per_second,
            row.vouches,
        )
        for row in peers
    ]


def kinds_of(peers: Iterable[Peer]) -> dict[int, str]:
    """The kind of each peer: as an operator has set it, else as its approved stub seems."""
    found = {peer.pk: peer.kind for peer in peers}
    unset = [pk for pk, kind in found.items() if not kind]
    used = Q(digest=F("peer__approved_digest"))
    offered = Q(peer__approved_digest="", digest=F("peer__found_digest"))
    stubs = PeerStub.objects.filter(used | offered, peer__in=unset)
    found |= dict(stubs.values_list("peer", "kind"))
    return {pk: kind or kinds.UNKNOWN for pk, kind in found.items()}


def has_visitors(peer: Peer, kind: str) -> bool:
    """Whether runtimes of its domain may come here themselves, beside its node."""
    if peer.visitors:
        return peer.visitors == Peer.Visitors.ADMITTED
    return kinds.kind_of(kind).has_visitors


def take_claims(epoch: str, rows: list[PeerRow], at_most: int) -> set[int]:
    """Take claims; return the peers that this epoch serves, and those that it looks for."""
    taken: set[int] = set()
    served = 0
    for row in rows:
        if row.is_served and served >= at_most:
            claims.release(_claim(row.pk), epoch)
        elif claims.take(_claim(row.pk), epoch):
            taken.add(row.pk)
            served += row.is_served
    return taken


def unserved(rows: list[PeerRow]) -> set[int]:
    """The peers that no worker serves."""
    held = claims.held(_claim(row.pk) for row in rows)
    return {row.pk for row in rows if _claim(row.pk) not in held}


def release_claim(epoch: str, pk: int) -> None:
    """Release the claim of a peer."""
    claims.release(_claim(pk), epoch)


def source_of(pk: int, digest: str) -> tuple[str, dict[str, Any]] | None:
    """The source and configuration of a stub, if known."""
    found = PeerStub.objects.filter(peer=pk, digest=digest)
    return found.values_list("source", "configuration").first()


def signer_of(peer: Peer, digest: str) -> str:
    """The id of the key that has signed a stub, "" if unknown."""
    found = PeerStub.objects.filter(peer=peer, digest=digest)
    return found.values_list("signed_by", flat=True).first() or ""


def note_found(
    domain: str, found: FoundStub, place: Place, is_open: bool, node: FoundNode | None = None
) -> str:
    """Store a stub that a domain offers.

    Args:
        domain: the peer's domain, which has a row from now on.
        found: its stub.
        node: the keys of its node, if it publishes any.
        place: its place when the search began. If an operator has changed it meanwhile, such as the
            keys, nothing is stored: it is looked for again.
        is_open: whether stubs need no approval.

    Returns:
        "new" if an operator must decide, "changed" if the approved stub is another and that is
        new, or was asked for, "keys" if the keys of its node are new and do not count, else "".
    """
    with transaction.atomic():
        peer = Peer.objects.select_for_update().filter(domain=domain).first()
        if _place_of(peer) != place or (peer is not None and peer.is_by_hand):
            return ""
        if peer is None:
            if Peer.objects.count() >= MAX_ROWS:
                return ""
            peer = Peer.objects.create(domain=domain)
        stub, is_new = PeerStub.objects.get_or_create(
            peer=peer,
            digest=found.digest,
            defaults={
                "source": found.source,
                "configuration": found.configuration,
                "version": found.version,
                "signed_by": found.signed_by,
                "kind": found.kind,
            },
        )
        is_told = peer.looked_at is not None and peer.found_digest == found.digest
        told = (found.configuration, found.signed_by, found.kind)
        if not is_new and (stub.configuration, stub.signed_by, stub.kind) != told:
            stub.configuration, stub.signed_by, stub.kind = told
            stub.save(update_fields=["configuration", "signed_by", "kind"])
        peer.found_digest, peer.discovery, peer.looked_at = found.digest, "", timezone.now()
        if is_open and peer.decision == peer.Decision.PENDING:
            peer.decision = peer.Decision.APPROVED
        if is_open and not (is_told and peer.approved_digest):
            peer.approved_digest, peer.approved_at = found.digest, timezone.now()
            peer.approved_by = "FEDERATION=open"
        has_keys = _take_keys(peer, node, is_open)
        peer.save()
        if is_new:
            _forget_oldest(peer)
        post(CHANGED)
    if is_open:
        return ""
    if peer.decision == peer.Decision.PENDING:
        return "new"
    is_other = peer.approved_digest not in ("", found.digest) and not is_told
    return "changed" if is_other else "keys" if has_keys else ""


def _take_keys(peer: Peer, node: FoundNode | None, is_trusted: bool) -> bool:
    """Set the keys of a peer's node; whether they are new and do not all count."""
    if peer.kind not in ("", kinds.OURS):
        peer.node_found = peer.node_keys = ""
    elif node is not None:
        return _take_known_keys(peer, node, is_trusted)
    return False


def _take_known_keys(peer: Peer, node: FoundNode, is_trusted: bool) -> bool:
    before, known = peer.node_found, _read_keys(peer.node_keys)
    now = link_keys.counting(known, node, time.time(), is_trusted)
    peer.node_found, peer.node_keys = json.dumps(dict(node.keys)), json.dumps(now) if now else ""
    return peer.node_found != before and now.keys() != node.keys.keys()


def _read_keys(text: str) -> link_keys.Keys:
    return json.loads(text) if text else {}


def keys_wait(peer: Peer) -> bool:
    """Whether keys of an approved peer's node were found that do not count."""
    if peer.decision != peer.Decision.APPROVED or not peer.node_found:
        return False
    return bool(json.loads(peer.node_found).keys() - _read_keys(peer.node_keys).keys())


def note_node(domain: str, node: FoundNode, place: Place, is_open: bool) -> str:
    """Store the keys of a peer's node, whose domain offers no stub; returns as `note_found`."""
    with transaction.atomic():
        peer = Peer.objects.select_for_update().filter(domain=domain).first()
        if peer is None or _place_of(peer) != place:
            return ""
        has_keys = _take_keys(peer, node, is_open)
        peer.save(update_fields=["node_found", "node_keys"])
        post(CHANGED)
    return "keys" if has_keys and peer.decision == peer.Decision.APPROVED else ""


def give(domain: str, found: FoundStub) -> str:
    """Give a peer that has no catalogue its stub by hand; return the obstacle, if any.

    It waits for approval like one that was found. Until the stub is looked for again, no catalogue
    is asked.
    """
    with transaction.atomic():
        peer = Peer.objects.select_for_update().get(domain=domain)
        if peer.keys or settings.FEDERATION_SIGNED:
            return f"{domain}: its stub must be signed, and only a catalogue gives a signature."
        Peer.objects.filter(pk=peer.pk).update(is_by_hand=False)
        note_found(domain, found, _place_of(peer), is_open=False)
        Peer.objects.filter(pk=peer.pk).update(is_by_hand=True)
    return ""


def _forget_oldest(peer: Peer) -> None:
    """Delete the stubs beyond MAX_STUBS that are not in use: a domain may offer ever others."""
    others = peer.stubs.exclude(digest__in=(peer.approved_digest, peer.found_digest))
    beyond = list(others.values_list("pk", flat=True)[MAX_STUBS - 2 :])
    peer.stubs.filter(pk__in=beyond).delete()


def note_not_found(domain: str, why: str, place: Place, was_reached: bool = True) -> None:
    """Store that a domain with a row offers no usable stub; earlier ones lose their signature.

    The one that was approved stays signed, if it is with a key of now; so do all if the domain was
    only out of reach when it was looked at again.

    Args:
        domain: the peer's domain.
        why: the reason, for display.
        place: its place when the search began; see `note_found`.
        was_reached: whether the domain has answered.
    """
    with transaction.atomic():
        peer = Peer.objects.select_for_update().filter(domain=domain).first()
        if peer is None or peer.is_by_hand or _place_of(peer) != place:
            return
        if was_reached or peer.looked_at is None:
            peer.stubs.exclude(digest=peer.approved_digest).update(signed_by="")
        peer.discovery, peer.looked_at = why[:300], timezone.now()
        peer.save(update_fields=["discovery", "looked_at"])
        post(CHANGED)


def note_state(pk: int, state: str, error: str) -> None:
    """Store the state of a peer, as its worker reports it, and since when if it is another."""
    rows = Peer.objects.filter(pk=pk)
    rows.exclude(state=state).update(state=state, state_at=timezone.now())
    rows.update(last_error=error[:300])


def note_figures(figures: dict[int, dict[str, Any]]) -> None:
    """Store the recent traffic of peers, by the keys of their rows."""
    now = timezone.now()
    with transaction.atomic():
        for pk, each in figures.items():
            Peer.objects.filter(pk=pk).update(figures=each, figures_at=now)


def figures_of(peer: Peer) -> dict[str, Any]:
    """The recent traffic of a peer; nothing if it is old."""
    if peer.figures_at is None or timezone.now() - peer.figures_at > _LATELY:
        return {}
    return dict(peer.figures or {})


def stubs_of(peer: Peer) -> list[dict[str, Any]]:
    """The stubs that a domain has offered, without their source; newest first."""
    found = peer.stubs.values("digest", "version", "signed_by", "found_at")[:MAX_STUBS]
    return [dict(each) for each in found]


def approve(peer: Peer, by: str, digest: str = "") -> str:
    """Approve a stub, so that it runs and messages pass; return the obstacle, if any.

    Args: peer: the peer. by: who approves it. digest: the digest of the stub, or its beginning: of
        the one that was found, or of one that the domain has offered before. Without it, the one
        that was found.
    """
    if peer.node_found and not digest:
        node = FoundNode(json.loads(peer.node_found), frozenset())
        _take_keys(peer, node, is_trusted=True)
        peer.save(update_fields=["node_keys"])
    if peer.node_keys and not (peer.found_digest or digest):
        approval.approve(peer, "", by)
        clear_alarm(PEER_PENDING, peer.domain)
        post(CHANGED)
        return ""
    if not peer.found_digest:
        return f"{peer.domain}: no protostub was found yet: {peer.discovery or 'looking'}"
    chosen, which = approval.chosen(peer, peer.stubs.all(), digest)
    if not chosen:
        what = which.replace("script", "stub")
        offers = f"{peer.domain} offers {peer.found_digest}"
        return f"{offers}, and has offered {what} {digest[:64]} before."
    if (peer.keys or settings.FEDERATION_SIGNED) and not _is_signed(peer, chosen):
        is_found = chosen == peer.found_digest
        looked = (peer.discovery or "looking") if is_found else "with a key of now"
        return f"{peer.domain}: the stub that was found is not signed: {looked}"
    approval.approve(peer, chosen, by)
    for kind in (PEER_PENDING, STUB_CHANGED):
        clear_alarm(kind, peer.domain)
    post(CHANGED)
    return ""


def take_back(row: PeerRow, digest: str) -> None:
    """Revert to the stub approved before, because the last one cannot be loaded."""
    with transaction.atomic():
        peer = Peer.objects.select_for_update().filter(pk=row.pk).first()
        if peer is not None and peer.approved_digest == row.approved_digest:
            peer.approved_digest = digest
            peer.save(update_fields=["approved_digest"])
        post(CHANGED)


def decide(peer: Peer, decision: str) -> str:
    """Block, pause or resume a peer; return the obstacle, if any."""
    is_node = not LegacyNetwork.objects.filter(pk=peer.pk).exists()
    has_way = peer.approved_digest or peer.node_keys
    if decision == peer.Decision.APPROVED and is_node and not has_way:
        return f"{peer.domain}: no protostub of it was approved yet: approve one."
    if decision == peer.Decision.APPROVED and is_unsigned(peer):
        return f"{peer.domain}: {UNSIGNED}: approve one that is."
    peer.decision = decision
    peer.save(update_fields=["decision"])
    post(CHANGED)
    return ""


def restart(peer: Peer) -> str:
    """Restart the stub of a peer at once; return the obstacle, if any."""
    if peer.decision != peer.Decision.APPROVED:
        return f"{peer.domain}: its stub does not run: {peer.get_decision_display()}."
    post(RESTART, domain=peer.domain)
    return ""


def dial(domain: str) -> None:
    """Have the node of a peer dialled by the worker that serves it."""
    post(DIAL, domain=domain)


def look_again(peer: Peer) -> None:
    """Have its stub looked for again."""
    peer.looked_at, peer.is_by_hand = None, False
    peer.save(update_fields=["looked_at", "is_by_hand"])
    post(CHANGED)


def _is_signed(peer: Peer, digest: str) -> bool:
    """Whether a stub is signed with one of the current keys."""
    signer = signer_of(peer, digest)
    return peer.looked_at is not None and signer in stub_signature.ids_of(peer.keys)


def _place_of(peer: Peer | None) -> Place:
    if peer is None:
        return NO_PLACE
    return peer.url, frozenset(peer.hosts.lower().split()), peer.keys


def _claim(pk: int) -> str:
    return f"peer:{pk}"


# --- what follows from a row ----------------------------------------------------------------------


def refusal_of(row: PeerRow) -> NodeError:
    """Why nothing is sent to a peer with a row."""
    domain, decision = row.domain, Peer.Decision
    if row.decision == decision.BLOCKED:
        return Forbidden(f"This node exchanges no messages with {domain}.")
    if row.decision == decision.PAUSED:
        return Unavailable(f"The exchange of messages with {domain} is paused.")
    if row.is_approved and row.is_unsigned:
        return BadGateway(f"The stub of {domain} cannot be used: it is not signed as it must be.")
    if row.is_served:
        if row.legacy is None and not (row.node_keys or process.find_deno()):
            return BadGateway(f"The stub of {domain} cannot be run: {process.NO_DENO}")
        return Unavailable(f"{domain} is not connected yet: try again.")
    if row.discovery:
        return GatewayTimeout(f"The node of {domain} cannot be used: {row.discovery}")
    return Unavailable(f"{domain} waits for the operator of this node.")


def next_look(peer: Peer) -> float:
    """When the stub of a peer is to be looked for, in seconds since 1970."""
    if peer.is_by_hand:
        return math.inf
    if peer.looked_at is None:
        return 0.0
    is_approved = peer.decision == peer.Decision.APPROVED
    has_none = peer.decision == peer.Decision.PENDING and bool(peer.discovery)
    if not (is_approved or has_none):
        return math.inf
    return (peer.looked_at + (LOOKS_AGAIN_EVERY if peer.discovery else LOOKS_EVERY)).timestamp()


# --- alarms ---------------------------------------------------------------------------------------

_LEFT = {
    PEER_PENDING: {Peer.Decision.PENDING},
    STUB_CHANGED: set(Peer.Decision),
    FAILING_ALARM: {Peer.Decision.APPROVED},
    STUCK_ALARM: {Peer.Decision.APPROVED},
}
"""The decisions about a peer with which an alarm may stand."""


def clear_settled() -> None:
    """Clear the alarms that stand although their peer is gone, or was decided about."""
    found = Alarm.objects.filter(kind__in=_LEFT, cleared_at=None)
    standing = list(found.values_list("kind", "subject"))
    named = {subject for _, subject in standing}
    decisions = dict(Peer.objects.filter(domain__in=named).values_list("domain", "decision"))
    for kind, domain in standing:
        if decisions.get(domain) not in _LEFT[kind]:
            clear_alarm(kind, domain)


# --- signatures -----------------------------------------------------------------------------------


def unsigned_peers() -> set[int]:
    """The peers whose approved stub is not signed, though it must be."""
    peers = Peer.objects.exclude(approved_digest="")
    if not settings.FEDERATION_SIGNED:
        peers = peers.exclude(keys="")
    keys = dict(peers.values_list("pk", "keys"))
    approved = PeerStub.objects.filter(peer__in=keys, digest=F("peer__approved_digest"))
    signers = dict(approved.values_list("peer", "signed_by"))
    ids = {pk: stub_signature.ids_of(text) for pk, text in keys.items()}
    return {pk for pk in keys if signers.get(pk) not in ids[pk]}


def is_unsigned(peer: Peer) -> bool:
    """Whether the approved stub of a peer is not signed, though it must be."""
    if not peer.approved_digest or not (peer.keys or settings.FEDERATION_SIGNED):
        return False
    found = peer.stubs.filter(digest=peer.approved_digest).values_list("signed_by", flat=True)
    return found.first() not in stub_signature.ids_of(peer.keys)


def keys_changed(peer: Peer, before: str) -> None:
    """A peer has other keys than before: forget what was signed with those it has no more."""
    if peer.keys != before:
        still = stub_signature.kept_ids(before, peer.keys)
        peer.stubs.exclude(signed_by="").exclude(signed_by__in=still).update(signed_by="")


def tell_of_unsigned(domains: Iterable[str]) -> None:
    """Have an alarm stand for each of these peers, because its stub does not run, and no other."""
    wanted = set(domains)
    found = Alarm.objects.filter(kind=STUB_UNSIGNED, cleared_at=None)
    standing = set(found.values_list("subject", flat=True))
    for domain in wanted - standing:
        raise_alarm(STUB_UNSIGNED, domain, f"Nothing passes to {domain}: {UNSIGNED}.")
    for domain in standing - wanted:
        clear_alarm(STUB_UNSIGNED, domain)
