"""Keys in the console: those of service accounts, and the provider's signing keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from msgnode.core.identity import API_KEY_ISSUER
from msgnode.identity import api_keys
from msgnode.identity.ports import REVOKED
from msgnode.identity.provider import keys as provider_keys
from msgnode.identity.service_accounts import subject_of
from msgnode.models import ApiKey, ProviderKey
from msgnode.storage.control import post

from .lists import WrittenByTheNode
from .new_secret import NewSecretAdmin
from .prefilled import fitting

_PROPOSED_DAYS = 365
"""For how long a new key is valid, if the form is left as it is."""


class ApiKeyForm(forms.ModelForm):
    scopes = forms.MultipleChoiceField(
        choices=[(scope, f"{scope}: {text}") for scope, (text, _) in api_keys.SCOPES.items()],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="The key permits only what you select here.",
    )

    class Meta:
        model = ApiKey
        fields = ("name", "scopes", "expires_at", "is_active")


@admin.register(ApiKey)
class ApiKeyAdmin(NewSecretAdmin):
    overlap = api_keys.OVERLAP
    form = ApiKeyForm
    acts_on = ("name", "scopes", "expires_at", "is_active", "secret_hash")
    list_display = ("name", "state_label", "scope_text", "expires_at", "last_used_at",
                    "last_used_from")  # fmt: skip
    ordering = ("name",)
    sortable_by = ("name", "expires_at", "last_used_at")
    search_fields = ("name",)
    search_help_text = "Name (its beginning)"
    fields = ("name", "scopes", "expires_at", "is_active", "prefix", "created_at", "created_by",
              "last_used_at", "last_used_from")  # fmt: skip
    readonly_fields = ("prefix", "created_at", "created_by", "last_used_at", "last_used_from")

    @display(description="state", label={"in use": "success", "off": "default", "over": "danger"})
    def state_label(self, key: ApiKey) -> str:
        if key.expires_at <= timezone.now():
            return "over"
        return "in use" if key.is_active else "off"

    @display(description="scopes")
    def scope_text(self, key: ApiKey) -> str:
        return ", ".join(key.scopes)

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        ends = timezone.now() + timedelta(days=_PROPOSED_DAYS)
        named = super().get_changeform_initial_data(request)
        return {"expires_at": ends, **fitting(self.model, named)}

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        text = ""
        if not change:
            text = api_keys.issue(obj)
        super().save_model(request, obj, form, change)
        if change:
            post(REVOKED, issuer=API_KEY_ISSUER, subject=subject_of(obj))
        if text:
            _show(request, text)

    def delete_model(self, request: HttpRequest, obj: ApiKey) -> None:
        super().delete_model(request, obj)
        post(REVOKED, issuer=API_KEY_ISSUER, subject=subject_of(obj))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        subjects = [subject_of(key) for key in queryset]
        super().delete_queryset(request, queryset)
        for subject in subjects:
            post(REVOKED, issuer=API_KEY_ISSUER, subject=subject)

    def has_rotate_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("msgnode.change_apikey")

    def show_new_secret(self, request: HttpRequest, row: ApiKey) -> None:
        """Give a key a new secret, and show it."""
        _show(request, api_keys.rotate(row))


def _show(request: HttpRequest, text: str) -> None:
    messages.warning(request, f"The key (shown only this once): {text}")


@admin.register(ProviderKey)
class ProviderKeyAdmin(WrittenByTheNode):
    list_display = ("kid", "state_label", "signs_from", "made_at")
    ordering = ("-signs_from",)
    fields = ("kid", "public", "signs_from", "made_at")

    @display(description="state", label={"signs": "success", "next": "info", "over": "default"})
    def state_label(self, key: ProviderKey) -> str:
        return provider_keys.states(list(ProviderKey.objects.all())).get(key.kid, "over")
