"""What operators see and are told: alarms, figures, parts of the node, what operators changed."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from .lengths import ADDRESS_LENGTH


class Alarm(models.Model):
    """Something an operator should see. Raised again while it stands, it counts up."""

    kind = models.CharField(max_length=64)
    subject = models.CharField(max_length=255, blank=True)
    text = models.CharField(max_length=500)
    count = models.PositiveIntegerField(default=1)
    raised_at = models.DateTimeField(default=timezone.now)
    last_at = models.DateTimeField(default=timezone.now)
    cleared_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-last_at",)
        constraints = (
            models.UniqueConstraint(
                fields=["kind", "subject"], condition=Q(cleared_at=None), name="alarm_standing_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class AlarmRule(models.Model):
    """An alarm that an operator defines: a figure of the node beyond a limit for some time."""

    name = models.CharField(max_length=100, unique=True)
    figure = models.CharField(
        max_length=16, help_text="What is looked at, of all workers together."
    )
    is_below = models.BooleanField(default=False)
    limit = models.FloatField()
    seconds = models.PositiveIntegerField(
        "for seconds", default=30, help_text="It clears when it has been over for as long."
    )
    note = models.CharField(
        "what to look at", max_length=255, blank=True, help_text="For who is told."
    )
    mail_to = models.TextField(
        "mail to", blank=True, help_text="Addresses, one a line; EMAIL_URL says how mails go."
    )
    webhook = models.CharField(
        max_length=500,
        blank=True,
        help_text="Is sent a POST with JSON. Its host must be one of the Webhook hosts.",
    )
    silent_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then the alarm stands here and nobody is told."
    )
    is_enabled = models.BooleanField("enabled", default=True)
    created_by = models.CharField(max_length=150, blank=True, editable=False)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class WebhookHost(models.Model):
    """A host that webhooks of alarm rules may lead to, beside those of ALARM_WEBHOOK_HOSTS."""

    host = models.CharField(max_length=255, unique=True, help_text="e.g. hooks.example.org")
    note = models.CharField(max_length=255, blank=True, help_text="Whose it is, and for what.")

    class Meta:
        ordering = ("host",)

    def __str__(self) -> str:
        return self.host


class AlarmNotice(models.Model):
    """Somebody is to be told that an alarm rule's alarm was raised or is over: an outbox."""

    rule = models.ForeignKey(AlarmRule, on_delete=models.CASCADE, related_name="notices")
    target = models.CharField(max_length=500, help_text="A mail address, or the URL of a webhook.")
    is_raised = models.BooleanField()
    text = models.CharField(max_length=500)
    at = models.DateTimeField(default=timezone.now)
    due_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=255, blank=True)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=["due_at"], name="notice_due", condition=Q(sent_at=None)),)

    def __str__(self) -> str:
        return self.text


class ComponentStatus(models.Model):
    """What a worker last said of one of its components, connectors or stubs."""

    worker = models.CharField(max_length=64)
    name = models.CharField(max_length=64)
    kind = models.CharField(max_length=16, help_text="component, connector, protostub or stub")
    address = models.CharField(max_length=ADDRESS_LENGTH, blank=True)
    state = models.CharField(max_length=32)
    since = models.DateTimeField()
    answered = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ("kind", "name", "worker")
        verbose_name_plural = "components and stubs"
        constraints = (
            models.UniqueConstraint(fields=["worker", "name"], name="component_once_a_worker"),
        )

    def __str__(self) -> str:
        return self.name


class NodeSample(models.Model):
    """What a worker did in a minute or an hour, for the charts of the console."""

    worker = models.CharField(max_length=64)
    span = models.PositiveSmallIntegerField(help_text="Seconds: 60 or 3600.")
    at = models.DateTimeField(help_text="The end of the span.")
    figures = models.JSONField(help_text="As msgnode.monitoring.samples.Sample.")

    class Meta:
        ordering = ("at",)
        constraints = (
            models.UniqueConstraint(fields=["span", "at", "worker"], name="sample_once"),
        )

    def __str__(self) -> str:
        return f"{self.worker} {self.at:%Y-%m-%d %H:%M}"


class AuditEntry(models.Model):
    """What an operator changed: who, what, before, after. Written with the change, never edited."""

    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=64, help_text="e.g. session.end")
    object = models.CharField(max_length=ADDRESS_LENGTH)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.action} {self.object}"
