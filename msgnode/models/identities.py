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
    client_id = models.CharField(
        max_length=255, blank=True, help_text="For introspection, and for log-ins of operators."
    )
    client_secret = models.TextField(blank=True, editable=False)  # sealed, see identity.encryption
    is_enabled = models.BooleanField("enabled", default=True)
    logs_in_operators = models.BooleanField(
        "operators log in with it",
        default=False,
        db_default=False,
        help_text="The log-in page of the console offers it. Roles come from the groups below.",
    )
    groups_claim = models.CharField(
        "claim with the groups",
        max_length=100,
        default="groups",
        db_default="groups",
        blank=True,
        help_text="In the identity token, else in its user info, e.g. groups or realm_access.roles",
    )
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class RoleOfGroup(models.Model):
    """Operators of an issuer's group have a role here, as long as they are in the group."""

    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="roles")
    group = models.CharField("group there", max_length=255, help_text="Exactly as in the claim.")
    role = models.ForeignKey("auth.Group", on_delete=models.CASCADE, related_name="+")

    class Meta:
        ordering = ("group",)
        verbose_name = "role of a group"
        verbose_name_plural = "roles of its groups"
        constraints = (
            models.UniqueConstraint(fields=["issuer", "group", "role"], name="role_of_group_once"),
        )

    def __str__(self) -> str:
        return f"{self.group} of {self.issuer}: {self.role}"


class OperatorIdentity(models.Model):
    """Which subject of an issuer an operator's account is; found by these two and nothing else."""

    user = models.OneToOneField("auth.User", on_delete=models.CASCADE, related_name="identity")
    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="operators")
    subject = models.CharField(max_length=255)

    class Meta:
        verbose_name_plural = "operator identities"
        constraints = (
            models.UniqueConstraint(fields=["issuer", "subject"], name="operator_identity_once"),
        )

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"


class SecondFactor(models.Model):
    """What an account shows beside its password: an app's codes, a passkey, a recovery code."""

    class Kind(models.TextChoices):
        CODES = "codes", "codes of an app"
        PASSKEY = "passkey", "passkey"
        RECOVERY = "recovery", "recovery code"

    user = models.ForeignKey("auth.User", on_delete=models.CASCADE, related_name="second_factors")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    name = models.CharField(max_length=64, blank=True)
    # a passkey's id, or the digest of a recovery code
    key = models.CharField(max_length=1400, null=True, unique=True)
    sealed = models.TextField(blank=True)  # the secret of an app, see identity.encryption
    public = models.TextField(blank=True)  # a passkey's public key
    counter = models.BigIntegerField(default=-1)  # the newest use: none before it counts again
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name or self.get_kind_display()


class RoleAccess(models.Model):
    """What a role asks of who has it."""

    role = models.OneToOneField(
        "auth.Group", on_delete=models.CASCADE, primary_key=True, related_name="access"
    )
    needs_second_factor = models.BooleanField(
        default=False,
        help_text="Who has the role is let in with a second factor only, and asked to set one up "
        "at the next log-in. For the role of administrators this goes for superusers, too.",
    )

    class Meta:
        verbose_name = verbose_name_plural = "access"

    def __str__(self) -> str:
        return f"access of {self.role}"


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


class FormerClientSecret(models.Model):
    """The secret that a client of the provider had before its present one, hashed."""

    client = models.OneToOneField(
        "oauth2_provider.Application",
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="former_secret",
    )
    secret_hash = models.CharField(max_length=255, editable=False)
    valid_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"former secret of {self.client_id}"
