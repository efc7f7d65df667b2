"""Allocated addresses in the console."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter, DropdownFilter
from unfold.decorators import display

from msgnode.allocation.rules import SCHEMES
from msgnode.models import AddressPool, Allocation

from .lists import address_filter, link, session_filter
from .operator_actions import delete_allocations
from .release_addresses import HeldBySessions


def known_schemes() -> list[str]:
    """Schemes the node allocates; the table is not asked which there are."""
    pools = AddressPool.objects.values_list("scheme", flat=True)
    return list(dict.fromkeys([*SCHEMES, *pools]))


class SchemeFilter(DropdownFilter):
    title = "scheme"
    parameter_name = "scheme"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(scheme, scheme) for scheme in known_schemes()]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Allocation]
    ) -> QuerySet[Allocation]:
        return queryset.filter(scheme=self.value()) if self.value() else queryset


@admin.register(Allocation)
class AllocationAdmin(HeldBySessions):
    list_display = ("address", "session_link", "kind_label", "allocation_key", "created_at")
    list_filter = (SchemeFilter, ("kind", ChoicesDropdownFilter))
    ordering = ("-id",)
    sortable_by = ("address",)
    search_fields = ("address",)
    search_help_text = "Address or runtime URL (its beginning), session id, or allocation key"
    fields = ("address", "scheme", "session_link", "kind", "allocation_key", "created_at")

    @display(description="session", ordering="session")
    def session_link(self, allocation: Allocation) -> SafeString:
        return link(allocation.session, allocation.session.runtime_url)

    @display(
        description="kind",
        label={"made": "info", "claimed": "default", "lent": "warning"},
    )
    def kind_label(self, allocation: Allocation) -> tuple[str, str]:
        return allocation.kind, allocation.get_kind_display()

    def take_back(self, rows: Iterable[Allocation], actor: str) -> int:
        return delete_allocations(rows, actor)

    def search_filter(self, term: str) -> Q:
        found = address_filter("address", term, known_schemes()) | session_filter(term)
        return found if ":/" in term else found | Q(allocation_key=term)
