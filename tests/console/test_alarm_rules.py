"""Alarm rules in the console: what the form takes, who sees a webhook; what acts asks first."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User

from msgnode.console import roles
from msgnode.identity import second_factor
from msgnode.identity.encryption import encrypt
from msgnode.models import (
    AlarmNotice,
    AlarmRule,
    AuditEntry,
    ControlMessage,
    SecondFactor,
    WebhookHost,
)

from .accounts import as_role

pytestmark = pytest.mark.django_db

ADD = "/admin/msgnode/alarmrule/add/"
FORM = {
    "name": "flood", "figure": "messages", "is_below": "False", "limit": "400", "seconds": "30",
    "note": "", "mail_to": "a@example.org", "webhook": "https://hooks.example.org/secret",
    "silent_until_0": "", "silent_until_1": "", "is_enabled": "on",
}  # fmt: skip


@pytest.fixture(autouse=True)
def hosts(settings: Any) -> None:
    settings.ALARM_WEBHOOK_HOSTS = ["hooks.example.org"]


def test_a_rule_is_made_audited_and_made_known_to_the_workers() -> None:
    client = as_role(roles.OPERATOR)
    answer = client.post(ADD, FORM)
    assert answer.status_code == 302, answer.content.decode()
    rule = AlarmRule.objects.get()
    assert (rule.figure, rule.is_below, rule.limit, rule.created_by) == (
        "messages", False, 400.0, "operator",
    )  # fmt: skip
    assert ControlMessage.objects.filter(kind="alarm rules.changed").exists()
    entry = AuditEntry.objects.get(action="alarmrule.add")
    assert "secret" not in str(entry.after)
    page = client.get("/admin/msgnode/alarmrule/").content.decode()
    assert "messages in above 400 a second for 30 s" in page


@pytest.mark.parametrize(
    "change",
    [
        {"limit": "nan"}, {"limit": "inf"}, {"limit": ""}, {"seconds": "-1"},
        {"seconds": "100000"}, {"figure": "passwords"}, {"mail_to": "nobody"},
        {"mail_to": "a@b.org\n" * 21}, {"mail_to": "a@b.org, c@d.org"}, {"name": ""},
        {"webhook": "https://elsewhere.example/"}, {"webhook": "gopher://hooks.example.org/"},
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_nothing_is_made(change: dict[str, str]) -> None:
    answer = as_role(roles.OPERATOR).post(ADD, {**FORM, **change})
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode() or 'role="alert"' in answer.content.decode()
    assert not AlarmRule.objects.exists()


def test_a_viewer_sees_rules_but_no_webhook() -> None:
    as_role(roles.OPERATOR).post(ADD, FORM)
    rule = AlarmRule.objects.get()
    AlarmNotice.objects.create(rule=rule, target=rule.webhook, is_raised=True, text="It floods.")
    viewer = as_role(roles.VIEWER)
    for page in (
        "/admin/msgnode/alarmrule/", f"/admin/msgnode/alarmrule/{rule.pk}/change/",
        "/admin/msgnode/alarmnotice/",
        f"/admin/msgnode/alarmnotice/{AlarmNotice.objects.get().pk}/change/",
    ):  # fmt: skip
        answer = viewer.get(page)
        assert answer.status_code == 200, page
        assert "secret" not in answer.content.decode(), page
    assert viewer.get(f"/admin/msgnode/alarmrule/{rule.pk}/test/").status_code == 403


def test_a_test_and_a_silence_ask_first() -> None:
    client = as_role(roles.OPERATOR)
    client.post(ADD, FORM)
    rule = AlarmRule.objects.get()
    root = f"/admin/msgnode/alarmrule/{rule.pk}"
    paths = (f"{root}/test/", f"{root}/silence/")
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert 'name="confirmed"' in answer.content.decode()
    rule.refresh_from_db()
    assert not AlarmNotice.objects.exists()
    assert rule.silent_until is None
    for path in paths:
        assert client.post(path, {"confirmed": "yes"}).status_code == 302
    rule.refresh_from_db()
    assert AlarmNotice.objects.count() == 2
    assert rule.silent_until is not None


def test_a_change_without_secrets_is_taken_back() -> None:
    client = as_role(roles.OPERATOR)
    client.post(ADD, {**FORM, "webhook": ""})
    rule = AlarmRule.objects.get()
    client.post(f"/admin/msgnode/alarmrule/{rule.pk}/change/", {**FORM, "webhook": "", "limit": 5})
    entry = AuditEntry.objects.get(action="alarmrule.change")
    client.post(f"/admin/msgnode/auditentry/{entry.pk}/take-back/")
    rule.refresh_from_db()
    assert rule.limit == 400


def test_a_limit_of_many_digits_is_written_out(db: None) -> None:
    AlarmRule.objects.create(name="flood", figure="messages", limit=25_000_000, seconds=60)
    page = as_role(roles.VIEWER).get("/admin/msgnode/alarmrule/").content.decode()
    assert "messages in above 25,000,000 a second for 60 s" in page


HOSTS = "/admin/msgnode/webhookhost/"


def test_hosts_of_webhooks_take_a_second_factor_lately_given_and_can_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = as_role(roles.ADMINISTRATOR)
    user = User.objects.get()
    refused = client.get(f"{HOSTS}add/")
    assert refused.status_code == 403
    assert "Set one up" in refused.content.decode()
    SecondFactor.objects.create(user=user, kind="codes", sealed=encrypt("A" * 32))
    asked = client.post(f"{HOSTS}add/", {"host": "alarms.example.net", "note": ""})
    assert asked["Location"] == f"/login/confirm/?next={quote(f'{HOSTS}add/', safe='')}"
    assert not WebhookHost.objects.exists()
    monkeypatch.setattr(second_factor, "verify_text", lambda user, code: SecondFactor.objects.get())
    assert client.post(asked["Location"], {"code": "123456"})["Location"] == f"{HOSTS}add/"
    for wrong in ("https://alarms.example.net", "alarms.example.net:8443", "a b", "x/y", ""):
        assert client.post(f"{HOSTS}add/", {"host": wrong}).status_code == 200
    added = client.post(f"{HOSTS}add/", {"host": "Alarms.example.net", "note": "on call"})
    assert added.status_code == 302
    rule = {**FORM, "webhook": "https://alarms.example.net/secret"}
    assert client.post(ADD, rule).status_code == 302
    page = client.get(HOSTS).content.decode()
    assert "ALARM_WEBHOOK_HOSTS has these besides: hooks.example.org" in page
    row = WebhookHost.objects.get()
    client.post(f"{HOSTS}{row.pk}/delete/", {"post": "yes"})
    assert not WebhookHost.objects.exists()
    entry = AuditEntry.objects.get(action="webhookhost.delete")
    back = f"/admin/msgnode/auditentry/{entry.pk}/take-back/"
    session = client.session
    at = session.pop("second_factor_at")
    session.save()
    assert client.post(back)["Location"].startswith("/login/confirm/")
    assert not WebhookHost.objects.exists()
    session["second_factor_at"] = at
    session.save()
    client.post(back)
    assert WebhookHost.objects.get().host == "alarms.example.net"
    session.pop("second_factor_at")
    session.save()
    form = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
    assert client.post(HOSTS, form)["Location"].startswith("/login/confirm/")
    assert WebhookHost.objects.exists()


def test_who_is_no_administrator_only_sees_the_hosts_of_webhooks() -> None:
    row = WebhookHost.objects.create(host="alarms.example.net")
    client = as_role(roles.OPERATOR)
    assert "alarms.example.net" in client.get(f"{HOSTS}{row.pk}/change/").content.decode()
    assert client.post(f"{HOSTS}add/", {"host": "x.example"}).status_code == 403
    assert client.post(f"{HOSTS}{row.pk}/delete/", {"post": "yes"}).status_code in (302, 403)
    assert WebhookHost.objects.get() == row
