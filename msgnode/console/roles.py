"""Who may do what in the console: four roles, as groups with permissions.

    viewer         sees everything of the node, but neither accounts nor keys
    operator       and ends, bans, subscribes, frees, fills pools, clears and defines alarms,
                   asks for reports
    policy author  a viewer who also edits, tests and publishes policies
    administrator  may do everything in the console, accounts, clients and keys included

The groups are made after each migration and get back the permissions of this table; further ones
that somebody added stay. Who is in no group and no superuser sees nothing. Pages and actions ask
for the permissions, never for the role, so that other groups can be made: a group with permissions
is a role. Who is given one may log in to the console (Django's `is_staff`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import apps as all_apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.db.models import Q, QuerySet

VIEWER, OPERATOR, AUTHOR, ADMINISTRATOR = "viewer", "operator", "policy author", "administrator"

DESCRIPTIONS = {
    VIEWER: "sees everything but accounts and keys",
    OPERATOR: "and ends, bans, subscribes, frees, defines pools and alarms, asks for reports",
    AUTHOR: "a viewer who also edits, tests and publishes policies",
    ADMINISTRATOR: "may do everything, accounts, clients and keys included",
}
_SEEN_APPS = ("msgnode", "policies", "qos", "registry", "spark", "django_celery_beat")
_UNSEEN = frozenset(
    {"msgnode.view_apikey", "msgnode.view_providerkey", "qos.view_turnsecret"}
    | {f"msgnode.view_{row}" for row in ("secondfactor", "operatoridentity", "roleaccess")}
    | {"msgnode.view_connectorsecret", "msgnode.view_keptentry"}
)
"""What a viewer cannot see: who has keys, and how who logs in."""

_ENTRIES = ("hyperty", "dataobject")
OPERATES = frozenset(
    {
        "msgnode.change_session",
        "msgnode.change_alarm",
        *(f"msgnode.{act}_subscription" for act in ("add", "delete")),
        "msgnode.delete_allocation",
        *(f"msgnode.{act}_alarmrule" for act in ("add", "change", "delete")),
        *(f"msgnode.{act}_ban" for act in ("add", "change", "delete")),
        *(f"msgnode.{act}_addresspool" for act in ("add", "change", "delete")),
        *(f"msgnode.{act}_mqtttopic" for act in ("add", "change", "delete")),
        *(f"msgnode.{act}_peer" for act in ("add", "change", "delete")),
        *(f"msgnode.{act}_legacynetwork" for act in ("add", "change", "delete")),
        "msgnode.delete_pooladdress",
        *(f"msgnode.{act}_revocation" for act in ("add", "delete")),
        "msgnode.delete_addressowner",
        *(f"registry.{act}_{row}" for act in ("change", "delete") for row in _ENTRIES),
        "spark.add_reportrun",
        "qos.change_reservation",
        *(
            f"qos.{act}_{row}"
            for act in ("add", "change", "delete")
            for row in ("turnserver", "trafficclass", "roundtrip", "customer")
        ),
    }
)
WRITES_POLICIES = frozenset(
    {
        *(
            f"policies.{act}_{part}"
            for act in ("add", "change", "delete")
            for part in ("policyset", "policy", "rule", "namedlist", "policytest")
        ),
        "policies.add_version",
    }
)
_ADMINISTERED_APPS = (*_SEEN_APPS, "auth", "oauth2_provider", "axes")


def make(**_: Any) -> None:
    """Create the groups with the table's permissions. Idempotent; a receiver of post_migrate."""
    for config in all_apps.get_app_configs():
        create_permissions(config, verbosity=0)  # each app makes its own only when its turn comes
    seen = {right for right in _all_rights(_SEEN_APPS) if _verb(right) == "view"} - _UNSEEN
    _grant(VIEWER, seen)
    _grant(OPERATOR, seen | OPERATES)
    _grant(AUTHOR, seen | WRITES_POLICIES)
    _grant(ADMINISTRATOR, _all_rights(_ADMINISTERED_APPS))


def has_role(user: User) -> bool:
    """Whether an account may see anything in the console."""
    is_given = user.is_superuser or user.user_permissions.exists()
    return is_given or user.groups.filter(permissions__isnull=False).exists()


def rights_of(user: User | AnonymousUser) -> QuerySet[Permission]:
    """What an account may do in the console, also while it is switched off."""
    if user.is_superuser:
        return Permission.objects.all()
    return Permission.objects.filter(Q(user=user) | Q(group__user=user))


def given_by(giver: User | AnonymousUser) -> QuerySet[Group]:
    """The roles that an account may give: those that may no more than it may itself."""
    others = Permission.objects.exclude(pk__in=rights_of(giver).values("pk"))
    return Group.objects.exclude(permissions__in=others)


def may_touch(giver: User | AnonymousUser, user: User) -> bool:
    """Whether an account may change another: one that may no more than it may itself."""
    if giver.is_superuser or user.is_superuser:
        return giver.is_superuser
    return not rights_of(user).exclude(pk__in=rights_of(giver).values("pk")).exists()


def let_in(instance: Any, action: str, reverse: bool, pk_set: set[Any] | None, **_: Any) -> None:
    """Who is given a role may log in to the console; a receiver of m2m_changed."""
    if action != "post_add":
        return
    users = User.objects.filter(pk__in=pk_set or ()) if reverse else [instance]
    for user in users:
        if not user.is_staff and has_role(user):
            user.is_staff = True
            user.save(update_fields=["is_staff"])


def _grant(name: str, rights: Iterable[str]) -> None:
    group, _ = Group.objects.get_or_create(name=name)
    wanted = Q()
    for right in rights:
        app, _, codename = right.partition(".")
        wanted |= Q(content_type__app_label=app, codename=codename)
    known = set(group.permissions.values_list("pk", flat=True))
    missing = [each for each in Permission.objects.filter(wanted) if each.pk not in known]
    if missing:
        group.permissions.add(*missing)


def _all_rights(apps: Iterable[str]) -> set[str]:
    rows = Permission.objects.filter(content_type__app_label__in=list(apps))
    return {
        f"{app}.{code}" for app, code in rows.values_list("content_type__app_label", "codename")
    }


def _verb(right: str) -> str:
    return right.partition(".")[2].partition("_")[0]
