"""Whom the node believes: issuers, what is bound and revoked, its own keys, service accounts."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from .lengths import ADDRESS_LENGTH


class Issuer(models.Model):
    """An issuer whose identities the node believes. Lists are written one entry a line."""

    class Kind(models.TextChoices):
        EXTERNAL = "external", "somewhere else"
        EMBEDDED = "embedded", "the node's own provider"

    class NameClaim(models.TextChoices):
        VERIFIED = "", "only a verified e-mail address (email_verified: true)"
        EMAIL = "email", "email, even if email_verified is missing"
        UPN = "upn", "upn"
        PREFERRED_USERNAME = "preferred_username", "preferred_username, if it is no e-mail address"
        SUB = "sub", "sub, even if it looks like an e-mail address"

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
    name_claim = models.CharField(
        "users are named by",
        max_length=24,
        choices=NameClaim.choices,
        default=NameClaim.VERIFIED,
        db_default="",
        blank=True,
        help_text="Who has no such name is named by sub. Danger: whoever can make this issuer put "
        "somebody else's name into the claim is that person here: for policies, recipients and "
        "the registry. Choose a claim only if the issuer verifies it, gives no value to two "
        "users, and lets no user change it.",
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
