"""Alarms in the console: what stands, what stood; an operator clears one that is dealt with."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from unfold.decorators import action, display

from msgnode.core.explanations import ALARMS
from msgnode.models import Alarm
from msgnode.storage.alarms import STUCK_ALARM

from .audit import note
from .confirm import too_many
from .lists import OfferedFilter, WrittenByTheNode
from .peer_messages import list_of


class StandingFilter(OfferedFilter):
    title = "state"
    parameter_name = "standing"
    offered = (("yes", "standing"), ("no", "cleared"))

    def narrowed(self, rows: QuerySet[Alarm], value: str) -> QuerySet[Alarm]:
        return rows.filter(cleared_at__isnull=value == "yes")


@admin.register(Alarm)
class AlarmAdmin(WrittenByTheNode):
    list_display = (
        *("text", "kind_explained", "subject", "state_label"),
        *("count", "raised_at", "last_at", "leads_to"),
    )
    list_filter = (StandingFilter,)
    readonly_fields = ("leads_to",)
    ordering = ("-last_at",)
    sortable_by = ("raised_at", "last_at", "kind")
    search_fields = ("subject",)
    search_help_text = "Subject (its beginning)"
    actions = ("clear",)

    @display(description="state", label={"standing": "danger", "cleared": "default"})
    def state_label(self, alarm: Alarm) -> str:
        return "cleared" if alarm.cleared_at else "standing"

    @display(description="kind", ordering="kind")
    def kind_explained(self, alarm: Alarm) -> str:
        """The kind, linked to the page that says what to do."""
        if alarm.kind not in ALARMS:
            return alarm.kind
        page = reverse("problem", args=["alarms", alarm.kind])
        return format_html('<a href="{}">{}</a>', page, alarm.kind)

    @display(description="to be looked at")
    def leads_to(self, alarm: Alarm) -> str:
        """A link to the page for the cause."""
        if alarm.kind != STUCK_ALARM:
            return ""
        text = "Messages waiting for it"
        return format_html('<a class="text-link" href="{}">{}</a>', list_of(alarm.subject), text)

    @action(description="Clear the selected alarms", permissions=["clear"])
    def clear(self, request: HttpRequest, queryset: QuerySet[Alarm]) -> None:
        if too_many(request, queryset):
            return
        now, actor = timezone.now(), request.user.get_username()
        with transaction.atomic():
            alarms = list(queryset.filter(cleared_at=None).select_for_update())
            for alarm in alarms:
                alarm.cleared_at = now
                alarm.save(update_fields=["cleared_at"])
                # By its subject, which is what is looked for when a person is erased.
                about = alarm.subject or alarm.kind
                before = {"kind": alarm.kind, "cleared_at": None}
                note(actor, "alarm.clear", about, before, {**before, "cleared_at": now})
        text = f"{len(alarms)} cleared. An alarm whose cause remains is raised again."
        messages.success(request, text)

    def has_clear_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("msgnode.change_alarm")
