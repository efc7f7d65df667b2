"""What is stored for peers, and what of it was set aside, in the console."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import RelatedDropdownFilter
from unfold.decorators import display

from msgnode.models import StoredMessage

from .lists import WrittenByTheNode, begins_with, link
from .whereabouts import has_id


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
class StoredMessageAdmin(WrittenByTheNode):
    list_display = (
        "type",
        "message_id",
        "peer_link",
        "sender",
        "to",
        "size",
        "since",
        "until",
        "why",
    )
    list_filter = (("peer", RelatedDropdownFilter), IsSetAside)
    list_select_related = ("peer",)
    ordering = ("id",)
    sortable_by = ("since", "size")
    search_fields = ("to",)
    search_help_text = "Id, or to, or from (its beginning)"
    fields = (
        "peer_link", "type", "message_id", "sender", "to", "size", "since", "until", "set_aside_at",
        "why",
    )  # fmt: skip
    readonly_fields = fields

    def search_filter(self, term: str) -> Any:
        return has_id(term) | begins_with("to", term) | begins_with("sender", term)

    @display(description="peer", ordering="peer__domain")
    def peer_link(self, message: StoredMessage) -> SafeString:
        return link(message.peer, message.peer.domain)

    @display(description="what became of it")
    def why(self, message: StoredMessage) -> str:
        """Why it was set aside, or that it waits."""
        return f"set aside: {message.reason}" if message.set_aside_at else "waits"
