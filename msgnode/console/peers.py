"""Peers in the console: the nodes of other domains, their stubs, and what is decided about them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime, now

from msgnode.federation import kinds, store
from msgnode.models import Peer, PeerMessage
from msgnode.storage.control import post

from . import peer_actions
from .confirm import ask, is_confirmed, too_many
from .decided import DecidedAdmin, for_each
from .lists import cut, in_short, number_of
from .peer_messages import list_of


def _last(peer: Peer, way: str, shown: Callable[[str], str] = str) -> str:
    """The last success and the last failure in one direction, the newer first."""
    lately = store.figures_of(peer).get(way, {})
    told = []
    if "passed_at" in lately:
        told.append((lately["passed_at"], f"passed {_clock(lately['passed_at'])}"))
    if "failed_at" in lately:
        error = shown(str(lately["error"]).rstrip("."))
        told.append((lately["failed_at"], f"error {_clock(lately['failed_at'])}: {error}"))
    return "; ".join(text for _, text in sorted(told, reverse=True))


def _clock(at: float) -> str:
    """A moment as its day and time here."""
    return date_format(localtime(datetime.fromtimestamp(at, UTC)), "SHORT_DATETIME_FORMAT")


def _told(stub: dict[str, Any]) -> str:
    """A stub in a line."""
    version = f", version {stub['version']}" if stub["version"] else ""
    return f"{stub['digest'][:12]}{version}, found {_clock(stub['found_at'].timestamp())}"


class PeerForm(forms.ModelForm):
    """The form of a row, with validation."""

    class Meta:
        model = Peer
        fields = peer_actions.SETTABLE

    def clean(self) -> dict[str, Any]:
        return peer_actions.cleaned(super().clean() or self.cleaned_data)


@admin.register(Peer)
class PeerAdmin(DecidedAdmin):
    decisions = peer_actions
    form: type[forms.ModelForm] = PeerForm
    list_display: ClassVar[tuple[str, ...]] = (
        "domain",
        "what_was_decided",
        "state",
        "waits",
        "traffic",
        "last_out",
        "last_in",
        "sandbox",
        "error_in_short",
    )
    list_filter: ClassVar[tuple[str, ...]] = ("decision",)
    search_fields = ("domain",)
    search_help_text = "Domain (its beginning)"
    ordering = ("domain",)
    fields: ClassVar[tuple[str, ...]] = (
        "domain", "url", "hosts", "keys", "kind", "seems", "visitors",
        "messages_per_second", "vouches",
        "what_was_decided", "state", "state_at", "last_error",
        "waits", "traffic", "way_out", "way_in", "carrier", "sandbox",
        "found_digest", "signature", "looked_at", "discovery",
        "approved_digest", "approved_by", "approved_at", "offered",
        "found_configuration", "found_source",
    )  # fmt: skip
    acts_on: ClassVar[tuple[str, ...]] = (
        "url",
        "hosts",
        "keys",
        "kind",
        "visitors",
        "messages_per_second",
        "vouches",
        "decision",
        "found_digest",
        "approved_digest",
    )
    actions: ClassVar[tuple[str, ...]] = (
        "approve",
        "go_back",
        "pause",
        "resume",
        "block",
        "restart",
        "look_again",
        "discard",
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        editable = PeerForm.Meta.fields[obj is not None :]
        return tuple(name for name in self.fields if name not in editable)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Peer]:
        """Nodes alone; a class of another model inherits this for all of its own."""
        rows = super().get_queryset(request)
        rows = rows.filter(legacynetwork=None) if self.model is Peer else rows
        waiting = PeerMessage.objects.filter(peer=OuterRef("pk"), is_sent=False)
        first = waiting.order_by("since").values("since")[:1]
        return rows.annotate(number_waiting=number_of(waiting, "peer"), first=Subquery(first))

    @admin.display(description="kind in use")
    def seems(self, peer: Peer) -> str:
        return kinds.kind_of(store.kinds_of([peer])[peer.pk]).label

    @admin.display(description="waiting messages")
    def waits(self, peer: Peer) -> SafeString:
        number = peer.number_waiting  # type: ignore[attr-defined]  # annotated
        text = f"{number} message{'' if number == 1 else 's'}"
        if first := peer.first:  # type: ignore[attr-defined]
            text += f", the oldest for {(now() - first).total_seconds():,.0f} s"
        return format_html('<a class="text-link" href="{}">{}</a>', list_of(peer.domain), text)

    @admin.display(description="to it, from it")
    def traffic(self, peer: Peer) -> str:
        """Messages a second, how long the last response took, and how many were refused."""
        lately = store.figures_of(peer)
        if not lately:
            return ""
        took = f", {lately['round_trip_ms']:,} ms" if lately["round_trip_ms"] else ""
        refused = f", {lately['refused']:,} refused" if lately.get("refused") else ""
        rates = f"{lately['sent_per_second']:,}/s, {lately['received_per_second']:,}/s"
        return f"{rates}{took}{refused}"

    @admin.display(description="last to it")
    def way_out(self, peer: Peer) -> str:
        return _last(peer, "out")

    @admin.display(description="last from it")
    def way_in(self, peer: Peer) -> str:
        return _last(peer, "in")

    @admin.display(description="last to it")
    def last_out(self, peer: Peer) -> SafeString:
        """The same for the list, with a few words of the error."""
        return in_short(_last(peer, "out"), _last(peer, "out", cut))

    @admin.display(description="last from it")
    def last_in(self, peer: Peer) -> SafeString:
        """The same for the list, with a few words of the error."""
        return in_short(_last(peer, "in"), _last(peer, "in", cut))

    @admin.display(description="carried by")
    def carrier(self, peer: Peer) -> str:
        """The way of the messages; of a link its window, its round trip, and the key."""
        lately = store.figures_of(peer)
        if not (link := lately.get("link")):
            return str(lately.get("way", ""))
        if not link["open"]:
            return f"{lately['way']}; there is no link: {link['error'] or 'it is dialled'}"
        days = (time.time() - link["key_since"]) / 86_400
        waits = f"{link['unacknowledged']} of {link['window']} batches unacknowledged"
        size, oldest = link["unacknowledged_bytes"], link["oldest_unacknowledged_ms"]
        took = f"round trip {link['round_trip_ms']:,} ms"
        key = f"key {link['key']}, which counts for {days:.0f} days"
        return f"{lately['way']}: {waits} ({size:,} bytes, oldest {oldest:,} ms), {took}, {key}"

    @admin.display(description="its sandbox")
    def sandbox(self, peer: Peer) -> str:
        """Memory, share of a processor, and number of restarts."""
        lately = store.figures_of(peer)
        if not lately:
            return ""
        size, share = filesizeformat(lately["sandbox_bytes"]), lately["sandbox_cpu_percent"]
        return f"{size}, {share} %, restarts: {lately['restarts']}"

    @admin.display(description="signature")
    def signature(self, peer: Peer) -> str:
        """Of the stub that was found."""
        if not peer.keys:
            return "not looked at: no key was given"
        signer = store.signer_of(peer, peer.found_digest)
        return f"signed, with the key {signer}" if signer else ""

    @admin.display(description="stubs that it has offered")
    def offered(self, peer: Peer) -> str:
        return "; ".join(map(_told, store.stubs_of(peer)))

    @admin.display(description="configuration that was found")
    def found_configuration(self, peer: Peer) -> str:
        found = store.source_of(peer.pk, peer.found_digest)
        return "" if found is None else str(found[1])

    @admin.display(description="source that was found")
    def found_source(self, peer: Peer) -> str:
        found = store.source_of(peer.pk, peer.found_digest)
        return "" if found is None else found[0]

    def save_model(self, request: HttpRequest, obj: Peer, form: Any, change: bool) -> None:
        obj.pk = peer_actions.save(obj, form.cleaned_data).pk

    def publish(self) -> None:
        post(store.CHANGED)

    approve = for_each("approve", "Approve the stub that was found")
    pause = for_each("pause", "Pause")
    resume = for_each("resume", "Resume with the approved stub")
    block = for_each("block", "Block")
    restart = for_each("restart", "Restart the stub")
    look_again = for_each("look", "Look for the stub again")

    @admin.action(description="Go back to an earlier stub", permissions=["change"])
    def go_back(self, request: HttpRequest, peers: QuerySet[Peer]) -> HttpResponse | None:
        if len(peers) != 1:
            messages.error(request, "Select one peer only, because each peer has its own stubs.")
            return None
        if not peers[0].stubs.exists():
            messages.error(request, f"{peers[0].domain} has offered no stub yet.")
            return None
        found = [(each["digest"], _told(each)) for each in store.stubs_of(peers[0])]
        return self.let_another_run(request, peers, "stub", "Stub", found)

    @admin.action(description="Discard all that waits", permissions=["change"])
    def discard(self, request: HttpRequest, peers: QuerySet[Peer]) -> HttpResponse | None:
        if too_many(request, peers):
            return None
        if not is_confirmed(request):
            return ask(
                self,
                request,
                peers,
                action="discard",
                title="Discard all that waits",
                warning="Senders of requests are answered 503. Other senders are not notified.",
            )
        for peer in peers:
            self.act(request, "discard", peer)
        return None

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if settings.FEDERATION == "off":
            messages.warning(
                request, "No message is sent to other domains, because FEDERATION is off."
            )
        return super().changelist_view(request, extra_context)
