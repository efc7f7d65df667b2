"""Reports and runs in the console: lists, the page of a report, the last 24 hours, new runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.timesince import timesince
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminSplitDateTimeWidget

from msgnode.console.lists import ConsoleAdmin, WrittenByTheNode
from msgnode.console.prefilled import fitting
from spark import pages, report_runs
from spark.enqueue import enqueue
from spark.jobs import periods
from spark.jobs.periods import Kind
from spark.models import KindChoice, Report, ReportRun

_COLOURS = {"done": "success", "failed": "danger", "running": "info", "queued": "warning"}


@admin.register(Report)
class ReportAdmin(WrittenByTheNode):
    """Reports: read, never written by hand."""

    list_display = ("name", "start", "end", "rows", "completeness", "age")
    list_filter = ("kind",)
    ordering = ("-start",)
    list_before_template = "spark/reports_head.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Report]:
        return super().get_queryset(request).defer("figures")

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.last_day)
        now = self.admin_site.admin_view(self.roll_up_now)
        return [
            path("last-day/", page, name="spark_last_day"),
            path("last-day/roll-up/", now, name="spark_roll_up_now"),
            *super().get_urls(),
        ]

    @display(description="report", ordering="start")
    def name(self, report: Report) -> str:
        return str(report)

    @display(description="hours recorded")
    def completeness(self, report: Report) -> str:
        still = "" if report.is_over else ", still under way when made"
        lacking = f", {report.hours_incomplete} incomplete" if report.hours_incomplete else ""
        return f"{report.hours_recorded} of {report.hours_of_period}{lacking}{still}"

    @display(description="made", ordering="made_at")
    def age(self, report: Report) -> str:
        return f"{timesince(report.made_at, depth=1)} ago"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        report = self.get_object(request, object_id)
        if report is None or not self.has_view_permission(request, report):
            return super().change_view(request, object_id, form_url, extra_context)
        return self._page(
            request, str(report), report.figures, report=report,
            again_url=reverse("admin:spark_reportrun_add")
            + f"?kind={report.kind}&start={report.start:%Y-%m-%d %H:%M:%S}",
            api_url=reverse("report-detail", args=[report.pk]),
        )  # fmt: skip

    def last_day(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            return redirect("admin:index")
        figures = pages.last_day(timezone.now())
        return self._page(
            request, "The last 24 hours", figures, **pages.not_in_last_day(figures),
            may_run=request.user.has_perm("spark.add_reportrun"),
        )  # fmt: skip

    def roll_up_now(self, request: HttpRequest) -> HttpResponse:
        """Have the hours of the last day rolled up that are not yet, the running one included."""
        if not request.user.has_perm("spark.add_reportrun"):
            raise PermissionDenied
        if request.method == "POST":
            end = timezone.now()
            run = report_runs.queue("hourly", end - timedelta(hours=23), end, asked_by=request.user)
            enqueue(run.pk)
            text = "A run is queued. This page shows its figures when it has finished."
            messages.success(request, text)
            return redirect("admin:spark_reportrun_change", run.pk)
        return redirect("admin:spark_last_day")

    def _page(
        self, request: HttpRequest, title: str, figures: dict[str, Any], **more: Any
    ) -> TemplateResponse:
        return TemplateResponse(
            request,
            "spark/report.html",
            {
                **self.admin_site.each_context(request),
                "title": title,
                "opts": self.model._meta,
                **pages.context(figures),
                **more,
            },
        )


class RunForm(forms.ModelForm):
    """What a run is asked for: a kind and its periods."""

    kind = forms.ChoiceField(choices=KindChoice.choices, widget=UnfoldAdminSelectWidget)
    start = forms.SplitDateTimeField(
        widget=UnfoldAdminSplitDateTimeWidget,
        help_text="Any time in the period, UTC. Missing hours are rolled up first.",
    )

    class Meta:
        model = ReportRun
        fields = ("kind", "start", "again")

    def clean_start(self) -> datetime:
        start: datetime = self.cleaned_data["start"]
        try:
            report_runs.check_period(start, None)
        except report_runs.NoSuchPeriod as fault:
            raise forms.ValidationError(str(fault)) from fault
        return start


@admin.register(ReportRun)
class ReportRunAdmin(ConsoleAdmin):
    """Runs: asked for, watched, cancelled."""

    form = RunForm
    fields = ("kind", "start", "again")
    list_display = (
        "name", "state_label", "progress_text", "trigger", "queued_at", "duration_text",
        "rows_text", "hours_text", "memory",
    )  # fmt: skip
    list_filter = ("state", "kind", "trigger")
    list_before_template = "console/live_list.html"
    change_form_before_template = "console/live_detail.html"
    ordering = ("-queued_at",)
    actions = ("cancel", "repeat")
    readonly = (
        "name", "end", "state_label", "progress_text", "trigger", "asked_by", "queued_at",
        "started_at", "ended_at", "duration_text", "attempts", "rows_text", "hours_text",
        "memory", "warning", "error",
    )  # fmt: skip

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return self.fields if obj is None else self.readonly

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return () if obj is None else self.readonly

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        given = fitting(self.model, super().get_changeform_initial_data(request))
        kind = given.get("kind", "daily")
        return {"kind": kind, "start": report_runs.last_full(kind), **given}

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return obj is None and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ReportRun, form: Any, change: bool) -> None:
        waiting = report_runs.queue(obj.kind, obj.start, asked_by=request.user, again=obj.again)
        for field in ("pk", "start", "end", "state"):
            setattr(obj, field, getattr(waiting, field))
        enqueue(waiting.pk)

    @display(description="run", ordering="start")
    def name(self, run: ReportRun) -> str:
        return str(run)

    @display(description="state", ordering="state", label=_COLOURS)
    def state_label(self, run: ReportRun) -> str:
        return run.state

    @display(description="progress")
    def progress_text(self, run: ReportRun) -> str:
        if run.state != ReportRun.State.RUNNING:
            return run.step
        return f"{min(run.progress, 0.99):.0%} {run.step}"

    @display(description="rows read", ordering="rows_read")
    def rows_text(self, run: ReportRun) -> str:
        """Known when the run is over."""
        return f"{run.rows_read:,}" if run.state == ReportRun.State.DONE else "–"

    @display(description="hours rolled up", ordering="hours_rolled")
    def hours_text(self, run: ReportRun) -> str:
        """Known when the run is over."""
        return f"{run.hours_rolled:,}" if run.state == ReportRun.State.DONE else "–"

    @display(description="duration")
    def duration_text(self, run: ReportRun) -> str:
        took = run.duration
        return "" if took is None else str(timedelta(seconds=round(took.total_seconds())))

    @display(description="peak memory of all its processes")
    def memory(self, run: ReportRun) -> str:
        return f"{run.peak_memory_mb} MB" if run.peak_memory_mb else ""

    @action(description="Cancel", permissions=["add"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[ReportRun]) -> None:
        asked = sum(report_runs.cancel(run) for run in queryset[:100])
        self.message_user(request, f"{asked} runs are being stopped.", messages.SUCCESS)

    @action(description="Run again", permissions=["add"])
    def repeat(self, request: HttpRequest, queryset: QuerySet[ReportRun]) -> None:
        for run in queryset[:20]:
            end = run.end if run.end > periods.after(Kind(run.kind), run.start) else None
            waiting = report_runs.queue(
                run.kind, run.start, end, asked_by=request.user, again=run.again
            )
            enqueue(waiting.pk)
        self.message_user(request, "The runs are queued.", messages.SUCCESS)
