"""The rows of peers by their signatures: whose approved stub is not signed as it must be. Blocks.

Rules
- Where a peer has keys, or FEDERATION_SIGNED is set, the approved stub must have been signed with
  one of the keys of now, also if it was approved before there were keys: else it does not run.
- A signature is good for as long as the key that made it is among the peer's, by its thumbprint: a
  key that has only the same id is another one.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings
from django.db.models import F

from msgnode import models
from msgnode.storage.alarms import STUB_UNSIGNED, clear_alarm, raise_alarm

from . import stub_signature

UNSIGNED = "the stub that was approved is not signed with a key of this peer"


def unsigned() -> set[int]:
    """The peers whose approved stub is not signed, though it must be."""
    peers = models.Peer.objects.exclude(approved_digest="")
    if not settings.FEDERATION_SIGNED:
        peers = peers.exclude(keys="")
    keys = dict(peers.values_list("pk", "keys"))
    approved = models.PeerStub.objects.filter(peer__in=keys, digest=F("peer__approved_digest"))
    signers = dict(approved.values_list("peer", "signed_by"))
    ids = {pk: stub_signature.ids_of(text) for pk, text in keys.items()}
    return {pk for pk in keys if signers.get(pk) not in ids[pk]}


def is_unsigned(peer: models.Peer) -> bool:
    """Whether the approved stub of a peer is not signed, though it must be."""
    if not peer.approved_digest or not (peer.keys or settings.FEDERATION_SIGNED):
        return False
    found = peer.stubs.filter(digest=peer.approved_digest).values_list("signed_by", flat=True)
    return found.first() not in stub_signature.ids_of(peer.keys)


def keys_changed(peer: models.Peer, before: str) -> None:
    """A peer has other keys than before: forget what was signed with those it has no more."""
    if peer.keys != before:
        still = stub_signature.kept_ids(before, peer.keys)
        peer.stubs.exclude(signed_by="").exclude(signed_by__in=still).update(signed_by="")


def tell(domains: Iterable[str]) -> None:
    """Have an alarm stand for each of these peers, because its stub does not run, and no other."""
    wanted = set(domains)
    found = models.Alarm.objects.filter(kind=STUB_UNSIGNED, cleared_at=None)
    standing = set(found.values_list("subject", flat=True))
    for domain in wanted - standing:
        raise_alarm(STUB_UNSIGNED, domain, f"Nothing passes to {domain}: {UNSIGNED}.")
    for domain in standing - wanted:
        clear_alarm(STUB_UNSIGNED, domain)
