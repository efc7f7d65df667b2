"""Two operators open one row; who saves last is told, and nothing is undone in silence."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.forms import BooleanField
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from msgnode.console.edited_meanwhile import FIELD
from msgnode.models import AddressPool, AlarmRule, Ban
from policies.models import NamedList

pytestmark = pytest.mark.django_db

Page = tuple[str, dict[str, Any]]


def opened(client: Client, row: Any) -> Page:
    """The address of a row's page, and the form as a browser would post it."""
    url = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
    answer = client.get(url)
    return url, as_posted(answer)


def as_posted(answer: Any) -> dict[str, Any]:
    form = answer.context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    found = re.search(rf'name="{FIELD}" value="([^"]*)"', answer.content.decode())
    assert found
    marks = html.unescape(found[1])
    boxes = {name for name, field in form.fields.items() if isinstance(field, BooleanField)}
    kept = {
        name: value for name, value in values.items()
        if value is not None and (value or name not in boxes)
    }  # fmt: skip
    for inline in answer.context["inline_admin_formsets"]:
        counts = inline.formset.management_form
        kept |= {counts.add_prefix(name): counts[name].value() for name in counts.fields}
    return {**kept, FIELD: marks}


def rule() -> AlarmRule:
    return AlarmRule.objects.create(name="flood", figure="messages", limit=10, seconds=60)


ROWS: list[tuple[Callable[[], Any], str, Any, Any]] = [
    (rule, "limit", 20, 30),
    (lambda: Ban.objects.create(kind="subject", value="eve", reason="a"), "reason", "b", "c"),
    (lambda: NamedList.objects.create(name="staff", members="a@b"), "members", "c@d", "e@f"),
    (lambda: AddressPool.objects.create(scheme="sip", note="a"), "note", "b", "c"),
    (lambda: Group.objects.create(name="a"), "name", "b", "c"),
]


@pytest.mark.parametrize(("make", "field", "theirs", "mine"), ROWS)
def test_who_saves_last_is_told_and_may_save_again(
    operator: Client, make: Callable[[], Any], field: str, theirs: Any, mine: Any
) -> None:
    row = make()
    url, form = opened(operator, row)
    assert operator.post(url, {**form, field: theirs}).status_code == 302
    told = operator.post(url, {**form, field: mine})
    assert told.status_code == 200
    assert "Somebody has changed this while you had it open" in told.content.decode()
    assert str(mine) in told.content.decode(), "what was typed is kept"
    row.refresh_from_db()
    assert getattr(row, field) == theirs
    assert operator.post(url, {**as_posted(told), field: mine}).status_code == 302
    row.refresh_from_db()
    assert getattr(row, field) == mine


def test_another_fault_first_does_not_make_it_forget(operator: Client) -> None:
    row = rule()
    url, form = opened(operator, row)
    wrong = operator.post(url, {**form, "seconds": "soon"})
    operator.post(url, {**form, "limit": 20})
    told = operator.post(url, {**as_posted(wrong), "seconds": 5})
    assert "while you had it open: Limit" in told.content.decode()
    row.refresh_from_db()
    assert (row.limit, row.seconds) == (20, 60)


def test_rights_of_a_group_that_were_taken_away_meanwhile_are_not_given_back(
    operator: Client,
) -> None:
    group = Group.objects.create(name="night shift")
    group.permissions.set(Permission.objects.all()[:3])
    url, form = opened(operator, group)
    form["permissions"] = list(group.permissions.values_list("pk", flat=True))
    group.permissions.clear()
    told = operator.post(url, {**form, "name": "night"})
    assert "while you had it open: Permissions" in told.content.decode()
    assert not group.permissions.exists()


def test_what_nobody_else_has_changed_is_saved(operator: Client) -> None:
    row = Ban.objects.create(
        kind="subject", value="eve", expires_at=timezone.now() + timedelta(hours=1)
    )
    for reason in ("spam", "more spam"):
        url, form = opened(operator, row)
        form |= {"expires_at_0": "2090-01-01", "expires_at_1": "00:00:00", "reason": reason}
        answer = operator.post(url, form)
        assert answer.status_code == 302, answer.context["adminform"].form.errors


@pytest.mark.parametrize("marks", ["{", "[1]", json.dumps({"limit": [1], "nothing": "x"}), "null"])
def test_marks_that_are_none_are_no_fault_of_the_node(operator: Client, marks: str) -> None:
    url, form = opened(operator, rule())
    assert operator.post(url, {**form, FIELD: marks}).status_code in (200, 302)


def test_a_mark_tells_nothing_of_a_value(operator: Client) -> None:
    row = AlarmRule.objects.create(
        name="x", figure="messages", limit=1, seconds=1, webhook="https://hooks.example/secret"
    )
    form = opened(operator, row)[1]
    assert "secret" not in form[FIELD]
    assert {"limit", "webhook"} <= json.loads(form[FIELD]).keys()
