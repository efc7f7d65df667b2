"""The rows of reports and their runs. The row of a run is the truth about it, not the broker."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from spark.jobs.periods import Kind


class KindChoice(models.TextChoices):
    """The kinds of reports, as a form offers them."""

    HOURLY = Kind.HOURLY.value, "hourly"
    DAILY = Kind.DAILY.value, "daily"
    WEEKLY = Kind.WEEKLY.value, "weekly"
    MONTHLY = Kind.MONTHLY.value, "monthly"
    YEARLY = Kind.YEARLY.value, "yearly"


class ReportRun(models.Model):
    """One run of Spark, asked for by the schedule, an operator or a command."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    class Trigger(models.TextChoices):
        SCHEDULE = "schedule"
        OPERATOR = "operator"
        COMMAND = "command"

    OVER = (State.DONE, State.FAILED, State.CANCELLED)

    kind = models.CharField(max_length=8, choices=KindChoice.choices)
    start = models.DateTimeField(help_text="Start of the first period (UTC).")
    end = models.DateTimeField(help_text="End of the last period (UTC).")
    again = models.BooleanField(
        "from the rows again", default=False, help_text="Roll up hours that are up to date too."
    )
    state = models.CharField(max_length=9, choices=State.choices, default=State.QUEUED)
    trigger = models.CharField(max_length=8, choices=Trigger.choices, default=Trigger.OPERATOR)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    queued_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="Last sign of life.")
    attempts = models.PositiveSmallIntegerField(default=0)
    cancel_asked = models.BooleanField(default=False)
    progress = models.FloatField(default=0.0)
    step = models.CharField(max_length=100, blank=True)
    error = models.TextField(blank=True)
    warning = models.TextField(
        blank=True, help_text="Raw files that could not be read; their rows are missing."
    )
    rows_read = models.PositiveBigIntegerField(default=0)
    hours_rolled = models.PositiveIntegerField(default=0)
    peak_memory_mb = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ("-queued_at",)
        constraints = (
            # One at a time: two could roll up the same hour, and share this machine's memory.
            models.UniqueConstraint(
                fields=["state"], condition=Q(state="running"), name="report_run_alone"
            ),
            models.UniqueConstraint(
                fields=["kind", "start", "end"],
                condition=Q(state="queued"),
                name="report_run_queued_once",
            ),
        )
        indexes = (
            models.Index(fields=["state", "queued_at"], name="report_run_state"),
            models.Index(fields=["kind", "state", "-end"], name="report_run_fresh"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.start:%Y-%m-%d %H:%M}"

    @property
    def duration(self) -> timedelta | None:
        """Time from its start to its end, or to its last sign of life."""
        until = self.ended_at or self.seen_at
        return until - self.started_at if self.started_at and until else None


class Report(models.Model):
    """The figures of one period; made again, they take the place of the old ones."""

    kind = models.CharField(max_length=8, choices=KindChoice.choices)
    start = models.DateTimeField()
    end = models.DateTimeField()
    made_at = models.DateTimeField(default=timezone.now)
    run = models.ForeignKey(ReportRun, null=True, on_delete=models.SET_NULL, related_name="reports")
    rows = models.PositiveBigIntegerField(default=0, help_text="Rows of the record it counts.")
    hours_recorded = models.PositiveIntegerField(default=0)
    hours_of_period = models.PositiveIntegerField(default=0)
    hours_incomplete = models.PositiveIntegerField(default=0, db_default=0)
    figures = models.JSONField(default=dict)

    class Meta:
        ordering = ("-start", "kind")
        constraints = (models.UniqueConstraint(fields=["kind", "start"], name="report_once"),)
        indexes = (models.Index(fields=["kind", "-start"], name="report_kind"),)

    def __str__(self) -> str:
        shape = "%Y-%m-%d %H:%M" if self.kind == Kind.HOURLY else "%Y-%m-%d"
        return f"{self.kind} {self.start:{shape}}"

    @property
    def is_over(self) -> bool:
        """Whether the period had ended when the report was made."""
        return self.made_at >= self.end
