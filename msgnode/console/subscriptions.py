"""Subscriptions in the console."""

from __future__ import annotations

from collections.abc import Iterable

from django import forms
from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.decorators import display

from msgnode.allocation.rules import SCHEMES
from msgnode.models import Session, Subscription

from .lists import address_filter, link, session_filter
from .operator_actions import add_subscription, cleaned_subscription, delete_subscriptions
from .release_addresses import HeldBySessions


class SubscriptionForm(forms.ModelForm):
    """A subscription made by an operator. Any address is allowed; its session must exist."""

    class Meta:
        model = Subscription
        fields = ("session", "address")

    def clean_address(self) -> str:
        return cleaned_subscription(self.cleaned_data["address"])

    def clean_session(self) -> Session:
        session: Session = self.cleaned_data["session"]
        if session.state == Session.State.CLOSED:
            raise forms.ValidationError("This session is closed.")
        return session


@admin.register(Subscription)
class SubscriptionAdmin(HeldBySessions):
    form = SubscriptionForm
    list_display = ("address", "session_link", "created_at")
    list_filter = (("created_at", RangeDateTimeFilter),)
    ordering = ("-id",)
    sortable_by = ("address",)
    search_fields = ("address",)
    search_help_text = "Address or runtime URL (its beginning), or session id"
    shown_fields = ("address", "session_link", "created_at")

    autocomplete_fields = ("session",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("msgnode.add_subscription")

    def get_fields(self, request: HttpRequest, obj: Subscription | None = None) -> list[str]:
        return ["session", "address"] if obj is None else list(self.shown_fields)

    def save_model(
        self, request: HttpRequest, obj: Subscription, form: forms.ModelForm, change: bool
    ) -> None:
        add_subscription(obj, request.user.get_username())

    @display(description="session", ordering="session")
    def session_link(self, subscription: Subscription) -> SafeString:
        return link(subscription.session, subscription.session.runtime_url)

    def take_back(self, rows: Iterable[Subscription], actor: str) -> int:
        return delete_subscriptions(rows, actor)

    def search_filter(self, term: str) -> Q:
        return address_filter("address", term, SCHEMES) | session_filter(term)
