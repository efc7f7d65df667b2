"""Failed log-ins in the console; deleting one opens the name again for that address."""

from __future__ import annotations

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display

from .lists import AuditedAdmin


@admin.register(AccessAttempt)
class FailedLoginAdmin(AuditedAdmin):
    list_display = ("username", "ip_address", "state_label", "failures_since_start", "attempt_time")
    ordering = ("-attempt_time",)
    sortable_by = ("attempt_time",)
    search_fields = ("username",)
    search_help_text = "User name (its beginning)"
    fields = ("username", "ip_address", "user_agent", "failures_since_start", "attempt_time",
              "path_info")  # fmt: skip

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: AccessAttempt | None = None) -> bool:
        return False

    @display(description="state", label={"shut": "danger", "counted": "default"})
    def state_label(self, attempt: AccessAttempt) -> str:
        is_shut = attempt.failures_since_start >= settings.AXES_FAILURE_LIMIT
        return "shut" if is_shut else "counted"
