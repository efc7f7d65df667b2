"""Components, connectors, protostubs and stubs in the console, as last reported by each worker."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import display

from msgnode.models import ComponentStatus

from .key_figures import is_heard
from .lists import WrittenByTheNode


class KindFilter(DropdownFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind) for kind in ("component", "connector", "protostub", "stub")]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[ComponentStatus]
    ) -> QuerySet[ComponentStatus]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


@admin.register(ComponentStatus)
class ComponentStatusAdmin(WrittenByTheNode):
    list_display = (
        "name_and_worker", "kind", "state_label", "address", "since", "answered", "failed",
        "last_error",
    )  # fmt: skip
    sortable_by = ("name_and_worker", "kind", "answered", "failed", "since")
    list_filter = (KindFilter,)
    search_fields = ("name",)
    search_help_text = "Name (its beginning)"

    @display(description="name", ordering="name", header=True)
    def name_and_worker(self, status: ComponentStatus) -> tuple[str, str]:
        return status.name, status.worker

    @display(description="state", label={"live": "success", "not heard of": "danger"})
    def state_label(self, status: ComponentStatus) -> tuple[str, str]:
        if not is_heard(status, timezone.now()):
            return "not heard of", "not heard of"
        is_well = status.state == "live" or status.state.endswith(" connected")
        return ("live" if is_well else status.state), status.state
