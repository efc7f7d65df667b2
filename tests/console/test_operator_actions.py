"""What an operator changes: asked for first, in the rows, the audit log and the control outbox."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from msgnode.console.confirm import AT_ONCE
from msgnode.models import Allocation, AuditEntry, Ban, ControlMessage, Session, Subscription

from .rows import fill

State = Session.State


def url(model: str, rest: str = "") -> str:
    return f"/admin/msgnode/{model}/{rest}"


def posted(kind: str) -> list[dict[str, Any]]:
    return list(ControlMessage.objects.filter(kind=kind).values_list("payload", flat=True))


def act(operator: Client, model: str, action: str, rows: list[Any], **more: str) -> Any:
    data = {"action": action, "_selected_action": [row.pk for row in rows], **more}
    return operator.post(url(model), data)


def test_ending_sessions_asks_and_then_ends_them(operator):
    kept, *ended = fill(3)
    page = act(operator, "session", "end", ended).content.decode()
    assert all(session.runtime_url in page for session in ended)
    assert kept.runtime_url not in page
    assert not posted("session.end")

    answer = {"confirmed": "yes", "then": "stay-away", "reason": "misbehaves"}
    act(operator, "session", "end", ended, **answer)
    assert set(Session.objects.exclude(state=State.CLOSED)) == {kept}
    assert set(Allocation.objects.values_list("session", flat=True)) == {kept.pk}
    assert set(Subscription.objects.values_list("session", flat=True)) == {kept.pk}
    assert {(each["session"], each["may_return"]) for each in posted("session.end")} == {
        (session.id.hex, False) for session in ended
    }
    entry = AuditEntry.objects.filter(object=ended[0].runtime_url).get()
    assert (entry.actor, entry.action) == ("operator", "session.end")
    assert (entry.before["allocations"], entry.after["close_reason"]) == (1, "misbehaves")
    assert "token_hash" not in entry.before


def test_ending_one_session_from_its_page(operator):
    session, _ = fill(2)
    page = url("session", f"{session.pk}/end/")
    assert session.runtime_url in operator.get(page).content.decode()
    operator.post(page, {"confirmed": "yes", "then": "return"})
    session.refresh_from_db()
    assert session.state == State.CLOSED
    assert posted("session.end")[0]["may_return"] is True


def test_a_session_that_has_ended_is_not_ended_again(operator):
    session = fill(1)[0]
    for _ in range(2):
        act(operator, "session", "end", [session], confirmed="yes", then="return")
    assert len(posted("session.end")) == 1


def test_an_action_takes_no_more_rows_than_it_can_name(operator):
    sessions = fill(AT_ONCE + 1)
    act(operator, "session", "end", sessions[:1], select_across="1", confirmed="yes", then="return")
    act(operator, "allocation", "delete_selected", [Allocation.objects.first()],
        select_across="1", post="yes")  # fmt: skip
    assert not ControlMessage.objects.exists()
    assert Allocation.objects.count() == AT_ONCE + 1


@pytest.mark.parametrize("model", [Allocation, Subscription])
def test_what_a_session_holds_is_taken_back(operator, model):
    fill(3)
    one, other, _ = rows = list(model.objects.all())
    name = model._meta.model_name
    assert one.address in operator.get(url(name, f"{one.pk}/delete/")).content.decode()
    operator.post(url(name, f"{one.pk}/delete/"), {"post": "yes"})
    act(operator, name, "delete_selected", [other], post="yes")
    assert list(model.objects.all()) == rows[2:]
    assert posted(f"{name}.delete") == [
        {"session": row.session_id.hex, "address": row.address} for row in (one, other)
    ]
    assert AuditEntry.objects.filter(action=f"{name}.delete").count() == 2


def test_a_subscription_is_added(operator):
    session = fill(1)[0]
    form = {"session": session.pk, "address": "comm://localhost/new/changes"}
    operator.post(url("subscription", "add/"), form)
    assert Subscription.objects.filter(**form).exists()
    assert posted("subscription.add") == [
        {"session": session.id.hex, "address": "comm://localhost/new/changes"}
    ]
    assert AuditEntry.objects.get().action == "subscription.add"


@pytest.mark.parametrize("address", ["", "no address", "comm:", "comm://localhost/a\tb", "x" * 700])
def test_a_subscription_needs_an_address(operator, address):
    session = fill(1)[0]
    response = operator.post(
        url("subscription", "add/"), {"session": session.pk, "address": address}
    )
    assert response.context["errors"]
    assert Subscription.objects.count() == 1


def test_a_ban_is_published_audited_and_lifted(operator):
    operator.post(url("ban", "add/"), ban("runtime", "runtime://localhost/bad"))
    made = Ban.objects.get()
    assert made.created_by == "operator"
    operator.post(url("ban", f"{made.pk}/change/"), ban("runtime", made.value, reason="still"))
    operator.post(url("ban", f"{made.pk}/delete/"), {"post": "yes"})
    assert len(posted("bans.changed")) == 3
    deleted, changed, added = AuditEntry.objects.all()
    assert (added.action, changed.action, deleted.action) == ("ban.add", "ban.change", "ban.delete")
    assert (changed.before["reason"], changed.after["reason"]) == ("spam", "still")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("source", "10.0.0"),
        ("source", "example.org"),
        ("runtime", "alice"),
        ("runtime", "comm://d/1"),
    ],
)
def test_a_ban_must_name_what_it_says(operator, kind, value):
    assert operator.post(url("ban", "add/"), ban(kind, value)).context["errors"]
    assert not Ban.objects.exists()


def test_a_ban_that_has_expired_cannot_be_made(operator):
    form = ban("subject", "mallory", expires_at_0="2020-01-01", expires_at_1="00:00:00")
    assert operator.post(url("ban", "add/"), form).context["errors"]


def test_a_ban_that_ends_many_sessions_asks(operator):
    fill(20)
    form = ban("source", "10.0.0.0/8")
    page = operator.post(url("ban", "add/"), form).content.decode()
    assert "This ban ends 20 sessions now" in page
    operator.post(url("ban", "add/"), {**form, "confirmed": "on"})
    assert Ban.objects.get().value == "10.0.0.0/8"


def test_rights_decide_who_may_act(client, django_user_model):
    session = fill(1)[0]
    user = django_user_model.objects.create_user("viewer", password="let me in", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    assert client.get(url("session", f"{session.pk}/change/")).status_code == 200
    assert client.get(url("session", f"{session.pk}/end/")).status_code == 403
    assert client.get(url("ban", "add/")).status_code == 403
    act(client, "session", "end", [session], confirmed="yes", then="return")
    assert not posted("session.end")


def ban(kind: str, value: str, **more: str) -> dict[str, str]:
    return {"kind": kind, "value": value, "reason": "spam", **more}
