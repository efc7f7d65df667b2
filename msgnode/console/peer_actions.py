"""What operators do with peers: checked, done and audited here, and presented by three front ends.

The console's pages show the sentence, REST answers with it, `manage.py peers` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from msgnode.core.errors import Conflict
from msgnode.federation import crossing, monitoring, store, stub_signature
from msgnode.models import Peer, PeerMessage
from msgnode.storage.control import post
from msgnode.storage.deletion import delete_with_dependents

from .audit import note

SETTABLE = (
    "domain", "url", "hosts", "keys", "kind", "visitors", "messages_per_second", "vouches",
)  # fmt: skip
"""What an operator says of a peer; all else the node finds out, or follows from a decision."""
_AUDITED = {monitoring.RETRY: "peer.retry", monitoring.DISCARD: "peer.discard"}
MOST_RATE = 100_000
_NAMED = 20
"""Messages that an entry of the audit log names."""


def cleaned(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of fields as they are stored.

    Raises:
        ValidationError: with a sentence for each field that is wrong.
    """
    kept = dict(values)
    faults = {}
    for name, check in {"domain": _domain, "url": _url, "keys": _keys}.items():
        if name in kept:
            kept[name], why = check(kept[name].strip())
            if why:
                faults[name] = why
    if not 1 <= kept.get("messages_per_second", 1) <= MOST_RATE:
        faults["messages_per_second"] = f"It must be from 1 to {MOST_RATE}."
    if faults:
        raise ValidationError(faults)
    return kept


def _domain(text: str) -> tuple[str, str]:
    domain = text.lower()
    if fault := crossing.domain_fault(domain):
        return domain, f"{domain} {fault}."
    return domain, "It is this node's own domain." if domain == settings.DOMAIN else ""


def _url(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if url and (not is_good or parts.query or parts.fragment or parts.username is not None):
        return url, "It must be a URL such as https://node.example.org."
    return url, ""


def _keys(keys: str) -> tuple[str, str]:
    fault = stub_signature.keys_fault(keys)
    return keys, f"They {fault}." if fault else ""


@transaction.atomic
def save(peer: Peer, values: Mapping[str, Any]) -> Peer:
    """Add a peer, or set fields of one that is stored; its stub is looked for where it may be now.

    Args:
        peer: the peer, or one that is not stored yet.
        values: fields, cleaned; the rest of the row stays as the workers have written it.
    """
    row = Peer.objects.select_for_update().filter(pk=peer.pk).first() or peer
    keys = row.keys
    for name, value in values.items():
        setattr(row, name, value)
    row.looked_at = None
    row.save()
    store.keys_changed(row, keys)
    post(store.CHANGED)
    return row


def act(action: str, peer: Peer, actor: str, digest: str = "") -> str:
    """Do what an operator has decided about a peer, audited.

    Args:
        action: one of ACTIONS.
        peer: the peer.
        actor: who has decided it.
        digest: approve: of the stub, or its beginning; "" for the one that was found.

    Returns:
        What was done, as a sentence.

    Raises:
        Conflict: it cannot be done; the description says why.
    """
    with transaction.atomic():
        if why := ACTIONS[action](peer, actor, digest):
            raise Conflict(why)
    if action == "approve":
        stub = f"the stub {peer.approved_digest[:12]} may run" if peer.approved_digest else ""
        keys = "the keys of its node count" if peer.node_keys else ""
        done = ", and ".join(filter(None, (stub, keys)))
    else:
        done = _DONE.get(action) or peer.get_decision_display()
    return f"{peer.domain}: {done}."


_DONE = {
    "restart": "it is started anew",
    "look": "its stub is looked for",
    "discard": "all waiting messages are discarded",
    "remove": "it is removed",
}


def _restart(peer: Peer, actor: str, _digest: str) -> str:
    if not (why := store.restart(peer)):
        note(actor, "peer.restart", peer, {}, {})
    return why


def _discard(peer: Peer, actor: str, _digest: str) -> str:
    note(actor, _AUDITED[monitoring.DISCARD], peer, {}, {"messages": "all"})
    monitoring.discard_all(peer)
    return ""


def _look(peer: Peer, _actor: str, _digest: str) -> str:
    store.look_again(peer)
    return ""


def _remove(peer: Peer, _actor: str, _digest: str) -> str:
    delete_with_dependents(Peer.objects.filter(pk=peer.pk))
    post(store.CHANGED)
    return ""


ACTIONS: dict[str, Callable[[Peer, str, str], str]] = {
    "approve": store.approve,
    "block": lambda peer, *_: store.decide(peer, Peer.Decision.BLOCKED),
    "pause": lambda peer, *_: store.decide(peer, Peer.Decision.PAUSED),
    "resume": lambda peer, *_: store.decide(peer, Peer.Decision.APPROVED),
    "restart": _restart,
    "look": _look,
    "discard": _discard,
    "remove": _remove,
}
"""What can be done with a peer; each function returns the obstacle, if any."""


def order(kind: str, rows: Iterable[PeerMessage], actor: str) -> int:
    """Have the worker retry or discard messages, audited; return their number."""
    chosen = list(rows)
    with transaction.atomic():
        for peer in dict.fromkeys(row.peer for row in chosen):
            mine = [str(row) for row in chosen if row.peer_id == peer.pk]
            after = {"messages": len(mine), "first": mine[:_NAMED]}
            note(actor, _AUDITED[kind], peer, {}, after)
        monitoring.order(kind, chosen)
    return len(chosen)


def order_of(
    kind: str, peer: Peer, ids: Collection[int] | None, actor: str
) -> tuple[list[int], list[int]]:
    """Have messages that wait for a peer retried or discarded: those with these ids, or all.

    Returns:
        The ids of those that were, and of those that wait no more.
    """
    rows = monitoring.waiting().filter(peer=peer)
    chosen = list(rows if ids is None else rows.filter(pk__in=ids))
    order(kind, chosen, actor)
    found = {row.pk for row in chosen}
    return sorted(found), sorted(set(ids or ()) - found)


def decision_word(peer: Peer) -> str:
    """The decision, and whether another stub awaits one."""
    is_other = peer.found_digest and peer.approved_digest not in ("", peer.found_digest)
    word = peer.get_decision_display() + (", another stub waits" if is_other else "")
    word += ", keys of its node wait" if store.keys_wait(peer) else ""
    return word + (", its stub is not signed" if store.is_unsigned(peer) else "")
