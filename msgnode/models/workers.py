"""The workers of the node, and messages to them from other processes."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class Worker(models.Model):
    """A worker and its lease.

    It is registered at its start, and removed when its epoch is retired: at its end, or by whoever
    finds it dead. Sessions carry the epoch of their worker; those of an epoch that is not here may
    be taken over, and what a worker of that epoch writes is refused.
    """

    epoch = models.CharField(max_length=36, primary_key=True)
    name = models.CharField(max_length=64)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    state = models.CharField(max_length=16)
    version = models.CharField(max_length=32, default="", db_default="", blank=True)
    started_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    lease_until = models.DateTimeField(
        default=timezone.now, help_text="By the database's clock, which alone counts."
    )
    sessions = models.PositiveIntegerField(default=0)
    links = models.JSONField(default=list, help_text="One object for each link to another worker.")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class WorkerClaim(models.Model):
    """What one worker does for all: it is that worker's while its epoch is registered."""

    name = models.CharField(max_length=32, primary_key=True)
    epoch = models.CharField(max_length=36, blank=True)

    def __str__(self) -> str:
        return self.name


class ControlMessage(models.Model):
    """The control outbox: a change that every worker applies, idempotently, within a second."""

    kind = models.CharField(max_length=32)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"
