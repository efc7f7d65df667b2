"""Scheduled tasks, their rhythms, and what became of them, in the console's look.

The packages' own classes bring widgets without a style and a script that the policy of the page
forbids. What the node itself schedules may be switched off and timed, but not deleted: the
beat would make it again.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone
from django_celery_beat import admin as stock
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)
from django_celery_results.models import GroupResult, TaskResult
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from .lists import ConsoleAdmin, WrittenByTheNode

for _model in (
    PeriodicTask, CrontabSchedule, IntervalSchedule, SolarSchedule, ClockedSchedule, TaskResult,
    GroupResult,
):  # fmt: skip
    admin.site.unregister(_model)


class TaskSelect(UnfoldAdminSelectWidget, stock.TaskSelectWidget):
    """The registered tasks."""


class TaskForm(stock.PeriodicTaskForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "regtask" in self.fields:
            self.fields["regtask"].widget = TaskSelect()
        if "task" in self.fields:
            self.fields["task"].widget = UnfoldAdminTextInputWidget()


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(stock.PeriodicTaskAdmin, ModelAdmin):
    form = TaskForm
    change_form_template = None  # the package's has a script in the page
    date_hierarchy = None
    list_display = ("name", "task", "rhythm", "last_run_at", "enabled")
    list_filter = ("enabled",)
    list_filter_submit = True
    list_fullwidth = True
    readonly_fields = ("last_run_at",)
    compressed_fields = True
    fieldsets = (
        (None, {"fields": ("name", "regtask", "task", "enabled", "description")}),
        (
            "Schedule",
            {"fields": ("interval", "crontab", "clocked", "start_time", "one_off", "last_run_at")},
        ),
        ("Arguments", {"fields": ("args", "kwargs")}),
        ("Execution", {"fields": ("expires", "expire_seconds", "queue", "priority", "headers")}),
    )

    @display(description="rhythm")
    def rhythm(self, task: PeriodicTask) -> str:
        """When it is run."""
        crontab = task.crontab
        return crontab.human_readable if crontab else str(task.scheduler or "never")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may: bool = super().has_delete_permission(request, obj)
        return may and not (obj is not None and _is_built_in(obj))


class TaskInline(TabularInline):
    model = PeriodicTask
    fields = readonly_fields = ("name", "task", "enabled")
    can_delete = False
    extra = 0
    verbose_name_plural = "Tasks of this rhythm"

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class RhythmAdmin(ConsoleAdmin):
    """A rhythm and the tasks that follow it; one that has tasks is not deleted with them."""

    inlines = (TaskInline,)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is not None and obj.periodictask_set.exists():
            return False
        return bool(super().has_delete_permission(request, obj))


class CrontabForm(forms.ModelForm):
    def clean(self) -> dict[str, Any]:
        """Refuse what no calendar has, such as the 30th of February."""
        fields = super().clean() or self.cleaned_data
        when = CrontabSchedule(**fields) if not self.errors else None
        try:
            if when is not None:
                when.schedule.is_due(timezone.now())
        except ValueError as fault:
            raise ValidationError(str(fault)) from None
        return fields


@admin.register(CrontabSchedule)
class CrontabAdmin(RhythmAdmin):
    form = CrontabForm
    list_display = ("__str__", "human_readable")
    fields = (
        *("human_readable", "minute", "hour", "day_of_month", "month_of_year", "day_of_week"),
        "timezone",
    )
    readonly_fields = ("human_readable",)


admin.site.register([IntervalSchedule, SolarSchedule, ClockedSchedule], RhythmAdmin)


@admin.register(TaskResult)
class TaskResultAdmin(WrittenByTheNode):
    """The results of tasks. Names are stored with CELERY_RESULT_EXTENDED."""

    list_display = ("name", "state_label", "date_done", "took", "worker_name")
    list_filter = ("status",)
    ordering = ("-date_done",)
    sortable_by = ("date_done",)
    search_fields = ("task_id",)
    search_help_text = "Task id (its beginning)"
    fields = (
        *("name", "task_id", "state_label", "worker_name", "date_created", "date_started"),
        *("date_done", "took", "task_args", "task_kwargs", "result", "traceback"),
    )

    @display(description="task")
    def name(self, result: TaskResult) -> str:
        return result.periodic_task_name or result.task_name or "not told"

    @display(
        description="state",
        label={"SUCCESS": "success", "FAILURE": "danger", "STARTED": "info", "RETRY": "warning"},
    )
    def state_label(self, result: TaskResult) -> str:
        return str(result.status)

    @display(description="took")
    def took(self, result: TaskResult) -> str:
        """Its duration from its start, which is not always known, to its end."""
        began = result.date_started
        return f"{(result.date_done - began).total_seconds():.1f} s" if began else "–"

    @display(description="worker")
    def worker_name(self, result: TaskResult) -> str:
        return result.worker or "not told"


def _is_built_in(task: PeriodicTask) -> bool:
    return task.name == "celery.backend_cleanup" or task.name in settings.BEAT_SCHEDULE
