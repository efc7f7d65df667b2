"""The rows of the QoS broker: TURN servers, traffic classes, customers, reservations, usage.

Bandwidths are in bits per second, volumes in bytes. No row has a credential: those are computed
from an encrypted secret when they are needed.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

ADDRESS_LENGTH = 600
MOST = 2**63 - 1
MOST_BITS = 10**12

_BITS = (MinValueValidator(1), MaxValueValidator(MOST_BITS))


class TrafficClass(models.Model):
    """A class of traffic and the bandwidth of one flow of it."""

    name = models.CharField(
        max_length=16, unique=True, help_text="As applications say it in mediaType: audio, video."
    )
    bitrate = models.PositiveBigIntegerField(
        "bandwidth of a flow", validators=_BITS, help_text="In bits per second, one direction."
    )

    class Meta:
        ordering = ("bitrate",)
        verbose_name_plural = "traffic classes"

    def __str__(self) -> str:
        return self.name


class TurnServer(models.Model):
    """A coturn process: where clients find it, what it carries, how the node commands it."""

    class State(models.TextChoices):
        UNKNOWN = "unknown"
        UP = "up"
        DOWN = "down"

    name = models.CharField(max_length=64, unique=True, help_text="For operators.")
    urls = models.TextField(
        "URLs",
        help_text="What clients are given, one a line: turn:turn.example.org:3478?transport=udp",
    )
    traffic_class = models.ForeignKey(
        TrafficClass,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        help_text="Empty: it carries all classes.",
    )
    capacity = models.PositiveBigIntegerField(
        validators=_BITS, help_text="Bandwidth that may be booked on it, in bits per second."
    )
    command_line = models.CharField(
        "command line interface",
        max_length=255,
        blank=True,
        help_text="cli-ip:cli-port of the process, as the node reaches it. Without one the node "
        "cannot end what runs there.",
    )
    sealed_password = models.TextField(blank=True, editable=False)
    is_enabled = models.BooleanField("enabled", default=True)
    state = models.CharField(
        max_length=8, choices=State.choices, default=State.UNKNOWN, editable=False
    )
    fault = models.CharField(max_length=255, blank=True, editable=False)
    polled_at = models.DateTimeField(null=True, blank=True, editable=False)
    sessions = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        ordering = ("name",)
        verbose_name = "TURN server"

    def __str__(self) -> str:
        return self.name

    def carries(self, traffic_class: str) -> bool:
        """Whether it is for flows of this class."""
        return self.traffic_class is None or self.traffic_class.name == traffic_class


class RoundTrip(models.Model):
    """The measured distance of a TURN server from an access network."""

    network = models.CharField(
        "access network", max_length=64, help_text="As applications say it in `near`."
    )
    server = models.ForeignKey(TurnServer, on_delete=models.CASCADE, verbose_name="TURN server")
    milliseconds = models.FloatField(
        "round trip (ms)", validators=(MinValueValidator(0), MaxValueValidator(60_000))
    )

    class Meta:
        ordering = ("network", "server")
        verbose_name = "round trip"
        constraints = (
            models.UniqueConstraint(fields=["network", "server"], name="round_trip_once"),
        )

    def __str__(self) -> str:
        return f"{self.network} to {self.server}"


class TurnSecret(models.Model):
    """A secret shared with the TURN servers, sealed. The newest signs, the others still count."""

    sealed = models.TextField(editable=False)
    made_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-id",)
        verbose_name = "TURN secret"

    def __str__(self) -> str:
        return f"secret of {self.made_at:%Y-%m-%d %H:%M}"


class Customer(models.Model):
    """A communication service provider (CSP) with the volume it may use."""

    name = models.CharField(max_length=128, unique=True, help_text="The cspId of its applications.")
    quota = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        validators=(MaxValueValidator(MOST),),
        help_text="Bytes it may use, both directions. Empty: no limit.",
    )
    used = models.PositiveBigIntegerField(default=0, editable=False)
    is_enabled = models.BooleanField("enabled", default=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Usage(models.Model):
    """What a customer has used on a day (UTC)."""

    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="days")
    day = models.DateField()
    received = models.PositiveBigIntegerField(default=0)
    sent = models.PositiveBigIntegerField(default=0)
    is_incomplete = models.BooleanField("incomplete", default=False)

    class Meta:
        ordering = ("-day",)
        verbose_name_plural = "usage"
        constraints = (
            models.UniqueConstraint(fields=["customer", "day"], name="usage_once_a_day"),
        )

    def __str__(self) -> str:
        return f"{self.customer} on {self.day}"


class Reservation(models.Model):
    """Bandwidth booked for an application's session, until it is released, expires or is lost."""

    class State(models.TextChoices):
        HELD = "held", "held, not used yet"
        ACTIVE = "active"
        ENDED = "ended"

    class Reason(models.TextChoices):
        """Why it has ended."""

        RELEASED = "released"
        EXPIRED = "expired"
        UNUSED = "unused", "not used in time"
        EXCEEDED = "exceeded", "the customer's quota is used up"
        LOST = "lost", "its TURN server is down"
        CLOSED = "closed", "its session has ended"
        REFUSED = "refused", "refused by the broker"
        OPERATOR = "operator", "ended by an operator"

    id = models.CharField(max_length=16, primary_key=True, editable=False)
    state = models.CharField(max_length=8, choices=State.choices, default=State.HELD)
    reason = models.CharField(max_length=10, choices=Reason.choices, blank=True)
    customer = models.ForeignKey(Customer, null=True, blank=True, on_delete=models.PROTECT)
    server = models.ForeignKey(TurnServer, null=True, blank=True, on_delete=models.PROTECT)
    traffic_class = models.CharField(max_length=16)
    bitrate = models.PositiveBigIntegerField()
    session_id = models.UUIDField()
    runtime_url = models.CharField(max_length=ADDRESS_LENGTH)
    issuer = models.CharField(max_length=255, blank=True)
    subject = models.CharField(max_length=255, blank=True)
    client_name = models.CharField(max_length=128, blank=True)
    about = models.CharField(
        "session of the application", max_length=ADDRESS_LENGTH, blank=True
    )  # `sessionId`
    foreign_id = models.CharField(max_length=128, blank=True, editable=False)
    users = models.JSONField(default=list, editable=False)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    cut_at = models.DateTimeField(null=True, blank=True, editable=False)
    told_at = models.DateTimeField(null=True, blank=True, editable=False)
    received = models.PositiveBigIntegerField(default=0)
    sent = models.PositiveBigIntegerField(default=0)
    is_incomplete = models.BooleanField("incomplete", default=False)

    class Meta:
        ordering = ("-created_at",)
        indexes = (
            models.Index(fields=["-created_at"], name="reservation_created"),
            models.Index(
                fields=["expires_at"], name="reservation_open", condition=~Q(state="ended")
            ),
            models.Index(fields=["session_id"], name="reservation_session"),
            models.Index(fields=["subject", "issuer"], name="reservation_subject"),
            models.Index(
                fields=["ended_at"],
                name="reservation_to_cut",
                condition=Q(state="ended", cut_at=None),
            ),
            models.Index(
                fields=["ended_at"],
                name="reservation_to_tell",
                condition=Q(state="ended", told_at=None),
            ),
        )

    def __str__(self) -> str:
        return self.id


class RelayAllocation(models.Model):
    """One allocation of a TURN server for a reservation, with what its peers sent and received."""

    reservation = models.ForeignKey(
        Reservation, on_delete=models.CASCADE, related_name="allocations"
    )
    key = models.CharField(max_length=32, unique=True, editable=False)
    user = models.CharField(max_length=64)
    number = models.CharField(max_length=32)
    received = models.PositiveBigIntegerField(default=0)
    sent = models.PositiveBigIntegerField(default=0)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    is_incomplete = models.BooleanField("incomplete", default=False)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=["user", "number"], name="allocation_of_user"),)

    def __str__(self) -> str:
        return f"{self.user} {self.number}"
