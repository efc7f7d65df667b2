"""Rows of the policy engine: the draft that is edited, what was published, and what happened.

The draft (PolicySet, Policy, Rule, NamedList) is what the console edits; nothing of it acts.
A Version is a published copy of all of it, numbered and never changed; the highest is in force.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from policies.engine.vocabulary import Algorithm

_ID = RegexValidator(r"^[^/\s]\S*$", "No spaces, and no slash in front.")


class Layer(models.Model):
    """What sets, policies and rules have in common."""

    key = models.CharField("id", max_length=100, validators=[_ID])
    note = models.CharField(max_length=255, blank=True)
    priority = models.IntegerField(default=0, help_text="The lower one is asked first.")
    target = models.JSONField(default=dict, blank=True, help_text="{} applies to everything.")
    obligations = models.JSONField(default=dict, blank=True)
    advice = models.JSONField(default=dict, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.key


class PolicySet(Layer):
    """A set of policies (or of sets), switched on and off as one."""

    class Mode(models.TextChoices):
        OFF = "off"
        SHADOW = "shadow", "shadow: report only"
        ENFORCE = "enforce"

    mode = models.CharField(max_length=8, choices=Mode.choices, default=Mode.OFF)
    algorithm = models.CharField(
        max_length=20,
        choices=[(a.value, a.value) for a in Algorithm],
        default=Algorithm.BLOCK_OVERRIDES.value,
    )
    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="sets"
    )

    class Meta:
        ordering = ("priority", "id")
        constraints = (
            models.UniqueConstraint(
                fields=["key"], condition=models.Q(parent=None), name="policy_set_key"
            ),
            models.UniqueConstraint(fields=["parent", "key"], name="policy_set_inner_key"),
        )

    def clean(self) -> None:
        """A set stands in no set that stands in it."""
        above = self.parent
        while above is not None:
            if above.pk == self.pk:
                raise ValidationError({"parent": "A set cannot stand in itself."})
            above = above.parent


class Policy(Layer):
    """Rules under one target."""

    policy_set = models.ForeignKey(PolicySet, on_delete=models.CASCADE, related_name="policies")
    algorithm = models.CharField(
        max_length=20,
        choices=[(a.value, a.value) for a in Algorithm],
        default=Algorithm.BLOCK_OVERRIDES.value,
    )

    class Meta:
        ordering = ("priority", "id")
        verbose_name_plural = "policies"
        constraints = (models.UniqueConstraint(fields=["policy_set", "key"], name="policy_key"),)


class Rule(Layer):
    """Where target and condition hold, the effect."""

    class Effect(models.TextChoices):
        PERMIT = "permit"
        DENY = "deny"

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="rules")
    effect = models.CharField(max_length=6, choices=Effect.choices, default=Effect.DENY)
    condition = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ("priority", "id")
        constraints = (models.UniqueConstraint(fields=["policy", "key"], name="rule_key"),)


class NamedList(models.Model):
    """Texts (users, domains, addresses) that conditions use as {"in": "@name"}."""

    name = models.SlugField(max_length=64, unique=True)
    note = models.CharField(max_length=255, blank=True)
    members = models.TextField(blank=True, help_text="One a line.")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return f"@{self.name}"

    def texts(self) -> list[str]:
        """The members."""
        return [line.strip() for line in self.members.splitlines() if line.strip()]


class PolicyTest(models.Model):
    """A message, its circumstances and the decision expected; failing, it blocks publication."""

    name = models.CharField(max_length=100, unique=True)
    case = models.JSONField(
        help_text='For example {"msg": {"type": "create"}, "user": "bob@a.com", "expect": "deny"}.'
    )
    is_active = models.BooleanField(default=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Version(models.Model):
    """What was published. Never changed, never deleted."""

    number = models.PositiveIntegerField(unique=True)
    document = models.JSONField()
    lists = models.JSONField(default=dict)
    note = models.CharField(max_length=255, blank=True)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    published_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-number",)

    def __str__(self) -> str:
        return f"version {self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Only ever inserts."""
        if not self._state.adding:
            raise TypeError("A published version is never changed.")
        super().save(*args, **kwargs)


class DecisionEntry(models.Model):
    """One decision worth telling: every refusal and error, a sample of the rest."""

    at = models.DateTimeField(db_index=True)
    direction = models.CharField(max_length=3)
    effect = models.CharField(max_length=13)
    passes = models.BooleanField()
    shadow = models.CharField(max_length=255, blank=True)
    path = models.CharField("decided by", max_length=255, blank=True)
    version = models.PositiveIntegerField()
    type = models.CharField(max_length=16)
    sender = models.CharField("from", max_length=600)
    to = models.CharField(max_length=600)
    username = models.CharField(max_length=255, blank=True)
    session = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)
    errors = models.TextField(blank=True)
    microseconds = models.FloatField(default=0)
    facts = models.JSONField(
        default=dict, help_text="What was known beside the message: sender, counters, look-ups."
    )

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "decision log"
        indexes = (
            models.Index(fields=["effect", "-id"], name="decision_effect"),
            models.Index(fields=["path", "-id"], name="decision_path"),
            models.Index(fields=["session", "-id"], name="decision_session"),
        )

    def __str__(self) -> str:
        return f"{self.effect} {self.type} {self.to}"


class RuleHits(models.Model):
    """How often a rule (or an algorithm's default) has decided."""

    path = models.CharField(max_length=255, unique=True)
    hits = models.PositiveBigIntegerField(default=0)
    last_hit = models.DateTimeField()

    class Meta:
        ordering = ("-hits",)
        verbose_name_plural = "rule hits"

    def __str__(self) -> str:
        return self.path
