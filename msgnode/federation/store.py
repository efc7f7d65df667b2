"""The rows of peers and their stubs. All functions block."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from msgnode import models
from msgnode.storage import claims
from msgnode.storage.alarms import PEER_PENDING, STUB_CHANGED, clear_alarm
from msgnode.storage.control import post

from . import look_times, signed_rows, stub_signature
from .descriptor import FoundStub

CHANGED = "peers.changed"
"""The control message for changed rows of peers."""
RESTART = "peers.restart"
"""The control message to restart the stub of a peer."""
_LATELY = timedelta(seconds=30)
Place = tuple[str, frozenset[str], str]
"""Where a stub is looked for, the allowed hosts, and the keys that must have signed it."""
NO_PLACE: Place = ("", frozenset(), "")
"""The place of a domain without a row."""
MAX_STUBS = 50
"""Most stubs of one domain that are kept; the oldest are deleted first."""
MAX_ROWS = 1_000
"""Most peers that wait for an operator; further ones are looked for again once there is room."""


@dataclass(frozen=True, slots=True)
class PeerRow:
    """The row of a peer, as a worker sees it.

    `hosts` are lower case; `look_at` is when its stub is to be looked for, in seconds since 1970.
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
        """Whether an operator wants messages to pass, and a stub was approved."""
        return self.decision == models.Peer.Decision.APPROVED and bool(self.approved_digest)

    @property
    def is_pending(self) -> bool:
        """Whether no operator has decided yet."""
        return self.decision == models.Peer.Decision.PENDING

    def is_served_as(self, now: PeerRow | None) -> bool:
        """Whether a served peer may continue unchanged after the row has changed to `now`."""
        if now is None:
            return False
        mine = (self.approved_digest, self.url, self.hosts)
        return mine == (now.approved_digest, now.url, now.hosts)

    def has_place_of(self, now: PeerRow | None) -> bool:
        """Whether at most the stub differs."""
        return now is not None and (self.url, self.hosts) == (now.url, now.hosts)

    @property
    def stub_url(self) -> str:
        """The runtime URL of its stub here, in its domain."""
        return f"runtime://{self.domain}/messaging-node-{self.stub_id}"


def read() -> list[PeerRow]:
    """All peers."""
    unsigned = signed_rows.unsigned()
    return [
        PeerRow(
            row.pk,
            row.domain,
            *_place_of(row)[:2],
            row.decision,
            row.approved_digest,
            row.discovery,
            look_times.next_look(row),
            row.stub_id.hex,
            row.runtime_id.hex,
            row.keys,
            row.pk in unsigned,
        )
        for row in models.Peer.objects.all()
    ]


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
    found = models.PeerStub.objects.filter(peer=pk, digest=digest)
    return found.values_list("source", "configuration").first()


def signer_of(peer: models.Peer, digest: str) -> str:
    """The id of the key that has signed a stub, "" if unknown."""
    found = models.PeerStub.objects.filter(peer=peer, digest=digest)
    return found.values_list("signed_by", flat=True).first() or ""


def note_found(domain: str, found: FoundStub, place: Place, is_open: bool) -> str:
    """Store a stub that a domain offers.

    Args:
        domain: the peer's domain, which has a row from now on.
        found: its stub.
        place: its place when the search began. If an operator has changed it meanwhile, such as the
            keys, nothing is stored: it is looked for again.
        is_open: whether stubs need no approval.

    Returns:
        "new" if an operator must decide, "changed" if the approved stub is another and that is
        new, or was asked for, else "".
    """
    with transaction.atomic():
        peer = models.Peer.objects.select_for_update().filter(domain=domain).first()
        if _place_of(peer) != place:
            return ""
        if peer is None:
            if models.Peer.objects.count() >= MAX_ROWS:
                return ""
            peer = models.Peer.objects.create(domain=domain)
        stub, is_new = models.PeerStub.objects.get_or_create(
            peer=peer,
            digest=found.digest,
            defaults={
                "source": found.source,
                "configuration": found.configuration,
                "version": found.version,
                "signed_by": found.signed_by,
            },
        )
        is_told = peer.looked_at is not None and peer.found_digest == found.digest
        told = (found.configuration, found.signed_by)
        if not is_new and (stub.configuration, stub.signed_by) != told:
            stub.configuration, stub.signed_by = told
            stub.save(update_fields=["configuration", "signed_by"])
        peer.found_digest, peer.discovery, peer.looked_at = found.digest, "", timezone.now()
        if is_open and peer.decision == peer.Decision.PENDING:
            peer.decision = peer.Decision.APPROVED
        if is_open and not (is_told and peer.approved_digest):
            peer.approved_digest, peer.approved_at = found.digest, timezone.now()
            peer.approved_by = "FEDERATION=open"
        peer.save()
        if is_new:
            _forget_oldest(peer)
        post(CHANGED)
    if is_open:
        return ""
    if peer.decision == peer.Decision.PENDING:
        return "new"
    return "changed" if peer.approved_digest not in ("", found.digest) and not is_told else ""


def _forget_oldest(peer: models.Peer) -> None:
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
        peer = models.Peer.objects.select_for_update().filter(domain=domain).first()
        if peer is None or _place_of(peer) != place:
            return
        if was_reached or peer.looked_at is None:
            peer.stubs.exclude(digest=peer.approved_digest).update(signed_by="")
        peer.discovery, peer.looked_at = why[:300], timezone.now()
        peer.save(update_fields=["discovery", "looked_at"])
        post(CHANGED)


def note_state(pk: int, state: str, error: str) -> None:
    """Store the state of a peer, as its worker reports it."""
    models.Peer.objects.filter(pk=pk).update(
        state=state, state_at=timezone.now(), last_error=error[:300]
    )


def note_figures(figures: dict[int, dict[str, Any]]) -> None:
    """Store the recent traffic of peers, by the keys of their rows."""
    now = timezone.now()
    with transaction.atomic():
        for pk, each in figures.items():
            models.Peer.objects.filter(pk=pk).update(figures=each, figures_at=now)


def figures_of(peer: models.Peer) -> dict[str, Any]:
    """The recent traffic of a peer; nothing if it is old."""
    if peer.figures_at is None or timezone.now() - peer.figures_at > _LATELY:
        return {}
    return dict(peer.figures or {})


def stubs_of(peer: models.Peer) -> list[dict[str, Any]]:
    """The stubs that a domain has offered, without their source; newest first."""
    found = peer.stubs.values("digest", "version", "signed_by", "found_at")[:MAX_STUBS]
    return [dict(each) for each in found]


def approve(peer: models.Peer, by: str, digest: str = "") -> str:
    """Approve a stub, so that it runs and messages pass; return the obstacle, if any.

    Args: peer: the peer. by: who approves it. digest: the digest of the stub, or its beginning: of
        the one that was found, or of one that the domain has offered before. Without it, the one
        that was found.
    """
    if not peer.found_digest:
        return f"{peer.domain}: no protostub was found yet: {peer.discovery or 'looking'}"
    chosen, looked = peer.found_digest, peer.discovery or "looking"
    if not chosen.startswith(digest.lower()):
        known = peer.stubs.filter(digest__startswith=digest.lower())
        several = list(known.values_list("digest", flat=True)[:2])
        if len(several) != 1:
            what = "several stubs" if several else "no stub"
            return f"{peer.domain} offers {chosen}, and has offered {what} {digest[:64]} before."
        chosen, looked = several[0], "with a key of now"
    if (peer.keys or settings.FEDERATION_SIGNED) and not _is_signed(peer, chosen):
        return f"{peer.domain}: the stub that was found is not signed: {looked}"
    peer.decision = peer.Decision.APPROVED
    peer.approved_digest, peer.approved_by = chosen, by[:150]
    peer.approved_at = timezone.now()
    decided = ["decision", "approved_digest", "approved_by", "approved_at"]
    peer.save(update_fields=decided)  # the rest may have changed since it was read
    for kind in (PEER_PENDING, STUB_CHANGED):
        clear_alarm(kind, peer.domain)
    post(CHANGED)
    return ""


def take_back(row: PeerRow, digest: str) -> None:
    """Revert to the stub approved before, because the last one cannot be loaded."""
    with transaction.atomic():
        peer = models.Peer.objects.select_for_update().filter(pk=row.pk).first()
        if peer is not None and peer.approved_digest == row.approved_digest:
            peer.approved_digest = digest
            peer.save(update_fields=["approved_digest"])
        post(CHANGED)


def decide(peer: models.Peer, decision: str) -> str:
    """Block, pause or resume a peer; return the obstacle, if any."""
    if decision == peer.Decision.APPROVED and not peer.approved_digest:
        return f"{peer.domain}: no protostub of it was approved yet: approve one."
    if decision == peer.Decision.APPROVED and signed_rows.is_unsigned(peer):
        return f"{peer.domain}: {signed_rows.UNSIGNED}: approve one that is."
    peer.decision = decision
    peer.save(update_fields=["decision"])
    post(CHANGED)
    return ""


def restart(peer: models.Peer) -> str:
    """Restart the stub of a peer at once; return the obstacle, if any."""
    if peer.decision != peer.Decision.APPROVED:
        return f"{peer.domain}: its stub does not run: {peer.get_decision_display()}."
    post(RESTART, domain=peer.domain)
    return ""


def look_again(peer: models.Peer) -> None:
    """Have its stub looked for again."""
    peer.looked_at = None
    peer.save(update_fields=["looked_at"])
    post(CHANGED)


def _is_signed(peer: models.Peer, digest: str) -> bool:
    """Whether a stub is signed with one of the current keys."""
    signer = signer_of(peer, digest)
    return peer.looked_at is not None and signer in stub_signature.ids_of(peer.keys)


def _place_of(peer: models.Peer | None) -> Place:
    if peer is None:
        return NO_PLACE
    return peer.url, frozenset(peer.hosts.lower().split()), peer.keys


def _claim(pk: int) -> str:
    return f"peer:{pk}"
