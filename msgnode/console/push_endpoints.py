"""Push endpoints in the console: who may be invited, and where; deleting one takes it back."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import OuterRef, Q, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from msgnode.models import Invitation, PushEndpoint

from .lists import NeverEdited, begins_with, number_of


@admin.register(PushEndpoint)
class PushEndpointAdmin(NeverEdited):
    list_display = ("user_url", "runtime_url", "waiting", "renewed_at", "expires_at")
    ordering = ("user_url",)
    search_fields = ("user_url",)
    search_help_text = "User URL or runtime URL (its beginning)"
    fields = ("user_url", "runtime_url", "address", "hyperty", "renewed_at", "expires_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PushEndpoint]:
        waiting = Invitation.objects.filter(endpoint=OuterRef("pk")).exclude(message="")
        rows = super().get_queryset(request)
        return rows.annotate(number_waiting=number_of(waiting, "endpoint"))

    def search_filter(self, term: str) -> Q:
        return begins_with("user_url", term) | begins_with("runtime_url", term)

    @display(description="invitations waiting")
    def waiting(self, endpoint: PushEndpoint) -> int:
        return int(endpoint.number_waiting)  # type: ignore[attr-defined]  # annotated
