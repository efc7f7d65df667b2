"""What changed since yesterday, and taking it back: the row is what it was, or nothing is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from msgnode.console import roles
from msgnode.console.audit import note
from msgnode.models import AuditEntry, Ban, ControlMessage
from policies.authoring.drafts import replace_draft
from policies.models import Rule

pytestmark = pytest.mark.django_db

BAN = {"kind": "runtime", "value": "runtime://localhost/mallory", "reason": "spam"}


def newest(action: str) -> AuditEntry:
    return AuditEntry.objects.filter(action=action).latest("pk")


def page_of(entry: AuditEntry) -> str:
    return f"/admin/msgnode/auditentry/{entry.pk}/change/"


def take_back(client: Client, entry: AuditEntry) -> str:
    answer = client.post(f"/admin/msgnode/auditentry/{entry.pk}/take-back/", follow=True)
    return answer.content.decode()


@pytest.fixture
def ban(operator: Client) -> Ban:
    operator.post("/admin/msgnode/ban/add/", BAN)
    return Ban.objects.get()


@pytest.fixture
def rule() -> Rule:
    policies = [{"id": "P", "rules": [{"id": "R", "effect": "deny"}]}]
    replace_draft([{"id": "S", "policies": policies}], {})
    return Rule.objects.get()


def test_a_ban_that_was_added_is_lifted_and_workers_are_told(operator: Client, ban: Ban) -> None:
    entry = newest("ban.add")
    assert "Undo the change" in operator.get(page_of(entry)).content.decode()
    told = ControlMessage.objects.count()
    assert "has its previous values again" in take_back(operator, entry)
    assert not Ban.objects.exists()
    assert ControlMessage.objects.count() > told
    assert newest("ban.delete").actor == "operator"


def test_a_ban_is_undone_from_the_page_that_follows_it(operator: Client) -> None:
    page = operator.post("/admin/msgnode/ban/add/", BAN, follow=True).content.decode()
    assert f'/auditentry/{newest("ban.add").pk}/take-back">Undo</a>' in page.replace('/">U', '">U')


def test_a_ban_that_was_deleted_is_there_again_as_it_was(operator: Client, ban: Ban) -> None:
    ends = timezone.now() + timedelta(hours=1)
    Ban.objects.update(expires_at=ends)
    operator.post(f"/admin/msgnode/ban/{ban.pk}/delete/", {"post": "yes"})
    assert not Ban.objects.exists()
    take_back(operator, newest("ban.delete"))
    again = Ban.objects.get()
    assert (again.pk, again.kind, again.value, again.reason) == (ban.pk, *BAN.values())
    assert again.expires_at == ends


def changed(client: Client, rule: Rule, effect: str) -> AuditEntry:
    form = {"key": "R", "effect": effect, "policy": rule.policy_id, "priority": rule.priority,
            "target": "", "condition": "", "obligations": "", "advice": ""}  # fmt: skip
    client.post(f"/admin/policies/rule/{rule.pk}/change/", form)
    return newest("rule.change")


def test_a_rule_that_was_changed_becomes_what_it_was(operator: Client, rule: Rule) -> None:
    entry = changed(operator, rule, "permit")
    rule.refresh_from_db()
    assert rule.effect == "permit"
    take_back(operator, entry)
    rule.refresh_from_db()
    assert rule.effect == "deny"


def test_what_was_changed_again_since_is_left_alone(operator: Client, rule: Rule) -> None:
    entry = changed(operator, rule, "permit")
    Rule.objects.update(effect="deny")
    assert "Undo the change" not in operator.get(page_of(entry)).content.decode()
    assert "changed again since" in take_back(operator, entry)
    rule.refresh_from_db()
    assert rule.effect == "deny"


def test_twice_is_once(operator: Client, ban: Ban) -> None:
    entry = newest("ban.add")
    take_back(operator, entry)
    assert "no longer exists" in take_back(operator, entry)


@pytest.mark.parametrize(
    ("action", "before", "after", "why"),
    [
        ("session.end", {"id": "x"}, {"id": "x", "state": "closed"}, "of this kind"),
        ("policyset.delete", {"id": 1, "key": "S"}, {}, "also added or deleted other rows"),
        ("user.change", {"password": "•••"}, {"password": "••• (new)"}, "of this kind"),
        ("ban.change", {"id": 7, "value": "a"}, {"id": 7, "value": "b"}, "no longer exists"),
        ("rule.delete", {"id": 7, "key": "R", "policy": 99}, {}, ""),
    ],
)
def test_what_cannot_come_back_says_why_and_changes_nothing(
    operator: Client, action: str, before: dict, after: dict, why: str
) -> None:
    note("somebody", action, "it", before, after)
    rows = Rule.objects.count(), Ban.objects.count()
    said = take_back(operator, newest(action))
    assert "cannot be undone" in said
    assert why in said
    assert (Rule.objects.count(), Ban.objects.count()) == rows


@pytest.mark.parametrize("role", [roles.VIEWER, roles.AUTHOR, roles.OPERATOR, roles.ADMINISTRATOR])
def test_it_is_offered_to_who_may_make_the_change(client: Client, ban: Ban, role: str) -> None:
    user = User.objects.create_user("somebody", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client.force_login(user)
    entry = newest("ban.add")
    may = role in (roles.OPERATOR, roles.ADMINISTRATOR)
    assert ("Undo the change" in client.get(page_of(entry)).content.decode()) == may
    take_back(client, entry)
    assert Ban.objects.exists() != may


def test_the_log_is_filtered_by_what_changed_since_yesterday(operator: Client) -> None:
    note("somebody", "ban.add", "the new one", {}, {"id": 1})
    note("somebody", "ban.add", "the old one", {}, {"id": 2})
    AuditEntry.objects.filter(object="the old one").update(at=timezone.now() - timedelta(days=2))
    page = operator.get("/admin/msgnode/auditentry/?hours=24").content.decode()
    assert "the new one" in page
    assert "the old one" not in page
