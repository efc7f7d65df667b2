"""What waits for peers, and what is stored for them, in the console.

A waiting message can be retried or discarded; of a stored one it is told why it was set aside.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter, RelatedDropdownFilter
from unfold.decorators import action, display

from msgnode.federation import monitoring
from msgnode.federation.queue import MessageClass
from msgnode.models import PeerMessage, StoredMessage

from .confirm import ask, is_confirmed, tell_gone, too_many
from .lists import WrittenByTheNode, begins_with, link
from .peer_actions import order
from .whereabouts import has_id


def list_of(domain: str) -> str:
    """The path of the list of messages queued for a domain, without sent ones."""
    waits = reverse("admin:msgnode_peermessage_changelist")
    return f"{waits}?peer__domain={domain}&is_sent__exact=0"


class MessageAdmin(WrittenByTheNode):
    """A list of messages to peers."""

    list_select_related = ("peer",)
    ordering = ("id",)
    search_fields = ("to",)
    search_help_text = "Id, or to, or from (its beginning)"

    def search_filter(self, term: str) -> Any:
        return has_id(term) | begins_with("to", term) | begins_with("sender", term)

    @display(description="peer", ordering="peer__domain")
    def peer_link(self, message: PeerMessage | StoredMessage) -> SafeString:
        return link(message.peer, message.peer.domain)


@admin.register(PeerMessage)
class PeerMessageAdmin(MessageAdmin):
    list_display = (
        *("what", "message_id", "peer_link", "kind_label", "sender", "to", "size", "since"),
        *("until", "why"),
    )
    list_filter = (
        ("peer", RelatedDropdownFilter),
        ("kind", ChoicesDropdownFilter),
        "is_sent",
    )
    sortable_by = ("since", "size")
    fields = (
        "peer_link", "why", "kind_label", "type", "message_id", "sender", "to", "size", "since",
        "until", "text",
    )  # fmt: skip
    readonly_fields = fields
    actions = ("retry", "discard")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PeerMessage]:
        return monitoring.told()

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        return lookup == "peer__domain" or super().lookup_allowed(lookup, value, request)

    def has_order_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("msgnode.change_peer")

    @display(description="message")
    def what(self, message: PeerMessage) -> str:
        return message.type

    @display(
        description="class", ordering="kind", label={each.value: "info" for each in MessageClass}
    )
    def kind_label(self, message: PeerMessage) -> str:
        return message.kind

    @display(description="why it waits")
    def why(self, message: PeerMessage) -> str:
        """What the peer is doing, and what went wrong there last; or that it has left."""
        if message.is_sent:
            return "it was sent, and there is no response yet"
        peer = message.peer
        return ": ".join(filter(None, (peer.state or "not served", peer.last_error)))

    @action(description="Try again now, with the full time limit", permissions=["order"])
    def retry(self, request: HttpRequest, queryset: QuerySet[PeerMessage]) -> None:
        if not too_many(request, queryset):
            done = order(
                monitoring.RETRY, queryset.filter(is_sent=False), request.user.get_username()
            )
            text = f"{done} are tried again. Messages that were sent meanwhile are not affected."
            messages.success(request, text)

    @action(description="Discard", permissions=["order"])
    def discard(
        self, request: HttpRequest, queryset: QuerySet[PeerMessage]
    ) -> TemplateResponse | None:
        if too_many(request, queryset):
            return None
        if not is_confirmed(request):
            return ask(
                self,
                request,
                queryset,
                action="discard",
                title="Discard messages",
                warning="Senders of requests are answered 503. Other senders are not notified.",
            )
        done = order(
            monitoring.DISCARD, queryset.filter(is_sent=False), request.user.get_username()
        )
        text = f"{done} discarded. Messages that were sent meanwhile are not affected."
        messages.success(request, text)
        tell_gone(request, done)
        return None


class IsSetAside(admin.SimpleListFilter):
    """Whether a message is tried no more."""

    title = "set aside"
    parameter_name = "aside"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Set aside"), ("no", "Waits")]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[StoredMessage]
    ) -> QuerySet[StoredMessage]:
        if self.value() not in ("yes", "no"):
            return queryset
        return queryset.filter(set_aside_at__isnull=self.value() == "no")


@admin.register(StoredMessage)
class StoredMessageAdmin(MessageAdmin):
    list_display = (
        "type", "message_id", "peer_link", "sender", "to", "size", "since", "until", "why",
    )  # fmt: skip
    list_filter = (("peer", RelatedDropdownFilter), IsSetAside)
    sortable_by = ("since", "size")
    fields = (
        "peer_link", "type", "message_id", "sender", "to", "size", "since", "until", "set_aside_at",
        "why",
    )  # fmt: skip
    readonly_fields = fields

    @display(description="what became of it")
    def why(self, message: StoredMessage) -> str:
        """Why it was set aside, or that it waits."""
        return f"set aside: {message.reason}" if message.set_aside_at else "waits"
