"""Records every change by an actor, whatever page, command or interface it came through.

A row that is saved or deleted while there is an actor (see actor.py) becomes one AuditEntry, with
its fields before and after, in the same transaction. The node's own writes have no actor. Kinds of
rows that are many, or whose changes operator_actions describes itself, are excluded by name.
Secrets are never recorded, only that they are new.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group, User
from django.contrib.auth.signals import user_logged_in
from django.db.models import Model
from django.db.models.signals import (
    m2m_changed,
    post_delete,
    post_save,
    pre_delete,
    pre_save,
)
from django.http import HttpRequest

from msgnode.web.proxies import address_of

from .actor import actor
from .audit import Fields, fields_of, note

AUDITED_APPS = ("msgnode", "policies", "qos", "spark", "django_celery_beat")
AUDITED = frozenset({"auth.User", "auth.Group", "oauth2_provider.Application"})
LEFT_OUT = frozenset(
    {
        # written by the workers, or worded by operator_actions
        *("msgnode.Session", "msgnode.Allocation", "msgnode.Subscription", "msgnode.PoolAddress"),
        "msgnode.Revocation",  # worded by console.issuers; people who log out leave them, too
        *("msgnode.ControlMessage", "msgnode.ComponentStatus", "msgnode.Alarm"),
        *("msgnode.AlarmNotice", "msgnode.NodeSample"),
        "msgnode.LegacyAddress",
        # worded by console.connector_actions
        *("msgnode.Connector", "msgnode.ConnectorScript", "msgnode.ConnectorSecret"),
        "msgnode.KeptEntry",
        "msgnode.FormerClientSecret",  # the client's own entry says that its secret is new
        "msgnode.SecondFactor",  # worded by console.log_in and own_log_in
        *("msgnode.PeerStub", "msgnode.PeerSubscription", "msgnode.IdentityBinding"),
        *("msgnode.PeerMessage", "msgnode.StoredMessage"),  # worded by console.peer_messages
        *("msgnode.Worker", "msgnode.WorkerClaim"),
        # written by the node and by reports
        *("policies.DecisionEntry", "policies.RuleHits", "spark.Report"),
        *("qos.Reservation", "qos.RelayAllocation", "qos.Usage"),
        "django_celery_beat.PeriodicTasks",
        "msgnode.AuditEntry",
    }
)
SECRET = frozenset(
    {
        *("password", "secret_hash", "previous_hash", "sealed", "client_secret"),
        *("client_secret_sealed", "sealed_password"),
        "webhook",  # its path is what lets one in
    }
)
UNINTERESTING = frozenset({"last_login", "last_used_at", "last_used_from", "date_changed"})
HIDDEN = "•••"


def is_audited(model: type[Model]) -> bool:
    """Whether changes of a model's rows are in the audit log."""
    label = model._meta.label
    if label in LEFT_OUT:
        return False
    return label in AUDITED or model._meta.app_label in AUDITED_APPS


def follow() -> None:
    """Start recording changes. Called once in each process."""
    for model in apps.get_models():
        if is_audited(model):
            pre_save.connect(_remember, sender=model, dispatch_uid=f"audit {model} before")
            post_save.connect(_saved, sender=model, dispatch_uid=f"audit {model} after")
            pre_delete.connect(_remember, sender=model, dispatch_uid=f"audit {model} going")
            post_delete.connect(_deleted, sender=model, dispatch_uid=f"audit {model} gone")
    for relation in (User.groups, User.user_permissions, Group.permissions):
        m2m_changed.connect(_related, sender=relation.through)
    user_logged_in.connect(_logged_in)


def values_of(row: Model) -> Fields:
    """The fields of a row that the log keeps, with their values."""
    return {
        field.name: field.value_from_object(row)
        for field in row._meta.concrete_fields
        if field.name not in UNINTERESTING
    }


def _remember(sender: type[Model], instance: Any, **_: Any) -> None:
    """Keep the row's present values, for `_saved`."""
    if not actor():
        return
    row = sender._base_manager.filter(pk=instance.pk).first() if instance.pk is not None else None
    instance._audit_before = values_of(row) if row is not None else {}


def _saved(sender: type[Model], instance: Any, created: bool, **_: Any) -> None:
    who = actor()
    if not who:
        return
    before = {} if created else instance.__dict__.pop("_audit_before", {})
    after = values_of(instance)
    if before != after:
        kind = f"{sender._meta.model_name}.{'add' if created else 'change'}"
        note(who, kind, instance, *_without_secrets(before, after))


def _deleted(sender: type[Model], instance: Any, **_: Any) -> None:
    if who := actor():
        before = instance.__dict__.pop("_audit_before", {}) or values_of(instance)
        note(who, f"{sender._meta.model_name}.delete", instance, *_without_secrets(before, {}))


def _without_secrets(before: Fields, after: Fields) -> tuple[Fields, Fields]:
    """Both without secrets; a changed secret is only named as new."""
    kept_before, kept_after = dict(before), dict(after)
    for name in SECRET & (before.keys() | after.keys()):
        is_new = bool(before) and bool(after) and before.get(name) != after.get(name)
        if before.get(name):
            kept_before[name] = HIDDEN
        if after.get(name):
            kept_after[name] = f"{HIDDEN} (new)" if is_new else HIDDEN
    return kept_before, kept_after


def _related(
    sender: type[Model],
    instance: Any,
    action: str,
    reverse: bool,
    model: Any,
    pk_set: Any,
    **_: Any,
) -> None:
    """Groups of a user, rights of a user or group."""
    who = actor()
    if not who or reverse:
        return
    relations = (User.groups, User.user_permissions, Group.permissions)
    name = next(each.field.name for each in relations if each.through is sender)
    names = sorted(str(each) for each in getattr(instance, name).all())
    before = instance.__dict__.setdefault("_audit_related", {})
    if action.startswith("pre_"):
        before.setdefault(name, names)
    elif (was := before.pop(name, names)) != names:
        note(who, f"{instance._meta.model_name}.{name}", instance, {name: was}, {name: names})


def _logged_in(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    if user.is_staff and request is not None and (address := address_of(request)):
        by = getattr(request, "log_in_by", "")  # identity.provider.login
        note(user.get_username(), "user.log-in", user, {}, {"from": address, "by": by})


def note_registry_operation(who: str, what: str, row: Model) -> None:
    """What an operator does to entries of the registry, which are their clients' (registry.api)."""
    note(who, what, row, fields_of(row), {})
