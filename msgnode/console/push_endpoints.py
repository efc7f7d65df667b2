"""Push endpoints in the console: who may be invited, and where; deleting one takes it back."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from msgnode.models import PushEndpoint

from .lists import AuditedAdmin, begins_with


@admin.register(PushEndpoint)
class PushEndpointAdmin(AuditedAdmin):
    list_display = ("user_url", "runtime_url", "waiting", "renewed_at", "expires_at")
    ordering = ("user_url",)
    search_fields = ("user_url",)
    search_help_text = "User URL or runtime URL (its beginning)"
    fields = ("user_url", "runtime_url", "address", "hyperty", "renewed_at", "expires_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PushEndpoint]:
        waits = Count("invitations", filter=~Q(invitations__message=""))
        return super().get_queryset(request).annotate(number_waiting=waits)

    def search_filter(self, term: str) -> Q:
        return begins_with("user_url", term) | begins_with("runtime_url", term)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: PushEndpoint | None = None) -> bool:
        return False

    @display(description="invitations waiting")
    def waiting(self, endpoint: PushEndpoint) -> int:
        return int(endpoint.number_waiting)  # type: ignore[attr-defined]  # annotated
