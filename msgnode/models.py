"""The node's durable state: rows only, the rules live in the rooms.

The database is the truth and every worker's routing table a copy of it in memory. Rows of sessions,
allocations and subscriptions are written by the workers in group commits before they are
acknowledged; an operator's change in the console reaches the workers through ControlMessage.
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

ADDRESS_LENGTH = 600  # = core.addresses.MAX_HELD: an index entry of PostgreSQL takes 2,704 bytes


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


class ControlMessage(models.Model):
    """The control outbox: a change that every worker applies, idempotently, within a second."""

    kind = models.CharField(max_length=32)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


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
        help_text="Is sent a POST with JSON. Its host must be in ALARM_WEBHOOK_HOSTS.",
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


class WorkerClaim(models.Model):
    """What one worker does for all: it is that worker's while its epoch is registered."""

    name = models.CharField(max_length=32, primary_key=True)
    epoch = models.CharField(max_length=36, blank=True)

    def __str__(self) -> str:
        return self.name


class MqttTopic(models.Model):
    """A topic of the MQTT broker whose messages are updates of data objects."""

    topic = models.CharField(
        "topic filter",
        max_length=255,
        unique=True,
        help_text="Such as sensors/+/temperature.",
    )
    object = models.CharField(
        "data object",
        max_length=500,
        help_text="Its address, such as context://example.org/sensor-{1}, where {1} stands for "
        "what the first wildcard has met.",
    )
    attribute = models.CharField(max_length=255, help_text="The attribute that a message updates.")
    path = models.CharField(
        "path to the value",
        max_length=255,
        blank=True,
        help_text="Where the value is in a JSON payload, such as data.celsius. Empty: all of it.",
    )
    schema = models.CharField(
        max_length=500, blank=True, help_text="URL of the schema that observers are told."
    )
    command_topic = models.CharField(
        max_length=255,
        blank=True,
        help_text="Where the value of an update to the object is published, such as "
        "sensors/{1}/set. Empty: it takes no commands.",
    )
    is_enabled = models.BooleanField("enabled", default=True)

    class Meta:
        ordering = ("topic",)
        verbose_name = "sensor topic"

    def __str__(self) -> str:
        return self.topic


class Ban(models.Model):
    """Ends the sessions of a runtime URL, a source address or a subject, and keeps them out."""

    class Kind(models.TextChoices):
        RUNTIME = "runtime", "runtime URL"
        SOURCE = "source", "source address"
        SUBJECT = "subject"

    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.RUNTIME)
    value = models.CharField(
        max_length=ADDRESS_LENGTH,
        help_text="A runtime URL, an address or network (192.0.2.0/24), or a subject or user name.",
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


class Issuer(models.Model):
    """An issuer whose identities the node believes. Lists are written one entry a line."""

    class Kind(models.TextChoices):
        EXTERNAL = "external", "somewhere else"
        EMBEDDED = "embedded", "the node's own provider"

    name = models.CharField(max_length=64, unique=True, help_text="For operators.")
    kind = models.CharField(
        max_length=8, choices=Kind.choices, default=Kind.EXTERNAL, editable=False
    )
    url = models.CharField(
        "issuer",
        max_length=255,
        unique=True,
        help_text="Exactly as in the tokens' iss, e.g. https://accounts.google.com",
    )
    aliases = models.TextField(
        blank=True, help_text="Other spellings of it in tokens, e.g. accounts.google.com"
    )
    domains = models.TextField(
        blank=True,
        help_text="idp.domain of its identities, e.g. google.com. Empty: the issuer's host.",
    )
    audiences = models.TextField(
        blank=True, help_text="Client ids whose tokens are taken (aud). At least one is needed."
    )
    algorithms = models.TextField(default="RS256\nES256", help_text="Signatures it uses.")
    jwks_url = models.CharField(
        "URL of its keys",
        max_length=500,
        blank=True,
        help_text="Empty: from its discovery document.",
    )
    jwks = models.TextField(
        "its keys", blank=True, help_text="A JWK set, if the keys are not to be fetched at all."
    )
    introspection_url = models.CharField(
        max_length=500, blank=True, help_text="Where opaque tokens are asked about (RFC 7662)."
    )
    client_id = models.CharField(max_length=255, blank=True, help_text="For introspection.")
    client_secret = models.TextField(blank=True, editable=False)  # sealed, see identity.encryption
    is_enabled = models.BooleanField("enabled", default=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Revocation(models.Model):
    """A subject's identities up to a moment, or one token (its SHA-256), are good no longer."""

    issuer = models.CharField(max_length=255, blank=True)
    subject = models.CharField(max_length=255, blank=True)
    token = models.CharField(max_length=64, blank=True, editable=False)
    revoked_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField(db_index=True)
    revoked_by = models.CharField(max_length=150, blank=True, editable=False)

    class Meta:
        ordering = ("-revoked_at",)
        constraints = (
            models.UniqueConstraint(fields=["issuer", "subject", "token"], name="revocation_once"),
        )

    def __str__(self) -> str:
        return self.subject or f"token {self.token[:12]}…"


class IdentityBinding(models.Model):
    """What a token (by its digest) or a runtime's subject is bound to while that runtime lives.

    The first runtime that said it, or the key it had: one row each, so all workers agree who was
    first.
    """

    name = models.CharField(max_length=64, primary_key=True, editable=False)
    value = models.CharField(max_length=ADDRESS_LENGTH)
    runtime_url = models.CharField(max_length=ADDRESS_LENGTH, db_index=True)
    ends_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.name[:12]}… of {self.runtime_url}"


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


class ProviderKey(models.Model):
    """A signing key of the embedded OpenID provider, the private part sealed."""

    kid = models.CharField(max_length=64, unique=True)
    public = models.JSONField(help_text="The public key as a JWK.")
    sealed = models.TextField(editable=False)
    signs_from = models.DateTimeField()
    made_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("signs_from", "id")

    def __str__(self) -> str:
        return self.kid


class ApiKey(models.Model):
    """A service account: a program that uses the REST interfaces. Its key is shown once."""

    name = models.CharField(max_length=100, unique=True, help_text="Which program uses it.")
    prefix = models.CharField(max_length=12, unique=True, editable=False)
    secret_hash = models.CharField(max_length=64, editable=False)
    previous_hash = models.CharField(max_length=64, blank=True, editable=False)
    previous_until = models.DateTimeField(null=True, blank=True, editable=False)
    scopes = models.JSONField(default=list)
    expires_at = models.DateTimeField(help_text="It is refused from then on.")
    is_active = models.BooleanField("active", default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.CharField(max_length=150, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_from = models.CharField(max_length=64, blank=True, editable=False)

    class Meta:
        ordering = ("name",)
        verbose_name = "API key"

    def __str__(self) -> str:
        return self.name
