"""Ways from one page of the policies to another, and rows that only the node writes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

BOUND = 10_000


def link(page: str, pk: object, text: str) -> SafeString:
    """A link to the page of a row."""
    address = reverse(f"admin:{page}_change", args=[pk])
    return format_html('<a class="text-link" href="{}">{}</a>', address, text)


def to(name: str) -> HttpResponse:
    """Send the browser to a page."""
    return redirect(f"admin:{name}")


class BoundedPaginator(Paginator):
    """Counts at most BOUND rows; what is older is found by searching."""

    @cached_property
    def count(self) -> int:
        """Rows that pages are offered for."""
        rows: Any = self.object_list
        return int(rows.order_by()[:BOUND].count())


class ReadOnlyAdmin(ModelAdmin):
    """Rows that are written by the node; their lists follow."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 0
    list_before_template = "console/live_list.html"

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """The list, which offers to show all only where something is left out."""
        shown = super().get_changelist_instance(request)
        if not shown.query and not shown.has_active_filters:
            shown.full_result_count = shown.result_count
        return shown

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody adds, changes or deletes."""
        return False

    has_change_permission = has_delete_permission = has_add_permission
