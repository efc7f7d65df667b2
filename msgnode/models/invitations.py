"""Where users are invited from elsewhere, what waits there, and what they have sent themselves."""

from __future__ import annotations

from django.db import models

from .lengths import ADDRESS_LENGTH


class PushEndpoint(models.Model):
    """Where callers leave invitations for one runtime of a user of this domain's provider."""

    id = models.CharField(primary_key=True, max_length=64, editable=False)
    subject = models.CharField(max_length=64, help_text="`sub` of the user at the provider.")
    user_url = models.CharField(max_length=ADDRESS_LENGTH)
    runtime_url = models.CharField(max_length=ADDRESS_LENGTH)
    address = models.CharField(
        max_length=ADDRESS_LENGTH, help_text="Where the runtime is told of invitations."
    )
    hyperty = models.CharField(
        max_length=ADDRESS_LENGTH, blank=True, help_text="What callers may invite directly."
    )
    renewed_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ("runtime_url",)
        constraints = (
            models.UniqueConstraint(fields=("subject", "runtime_url"), name="endpoint_once"),
        )

    def __str__(self) -> str:
        return f"{self.user_url} at {self.runtime_url}"


class Invitation(models.Model):
    """An invitation that was left. Its row stays until it expires, so that it comes once."""

    endpoint = models.ForeignKey(PushEndpoint, models.CASCADE, related_name="invitations")
    name = models.CharField(max_length=128, help_text="The caller's name for it.")
    message = models.TextField(blank=True, help_text="Empty once it was delivered.")
    taken_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then a worker is handing it over."
    )
    withdrawn = models.BooleanField(
        default=False, db_default=False, help_text="Its caller has withdrawn it."
    )
    keep_until = models.DateTimeField(help_text="Not delivered after that.")
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ("pk",)
        constraints = (
            models.UniqueConstraint(fields=("endpoint", "name"), name="invitation_once"),
        )

    def __str__(self) -> str:
        return self.name


class SentInvitation(models.Model):
    """An invitation of a user of this domain: whoever accepts it may speak to what it names."""

    digest = models.CharField(
        primary_key=True, max_length=64, editable=False, help_text="Of its name, a secret."
    )
    subject = models.CharField(
        max_length=64, db_index=True, help_text="`sub` of the user who invites."
    )
    hyperty = models.CharField(max_length=ADDRESS_LENGTH, help_text="Where it is accepted.")
    resource = models.CharField(max_length=ADDRESS_LENGTH, blank=True)
    stay = models.PositiveIntegerField(help_text="Seconds that who accepted it may stay at least.")
    runtime_url = models.CharField(
        max_length=ADDRESS_LENGTH, blank=True, help_text="The runtime that accepted it."
    )
    session = models.CharField(max_length=64, blank=True, db_index=True)
    location_digest = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Of the URL at which its receiver's node is told that it was withdrawn.",
    )
    expires_at = models.DateTimeField(help_text="Not accepted after that.")
    ends_at = models.DateTimeField(db_index=True, help_text="Good for nothing after that.")

    class Meta:
        ordering = ("ends_at",)

    def __str__(self) -> str:
        return self.resource or self.hyperty
