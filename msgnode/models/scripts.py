"""Scripts of others that run in sandboxes: what is decided about them; connectors that are scripts.

Peers (federation) have protostubs, which are looked for; connectors are given by an operator.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone

KEY_LENGTH = 200
"""Characters of the key of what a connector keeps."""


class RunsScript(models.Model):
    """What a script of others runs for: what an operator has decided, and how it is.

    `found_digest` is of the newest script, `approved_digest` of the one that may run.
    """

    class Decision(models.TextChoices):
        """Whether its script may run, and messages pass."""

        PENDING = "pending", "waits for approval"
        APPROVED = "approved", "approved"
        PAUSED = "paused", "paused"
        BLOCKED = "blocked", "blocked"

    decision = models.CharField(max_length=16, choices=Decision.choices, default=Decision.PENDING)
    approved_digest = models.CharField(max_length=64, blank=True, editable=False)
    approved_by = models.CharField(max_length=150, blank=True, editable=False)
    approved_at = models.DateTimeField(null=True, blank=True, editable=False)
    found_digest = models.CharField(max_length=64, blank=True, editable=False)
    state = models.CharField(max_length=16, blank=True, editable=False)
    state_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=300, blank=True, editable=False)
    figures = models.JSONField(null=True, blank=True, editable=False)
    figures_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        abstract = True


class Connector(RunsScript):
    """A port of this node behind which a script stands, instead of what the settings name."""

    class Port(models.TextChoices):
        """Which one."""

        DOMAIN_REGISTRY = "domain-registry", "domain registry"
        GLOBAL_REGISTRY = "global-registry", "global registry"
        IDENTITY = "identity", "identity provider"
        QOS = "qos", "quality of service"
        LEGACY = "legacy", "access network"

    port = models.CharField(max_length=16, choices=Port.choices, unique=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("port",)

    def __str__(self) -> str:
        return self.port


class ConnectorScript(models.Model):
    """A version of a connector's script with all that is approved with it; it never changes."""

    connector = models.ForeignKey(Connector, on_delete=models.CASCADE, related_name="scripts")
    digest = models.CharField(
        max_length=64, help_text="SHA-256 of the script, configuration, origins and secrets."
    )
    source = models.TextField()
    configuration = models.JSONField(default=dict)
    origins = models.JSONField(
        default=list,
        help_text="Where it may send HTTP requests and open WebSockets: https://api.example.org.",
    )
    secrets = models.JSONField(
        default=dict, help_text="The origin for which each secret is, by its name; * if revealed."
    )
    added_by = models.CharField(max_length=150, blank=True)
    found_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-found_at",)
        constraints = (
            models.UniqueConstraint(fields=["connector", "digest"], name="connector_script_once"),
        )

    def __str__(self) -> str:
        return f"{self.connector_id} {self.digest[:12]}"


class ConnectorSecret(models.Model):
    """The value of a secret of a connector, which the node puts into its requests."""

    connector = models.ForeignKey(Connector, on_delete=models.CASCADE, related_name="values")
    name = models.CharField(max_length=64)
    sealed = models.TextField("value, encrypted", editable=False)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["connector", "name"], name="connector_secret_once"),
        )

    def __str__(self) -> str:
        return self.name


class KeptEntry(models.Model):
    """What a connector keeps at the node, for all workers."""

    connector = models.ForeignKey(Connector, on_delete=models.CASCADE, related_name="kept")
    key = models.CharField(max_length=KEY_LENGTH)
    value = models.TextField()
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        ordering = ("key",)
        constraints = (
            models.UniqueConstraint(fields=["connector", "key"], name="connector_kept_once"),
        )

    def __str__(self) -> str:
        return self.key
