"""Sessions, what they hold, and who is kept out."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from .lengths import ADDRESS_LENGTH


class Session(models.Model):
    """A runtime's session: outlives its sockets, ends by `close`, by the operator or by time."""

    class State(models.TextChoices):
        OPEN = "open"
        DETACHED = "detached"
        CLOSED = "closed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    runtime_url = models.CharField(max_length=ADDRESS_LENGTH)
    token_hash = models.CharField(max_length=64, editable=False)
    state = models.CharField(max_length=8, choices=State.choices, default=State.OPEN)
    handshake = models.CharField(max_length=16, help_text="How it connects: ws or stub-connect.")
    remote_address = models.CharField(max_length=64, blank=True)
    visits_from = models.CharField(
        "visitor from", max_length=255, default="", db_default="", blank=True, editable=False
    )
    issuer = models.CharField(max_length=255, blank=True)
    subject = models.CharField(max_length=255, blank=True)
    identity = models.JSONField(default=dict, blank=True, editable=False)
    worker = models.CharField(max_length=64, blank=True, editable=False)
    epoch = models.CharField(max_length=36, blank=True, editable=False)
    opened_at = models.DateTimeField(default=timezone.now)
    resumptions = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    detached_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    close_reason = models.CharField(max_length=100, blank=True)

    class Meta:
        ordering = ("-opened_at",)
        indexes = (
            models.Index(fields=["runtime_url"], name="session_runtime"),
            models.Index(fields=["state", "-opened_at"], name="session_state"),
            models.Index(fields=["-opened_at"], name="session_opened"),
            models.Index(fields=["closed_at"], name="session_closed", condition=Q(state="closed")),
            models.Index(
                fields=["visits_from", "-opened_at"],
                name="session_visitor",
                condition=~Q(visits_from=""),
            ),
        )

    def __str__(self) -> str:
        return self.runtime_url


class AddressPool(models.Model):
    """Addresses of one scheme that are lent to sessions instead of being made (e.g. SIP URIs)."""

    scheme = models.CharField(max_length=32, unique=True)
    note = models.CharField(max_length=255, blank=True)

    class Meta:
        ordering = ("scheme",)

    def __str__(self) -> str:
        return self.scheme


class PoolAddress(models.Model):
    """One address of a pool. It is lent while an Allocation of the same address exists."""

    pool = models.ForeignKey(AddressPool, on_delete=models.CASCADE, related_name="addresses")
    address = models.CharField(max_length=ADDRESS_LENGTH, unique=True)
    for_visitors = models.BooleanField(
        default=False, db_default=False, help_text="Lent to runtimes of other domains alone."
    )

    class Meta:
        ordering = ("address",)
        verbose_name_plural = "pool addresses"

    def __str__(self) -> str:
        return self.address


class Allocation(models.Model):
    """An address held by a session. Unique over the domain: the row is the claim."""

    class Kind(models.TextChoices):
        MADE = "made", "made by the node"
        CLAIMED = "claimed", "made by the runtime"
        LENT = "lent", "lent from a pool"

    address = models.CharField(max_length=ADDRESS_LENGTH, unique=True)
    scheme = models.CharField(max_length=32)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="allocations")
    allocation_key = models.CharField(max_length=255, blank=True)
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.MADE)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=["scheme", "-id"], name="allocation_scheme"),)

    def __str__(self) -> str:
        return self.address


class Subscription(models.Model):
    """A session's interest in an address."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="subscriptions")
    address = models.CharField(max_length=ADDRESS_LENGTH)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=["session", "address"], name="subscription_once"),
        )
        indexes = (models.Index(fields=["address"], name="subscription_address"),)

    def __str__(self) -> str:
        return self.address


class AddressOwner(models.Model):
    """The verified subject that held an address last: it stays theirs while nobody holds it."""

    address = models.CharField(max_length=ADDRESS_LENGTH, unique=True)
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    seen_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ("-seen_at",)

    def __str__(self) -> str:
        return self.address


class Ban(models.Model):
    """Ends the sessions of a runtime URL, a source, a subject or another domain's visitors."""

    class Kind(models.TextChoices):
        RUNTIME = "runtime", "runtime URL"
        SOURCE = "source", "source address"
        SUBJECT = "subject"
        DOMAIN = "domain", "domain of visitors"

    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.RUNTIME)
    value = models.CharField(
        max_length=ADDRESS_LENGTH,
        help_text="A runtime URL, an address or network (192.0.2.0/24), a subject or user name, or "
        "another domain whose runtimes come here.",
    )
    reason = models.CharField(max_length=255, help_text="For operators; the runtime is not told.")
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: until it is lifted.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.CharField(max_length=150, blank=True, editable=False)

    class Meta:
        ordering = ("-created_at",)
        constraints = (models.UniqueConstraint(fields=["kind", "value"], name="ban_once"),)

    def __str__(self) -> str:
        return self.value
