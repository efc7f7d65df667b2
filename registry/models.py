"""The rows of the registry: entries, their owners and history, global records.

The rules are in entries.py. Two columns exist for their index: `expires_at` is set while an entry
is available, and `ended_at` while it is not, so that due entries are found without reading the
others. Every search of docs/reference/registry.md has an index: by URL, user, e-mail, GUID,
runtime, name, reporter. Keys have at most 600 characters: an index entry of PostgreSQL may have
2,704 bytes.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from .records import MAX_GUID, MAX_KEY, MAX_TEXT, MAX_WORD


class User(models.Model):
    """Somebody with registered hyperties, named by the user id of the registrations."""

    user_id = models.CharField(max_length=MAX_KEY)
    idp_identifier = models.CharField(
        max_length=MAX_KEY, help_text="Last part of the user id, usually an e-mail address."
    )
    first_seen = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=["user_id"], name="registry_user_once"),)
        indexes = (models.Index(fields=["idp_identifier"], name="registry_user_email"),)

    def __str__(self) -> str:
        return self.user_id


class Runtime(models.Model):
    """A runtime that entries named as theirs."""

    url = models.CharField(max_length=MAX_KEY)
    first_seen = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=["url"], name="registry_runtime_once"),)

    def __str__(self) -> str:
        return self.url


class RegistryEntry(models.Model):
    """What hyperties and data objects have in common."""

    url = models.CharField("URL", max_length=MAX_KEY)
    status = models.CharField(max_length=MAX_WORD)
    expires = models.PositiveIntegerField(help_text="Seconds it lives without a sign of life.")
    resources = models.JSONField(default=list)
    data_schemes = models.JSONField(default=list)
    owner = models.CharField(
        max_length=80, blank=True, default="", editable=False,
        help_text="Mark of the session or subject that registered it.",
    )  # fmt: skip
    p2p_requester = models.CharField(max_length=MAX_TEXT, null=True, blank=True)  # noqa: DJ001
    p2p_handler = models.CharField(max_length=MAX_TEXT, null=True, blank=True)  # noqa: DJ001
    started_at = models.DateTimeField()
    modified_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, editable=False)
    ended_at = models.DateTimeField(null=True, editable=False)
    news_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        abstract = True
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.url


class Hyperty(RegistryEntry):
    """A hyperty instance."""

    user = models.ForeignKey(
        User, models.CASCADE, to_field="user_id", related_name="hyperties", db_index=False
    )
    runtime = models.ForeignKey(
        Runtime, models.CASCADE, to_field="url", related_name="hyperties", null=True, db_index=False
    )
    descriptor = models.CharField(max_length=MAX_TEXT)
    guid = models.CharField("GUID", max_length=MAX_GUID, null=True, blank=True)  # noqa: DJ001

    class Meta(RegistryEntry.Meta):
        verbose_name_plural = "hyperties"
        constraints = (models.UniqueConstraint(fields=["url"], name="hyperty_once"),)
        indexes = (
            models.Index(fields=["user"], name="hyperty_user"),
            models.Index(fields=["runtime"], name="hyperty_runtime"),
            models.Index(fields=["guid"], name="hyperty_guid"),
            models.Index(fields=["expires_at"], name="hyperty_expires"),
            models.Index(fields=["status", "ended_at"], name="hyperty_ended"),
            models.Index(fields=["news_at"], name="hyperty_news"),
        )


class DataObject(RegistryEntry):
    """A data object instance."""

    runtime = models.ForeignKey(
        Runtime,
        models.CASCADE,
        to_field="url",
        related_name="data_objects",
        null=True,
        db_index=False,
    )
    name = models.CharField(max_length=MAX_KEY)
    schema = models.CharField(max_length=MAX_TEXT)
    reporter = models.CharField(max_length=MAX_KEY)

    class Meta(RegistryEntry.Meta):
        constraints = (models.UniqueConstraint(fields=["url"], name="object_once"),)
        indexes = (
            models.Index(fields=["name"], name="object_name"),
            models.Index(fields=["reporter"], name="object_reporter"),
            models.Index(fields=["runtime"], name="object_runtime"),
            models.Index(fields=["expires_at"], name="object_expires"),
            models.Index(fields=["status", "ended_at"], name="object_ended"),
            models.Index(fields=["news_at"], name="object_news"),
        )


class StatusChange(models.Model):
    """The history of an entry: one row for each change of its status."""

    kind = models.CharField(max_length=10)
    url = models.CharField("URL", max_length=MAX_KEY)
    before = models.CharField(max_length=MAX_WORD, blank=True)
    after = models.CharField(max_length=MAX_WORD)
    cause = models.CharField(max_length=16)
    at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=["url", "-id"], name="change_url"),
            models.Index(fields=["at"], name="change_at"),
        )

    def __str__(self) -> str:
        return f"{self.url}: {self.before or 'new'} → {self.after}"


class GlobalRecord(models.Model):
    """A signed record of the global registry. `jwt` is kept byte for byte as it came."""

    guid = models.CharField("GUID", max_length=43)
    jwt = models.TextField("JWT")
    public_key = models.CharField(max_length=255)
    user_ids = models.JSONField(default=list, help_text="User ids as the record lists them.")
    last_update = models.DateTimeField()
    timeout = models.DateTimeField()
    is_active = models.BooleanField(default=True)
    is_revoked = models.BooleanField(default=False)
    first_stored_at = models.DateTimeField(default=timezone.now)
    stored_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=["guid"], name="global_record_once"),)
        indexes = (models.Index(fields=["timeout"], name="global_record_timeout"),)

    def __str__(self) -> str:
        return self.guid
