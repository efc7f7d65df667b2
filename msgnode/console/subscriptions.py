"""Subscriptions in the console."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.db.models import Q
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.decorators import display

from msgnode.models import Subscription

from .lists import WrittenByTheNode, address_filter, link, session_filter


@admin.register(Subscription)
class SubscriptionAdmin(WrittenByTheNode):
    list_display = ("address", "session_link", "created_at")
    list_filter = (("created_at", RangeDateTimeFilter),)
    list_select_related = ("session",)
    ordering = ("-id",)
    sortable_by = ("address",)
    search_fields = ("address",)
    search_help_text = "Address or runtime URL (its beginning), or session id"
    fields = ("address", "session_link", "created_at")

    @display(description="session", ordering="session")
    def session_link(self, subscription: Subscription) -> SafeString:
        return link(subscription.session, subscription.session.runtime_url)

    def search_filter(self, term: str) -> Q:
        return address_filter("address", term, settings.ALLOCATION_SCHEMES) | session_filter(term)
