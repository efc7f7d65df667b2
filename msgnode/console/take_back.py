"""Reverts a change in the audit log: the row becomes what it was before.

Rules
- Only what the entry changed is reverted, and only while it is still as that change left it: a
  later change is not overruled.
- Reverting needs the right that the same change would need on its own page, and is a change like
  any other: it is in the audit log and sent to the workers.
- What is more than a row (a policy set that went with all its rules), and what was hidden because
  it is secret, cannot be restored from an entry; then reverting is not offered.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from msgnode.models import AuditEntry

from .audit import plain_fields
from .auditing import HIDDEN, values_of

MODELS = {
    "ban": "msgnode.Ban",
    "alarmrule": "msgnode.AlarmRule",
    "webhookhost": "msgnode.WebhookHost",
    "policyset": "policies.PolicySet",
    "policy": "policies.Policy",
    "rule": "policies.Rule",
    "namedlist": "policies.NamedList",
    "policytest": "policies.PolicyTest",
}
ALONE = frozenset({"alarmrule", "ban", "rule", "namedlist", "policytest", "webhookhost"})
"""Kinds of rows that no others hang from."""
BY_SECOND_FACTOR = frozenset({"webhookhost"})
"""Kinds whose changes, and undoing them, take a second factor."""
NEEDED = {"add": "delete", "change": "change", "delete": "add"}
"""The right needed to revert, by the kind of change."""


class CannotTakeBack(Exception):
    """Why not, in words for the operator."""


def check(entry: AuditEntry, user: Any) -> None:
    """Return if the change can be taken back by this user. Raises CannotTakeBack."""
    kind, _, act = entry.action.partition(".")
    if kind not in MODELS or act not in NEEDED:
        raise CannotTakeBack("Changes of this kind cannot be undone.")
    model = _model(kind)
    right = f"{model._meta.app_label}.{NEEDED[act]}_{model._meta.model_name}"
    if not user.has_perm(right):
        raise CannotTakeBack("Your account lacks the permission to change this.")
    if act != "change" and kind not in ALONE:
        raise CannotTakeBack("The change also added or deleted other rows.")
    if HIDDEN in entry.before.values():
        raise CannotTakeBack("It had a secret, which the audit log does not record.")
    row = _row(model, entry)
    if act == "delete":
        if row is not None:
            raise CannotTakeBack("It exists again.")
    elif row is None:
        raise CannotTakeBack("It no longer exists.")
    elif _is_otherwise(row, entry):
        raise CannotTakeBack("It has been changed again since. Undo the later change first.")


def offer(request: HttpRequest, action: str, row: Model) -> None:
    """Show a link that undoes what the user has just done to a row, where that is possible."""
    mine = AuditEntry.objects.filter(actor=request.user.get_username(), object=str(row))
    entry = mine.filter(action=action).order_by("-id").first()
    with suppress(CannotTakeBack):
        if entry is not None:
            check(entry, request.user)
            page = reverse("admin:msgnode_auditentry_take_back", args=[entry.pk])
            messages.info(request, format_html('<a class="text-link" href="{}">Undo</a>', page))


def take_back(entry: AuditEntry, request: HttpRequest) -> None:
    """Make the row what it was before the change.

    Raises:
        CannotTakeBack: nothing is changed.
    """
    try:
        with transaction.atomic():
            check(entry, request.user)
            _restore(entry)
    except ValidationError as error:
        raise CannotTakeBack("; ".join(error.messages)) from error
    except IntegrityError as error:
        raise CannotTakeBack("Another row has taken its place.") from error


def _restore(entry: AuditEntry) -> None:
    kind, _, act = entry.action.partition(".")
    model = _model(kind)
    row: Any = _row(model, entry)
    if act == "add":
        row.delete()
    else:
        if row is None:
            row = model()
        for field in model._meta.concrete_fields:
            if field.name in entry.before and _has_changed(entry, field.name):
                setattr(row, field.attname, field.to_python(entry.before[field.name]))
        row.full_clean(validate_unique=act == "change")
        row.save(force_insert=act == "delete")
    model_admin: Any = admin.site._registry.get(model)
    if hasattr(model_admin, "publish") and kind in ("ban", "alarmrule"):
        model_admin.publish()


def _model(kind: str) -> type[Model]:
    return apps.get_model(MODELS[kind])


def _row(model: type[Model], entry: AuditEntry) -> Model | None:
    name = model._meta.pk.name
    key = entry.after.get(name, entry.before.get(name))
    return model._base_manager.filter(pk=key).first() if key is not None else None


def _has_changed(entry: AuditEntry, name: str) -> bool:
    return name not in entry.after or entry.before[name] != entry.after[name]


def _is_otherwise(row: Model, entry: AuditEntry) -> bool:
    """Whether what the change has set is something else by now."""
    now = plain_fields(values_of(row))
    return any(
        now.get(name) != value
        for name, value in entry.after.items()
        if name in now and entry.before.get(name) != value
    )
