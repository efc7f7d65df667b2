"""Bans in the console: whom the node keeps out, until when and why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from unfold.contrib.filters.admin import ChoicesDropdownFilter
from unfold.decorators import display
from unfold.widgets import UnfoldBooleanWidget

from msgnode.core import addresses
from msgnode.models import Ban, Session
from msgnode.sessions.bans import Ban as Rule
from msgnode.sessions.bans import BanList

from . import operator_actions
from .lists import AuditedAdmin
from .take_back import offer

ENDS_UNASKED = 10
"""Sessions a ban may end without being confirmed."""


class BanForm(forms.ModelForm):
    confirmed = forms.BooleanField(
        label="End all of them",
        required=False,
        help_text=f"Needed for a ban that ends more than {ENDS_UNASKED} sessions at once.",
        widget=UnfoldBooleanWidget,
    )

    class Meta:
        model = Ban
        fields = ("kind", "value", "expires_at", "reason")

    def clean_expires_at(self) -> Any:
        moment = self.cleaned_data["expires_at"]
        if moment is not None and moment <= timezone.now():
            raise forms.ValidationError("This time is in the past.")
        return moment

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        kind, value = cleaned.get("kind"), (cleaned.get("value") or "").strip()
        if not kind or not value:
            return cleaned
        try:
            value = cleaned["value"] = operator_actions.cleaned_ban(kind, value)
        except forms.ValidationError as fault:
            self.add_error("value", fault)
            return cleaned
        met = sessions_met(kind, value)
        if met > ENDS_UNASKED and not cleaned.get("confirmed") and "value" in self.changed_data:
            self.add_error(
                "confirmed", f"This ban ends {met:,} sessions now. Confirm that you want this."
            )
        return cleaned


def sessions_met(kind: str, value: str) -> int:
    """Live sessions that a ban would end."""
    live = Session.objects.filter(state__in=(Session.State.OPEN, Session.State.DETACHED)).order_by()
    if kind == Ban.Kind.RUNTIME:
        return live.filter(runtime_url__in=[value, addresses.runtime_twin(value)]).count()
    if kind == Ban.Kind.DOMAIN:
        return live.filter(visits_from=value).count()
    if kind == Ban.Kind.SUBJECT:
        return live.filter(subject=value).count()
    ban = BanList([Rule(kind, value)])
    sources = live.values_list("remote_address", flat=True)
    return sum(ban.of_source(source, 0) is not None for source in sources.iterator())


@admin.register(Ban)
class BanAdmin(AuditedAdmin):
    form = BanForm
    acts_on = ("*",)
    list_display = ("value", "kind", "state_label", "reason", "expires_at", "created_by")
    list_filter = (("kind", ChoicesDropdownFilter),)
    ordering = ("-created_at",)
    sortable_by = ("value", "expires_at")
    search_fields = ("value",)
    search_help_text = "Runtime URL, address or subject (its beginning)"
    fields = ("kind", "value", "expires_at", "reason", "confirmed")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """What a link fills in; `hours` is how long the ban lasts."""
        given = dict(super().get_changeform_initial_data(request))
        given.pop("expires_at", None)
        hours = given.pop("hours", "")
        if isinstance(hours, str) and hours.isascii() and hours.isdigit() and len(hours) < 5:
            ends = timezone.now() + timedelta(hours=int(hours))
            given["expires_at"] = ends.replace(microsecond=0)
        return given

    def publish(self) -> None:
        operator_actions.publish_bans()

    def response_add(self, request: HttpRequest, obj: Ban, *args: Any, **more: Any) -> Any:
        """With the way back, in the message."""
        response = super().response_add(request, obj, *args, **more)
        offer(request, "ban.add", obj)
        return response

    @display(description="state", label={"in force": "danger", "expired": "default"})
    def state_label(self, ban: Ban) -> str:
        is_over = ban.expires_at is not None and ban.expires_at <= timezone.now()
        return "expired" if is_over else "in force"
