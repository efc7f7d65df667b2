"""What sessions hold, in the console: allocated addresses and subscriptions."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import (
    ChoicesDropdownFilter,
    RangeDateTimeFilter,
)
from unfold.decorators import display

from msgnode.allocation.rules import SCHEMES
from msgnode.models import AddressPool, Allocation, Session, Subscription

from .lists import OfferedFilter, WrittenByTheNode, address_filter, link, session_filter
from .operator_actions import add_subscription, cleaned_subscription, take_from_sessions


class HeldBySessions(WrittenByTheNode):
    """Rows that an operator may delete: audited, and live at once."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The sessions in a query of their own.

        Joined, a database without statistics (after a restore) may put all rows together to show
        fifty.
        """
        return super().get_queryset(request).prefetch_related("session")

    @display(description="session", ordering="session")
    def session_link(self, row: Allocation | Subscription) -> SafeString:
        """A link to the session."""
        return link(row.session, row.session.runtime_url)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow deletion to those who may delete rows, though nobody may edit them."""
        return request.user.has_perm(f"{self.opts.app_label}.delete_{self.opts.model_name}")

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Take one row back from its session."""
        take_from_sessions([obj], request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Take the chosen rows back, in one change."""
        take_from_sessions(list(queryset.prefetch_related(None)), request.user.get_username())


def known_schemes() -> list[str]:
    """Schemes the node allocates; the table is not asked which there are."""
    pools = AddressPool.objects.values_list("scheme", flat=True)
    return list(dict.fromkeys([*SCHEMES, *pools]))


class SchemeFilter(OfferedFilter):
    title = parameter_name = "scheme"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(scheme, scheme) for scheme in known_schemes()]


@admin.register(Allocation)
class AllocationAdmin(HeldBySessions):
    list_display = ("address", "session_link", "kind_label", "allocation_key", "created_at")
    list_filter = (SchemeFilter, ("kind", ChoicesDropdownFilter))
    ordering = ("-id",)
    sortable_by = ("address",)
    search_fields = ("address",)
    search_help_text = "Address or runtime URL (its beginning), session id, or allocation key"
    fields = ("address", "scheme", "session_link", "kind", "allocation_key", "created_at")

    @display(
        description="kind",
        label={"made": "info", "claimed": "default", "lent": "warning"},
    )
    def kind_label(self, allocation: Allocation) -> tuple[str, str]:
        return allocation.kind, allocation.get_kind_display()

    def search_filter(self, term: str) -> Q:
        found = address_filter("address", term, known_schemes()) | session_filter(term)
        return found if ":/" in term else found | Q(allocation_key=term)


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

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("msgnode.add_subscription")

    def get_fields(self, request: HttpRequest, obj: Subscription | None = None) -> list[str]:
        return ["session", "address"] if obj is None else list(self.shown_fields)

    def save_model(
        self, request: HttpRequest, obj: Subscription, form: forms.ModelForm, change: bool
    ) -> None:
        add_subscription(obj, request.user.get_username())

    def search_filter(self, term: str) -> Q:
        return address_filter("address", term, SCHEMES) | session_filter(term)
