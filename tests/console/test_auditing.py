"""Whoever changes something is written down, with what it was before and is now."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.http import HttpRequest
from django.test import Client

from msgnode.console.actor import acting_as
from msgnode.console.auditing import LEFT_OUT, is_audited
from msgnode.models import ApiKey, AuditEntry
from msgnode.site_urls import CONSOLE
from policies.models import PolicySet
from registry import api
from registry.models import Hyperty

pytestmark = pytest.mark.django_db

# Rows that are changed in other words than a form's: by operator_actions or the registry.
WORDED = frozenset(
    {
        *("msgnode.Session", "msgnode.Allocation", "msgnode.Subscription", "msgnode.PoolAddress"),
        *("msgnode.Revocation", "msgnode.Connector"),
        *("registry.Hyperty", "registry.DataObject"),
        "axes.AccessAttempt",  # deleting a failure changes nothing that was defined
    }
)


def last() -> AuditEntry:
    entry = AuditEntry.objects.first()
    assert entry is not None
    return entry


def test_every_model_that_can_be_changed_in_the_console_is_audited() -> None:
    request = HttpRequest()
    request.user = User(is_superuser=True, is_active=True, is_staff=True)
    forgotten = [
        model._meta.label
        for model, page in CONSOLE._registry.items()
        if (
            page.has_add_permission(request)
            or page.has_change_permission(request)
            or page.has_delete_permission(request)
        )
        and not is_audited(model)
        and model._meta.label not in WORDED
        and not model._meta.label.startswith(("django_celery_results.", "unfold."))
    ]
    assert forgotten == []


def test_a_policy_set_made_changed_and_deleted_in_the_console(operator: Client) -> None:
    form = {
        "key": "night", "mode": "off", "priority": "1", "algorithm": "blockOverrides", "note": "",
        "target": "{}", "obligations": "{}", "advice": "{}",
        "policies-TOTAL_FORMS": "0", "policies-INITIAL_FORMS": "0",
    }  # fmt: skip
    operator.post("/admin/policies/policyset/add/", form)
    made = PolicySet.objects.get(key="night")
    assert (last().actor, last().action, last().object) == ("operator", "policyset.add", "night")
    assert (last().before, last().after["priority"]) == ({}, 1)
    operator.post(f"/admin/policies/policyset/{made.pk}/change/", {**form, "priority": "7"})
    assert last().action == "policyset.change"
    assert (last().before["priority"], last().after["priority"]) == (1, 7)
    operator.post(f"/admin/policies/policyset/{made.pk}/delete/", {"post": "yes"})
    assert (last().action, last().before["priority"], last().after) == ("policyset.delete", 7, {})


def test_an_account_and_its_roles(operator: Client) -> None:
    form = {"username": "eve", "usable_password": "true", "password1": "Secret-pass-9",
            "password2": "Secret-pass-9", "email": ""}  # fmt: skip
    operator.post("/admin/auth/user/add/", form)
    user = User.objects.get(username="eve")
    entry = AuditEntry.objects.get(action="user.add")
    assert entry.after["password"] == "•••"
    viewer = Group.objects.get(name="viewer")
    operator.post(
        f"/admin/auth/user/{user.pk}/change/",
        {"username": "eve", "is_active": "on", "is_staff": "on", "groups": [viewer.pk],
         "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"},
    )  # fmt: skip
    entry = AuditEntry.objects.get(action="user.groups")
    assert (entry.before, entry.after) == ({"groups": []}, {"groups": ["viewer"]})
    assert AuditEntry.objects.get(action="user.change").after["is_staff"] is True
    operator.post(
        f"/admin/auth/user/{user.pk}/password/",
        {"usable_password": "true", "password1": "Other-pass-10", "password2": "Other-pass-10"},
    )
    changed = AuditEntry.objects.filter(action="user.change").first()
    assert changed is not None
    assert changed.after["password"] == "••• (new)"
    assert "pbkdf2" not in str(list(AuditEntry.objects.values()))
    assert "md5" not in str(list(AuditEntry.objects.values()))


def test_a_key_without_its_secret(operator: Client) -> None:
    form = {"name": "billing", "scopes": ["registry:read"], "is_active": "on",
            "expires_at_0": "2099-01-01", "expires_at_1": "00:00:00"}  # fmt: skip
    operator.post("/admin/msgnode/apikey/add/", form)
    key = ApiKey.objects.get()
    assert (last().action, last().after["scopes"]) == ("apikey.add", ["registry:read"])
    assert last().after["secret_hash"] == "•••"
    operator.post(f"/admin/msgnode/apikey/{key.pk}/rotate/")
    assert last().after["secret_hash"] == "••• (new)"
    assert key.secret_hash not in str(list(AuditEntry.objects.values()))


def test_what_an_operator_does_to_the_registry(operator: Client) -> None:
    facts = {
        "descriptor": "d", "expires": 60, "resources": [], "dataSchemes": [],
        "runtime": "runtime://localhost/1", "status": "live",
    }  # fmt: skip
    api.register(api.Kind.HYPERTY, "hyperty://localhost/1", facts, "user://localhost/a")
    row = Hyperty.objects.get()
    for action in ("disconnect", "purge"):
        operator.post("/admin/registry/hyperty/", {"action": action, "_selected_action": [row.pk]})
        assert (last().action, last().actor) == (f"hyperty.{action}", "operator")
    assert last().object == "hyperty://localhost/1"


def test_a_command_acts_under_its_name() -> None:
    with acting_as("manage.py createsuperuser"):
        call_command("createsuperuser", "--noinput", username="root", email="")
    entry = AuditEntry.objects.get(action="user.add")
    assert entry.actor == "manage.py createsuperuser"


def test_what_the_node_writes_by_itself_is_no_change_of_anybodys() -> None:
    PolicySet.objects.create(key="x")
    assert not AuditEntry.objects.exists()


def test_nothing_changed_is_no_change(operator: Client) -> None:
    made = PolicySet.objects.create(key="x")
    with acting_as("somebody"):
        made.save()
    assert not AuditEntry.objects.exists()


def test_an_operator_who_comes_in_is_written_down(client: Client) -> None:
    User.objects.create_user("op", password="let me in", is_staff=True)
    client.post("/admin/login/?next=/admin/", {"username": "op", "password": "let me in"})
    assert (last().action, last().actor, last().after) == (
        "user.log-in", "op", {"from": "127.0.0.1", "by": "password"},
    )  # fmt: skip


def test_the_names_left_out_are_names_of_models() -> None:
    from django.apps import apps

    labels = {model._meta.label for model in apps.get_models()}
    assert labels >= LEFT_OUT


def test_audit_entries_show_their_text_and_nothing_else(operator: Client) -> None:
    entry = AuditEntry.objects.create(
        actor="<script>alert(1)</script>", action="x", object="<img src=x>",
        before={"a": "<b>"}, after={"a": "</td>"},
    )  # fmt: skip
    for path in ("", f"{entry.pk}/change/"):
        text: Any = operator.get(f"/admin/msgnode/auditentry/{path}").content.decode()
        assert "<script>alert" not in text
        assert "<img src=x>" not in text
