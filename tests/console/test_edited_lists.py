"""Two operators edit the cells of one list, the parts below one row, or act on one list."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from msgnode.console.acted_meanwhile import FIELD as SHOWN
from msgnode.models import Ban, Peer
from policies.models import Policy, PolicySet, PolicyTest

pytestmark = pytest.mark.django_db

LIST = "/admin/policies/policyset/"
TOLD = "Somebody has changed this while you had it open"
INPUT = re.compile(r"<input[^>]*>")
ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


def shown(client: Client, path: str) -> dict[str, Any]:
    """The form of a list or of a page as a browser would post it."""
    return as_posted(client.get(path).content.decode())


def as_posted(page: str) -> dict[str, Any]:
    form: dict[str, Any] = {}
    for found in INPUT.findall(page):
        given = {name: html.unescape(value) for name, value in ATTRIBUTE.findall(found)}
        kind = given.get("type", "text")
        is_kept = kind not in ("checkbox", "radio", "submit", "file") or " checked" in found
        if is_kept and "name" in given:
            form[given["name"]] = given.get("value", "on" if kind in ("checkbox", "radio") else "")
    for name, options in re.findall(r'<select[^>]*name="([^"]+)"(.*?)</select>', page, re.S):
        chosen = re.search(r'<option value="([^"]*)"[^>]*selected', options)
        form[name] = chosen[1] if chosen else ""
    for name, text in re.findall(r'<textarea[^>]*name="([^"]+)"[^>]*>(.*?)</textarea>', page, re.S):
        form[name] = html.unescape(text).strip()
    return form


def two_sets() -> tuple[PolicySet, PolicySet]:
    return (
        PolicySet.objects.create(key="a", mode="shadow", priority=1),
        PolicySet.objects.create(key="b", mode="shadow", priority=1),
    )


def cell(form: dict[str, Any], row: Any, name: str) -> str:
    """The name of a cell of the list."""
    (number,) = [
        found[1] for key, value in form.items()
        if (found := re.fullmatch(r"form-(\d+)-id", key)) and value == str(row.pk)
    ]  # fmt: skip
    return f"form-{number}-{name}"


def saved(client: Client, form: dict[str, Any], **changes: Any) -> Any:
    return client.post(LIST, {**form, "_save": "Save", **changes})


def test_a_row_that_one_has_not_touched_keeps_what_another_has_made_of_it(
    operator: Client,
) -> None:
    one, other = two_sets()
    form = shown(operator, LIST)
    PolicySet.objects.filter(pk=one.pk).update(mode="enforce")
    answer = saved(operator, form, **{cell(form, other, "priority"): "5"})
    assert answer.status_code == 302, answer.context["cl"].formset.errors
    one.refresh_from_db()
    other.refresh_from_db()
    assert (one.mode, other.mode, other.priority) == ("enforce", "shadow", 5)


def test_who_saves_a_cell_last_is_told_and_may_save_again(operator: Client) -> None:
    one, other = two_sets()
    form = shown(operator, LIST)
    first = {cell(form, one, "priority"): "2"}
    assert saved(operator, form, **first).status_code == 302
    mine = {cell(form, one, "priority"): "3", cell(form, other, "priority"): "7"}
    told = saved(operator, form, **mine)
    assert told.status_code == 200
    assert TOLD in html.unescape(told.content.decode())
    one.refresh_from_db()
    other.refresh_from_db()
    assert (one.priority, other.priority) == (2, 1), "nothing is saved, of no row"
    again = as_posted(told.content.decode())
    assert saved(operator, again, **mine).status_code == 302
    one.refresh_from_db()
    other.refresh_from_db()
    assert (one.priority, other.priority) == (3, 7)


def test_a_box_that_two_have_ticked_is_no_quarrel(operator: Client) -> None:
    test = PolicyTest.objects.create(name="t", case={}, is_active=False)
    path = reverse("admin:policies_policytest_changelist")
    form = shown(operator, path)
    ticked = {**form, "form-0-is_active": "on", "_save": "Save"}
    assert operator.post(path, ticked).status_code == 302
    assert operator.post(path, ticked).status_code == 302
    test.refresh_from_db()
    assert test.is_active


def test_a_row_with_many_parts_can_be_saved(operator: Client) -> None:
    above, _ = two_sets()
    Policy.objects.bulk_create(Policy(policy_set=above, key=f"p{n}") for n in range(200))
    path = reverse("admin:policies_policyset_change", args=[above.pk])
    answer = operator.post(path, {**shown(operator, path), "policies-7-priority": "9"})
    assert answer.status_code == 302
    assert Policy.objects.get(priority=9).key == "p7"


def test_the_parts_below_a_row_are_looked_at_as_well(operator: Client) -> None:
    above, _ = two_sets()
    part = Policy.objects.create(policy_set=above, key="p", priority=1)
    untouched = Policy.objects.create(policy_set=above, key="q", priority=1)
    path = reverse("admin:policies_policyset_change", args=[above.pk])
    form = shown(operator, path)
    Policy.objects.filter(pk=part.pk).update(priority=4)
    Policy.objects.filter(pk=untouched.pk).update(note="of somebody else")
    told = operator.post(path, {**form, "policies-0-priority": "9"})
    assert TOLD in html.unescape(told.content.decode())
    part.refresh_from_db()
    assert part.priority == 4
    again = as_posted(told.content.decode())
    assert operator.post(path, {**again, "policies-0-priority": "9"}).status_code == 302
    part.refresh_from_db()
    untouched.refresh_from_db()
    assert (part.priority, untouched.note) == (9, "of somebody else")


# --- actions --------------------------------------------------------------------------------------


def act(client: Client, path: str, form: dict[str, Any], action: str, *rows: Any) -> Any:
    ticked = [str(row.pk) for row in rows]
    return client.post(
        path, {**form, "action": action, "index": "0", "_selected_action": ticked}, follow=True
    )


def test_a_stub_that_was_not_shown_is_not_approved(operator: Client) -> None:
    peer = Peer.objects.create(domain="b.example", found_digest="1" * 64)
    path = "/admin/msgnode/peer/"
    form = shown(operator, path)
    assert f"{SHOWN}-{peer.pk}" in form
    Peer.objects.filter(pk=peer.pk).update(found_digest="2" * 64)
    told = act(operator, path, form, "approve", peer)
    assert "Changed since you opened the list: b.example" in told.content.decode()
    peer.refresh_from_db()
    assert peer.approved_digest == ""
    Peer.objects.filter(pk=peer.pk).update(state_at=None, figures={})  # the node's own doing
    act(operator, path, as_posted(told.content.decode()), "block", peer)
    peer.refresh_from_db()
    assert peer.decision == Peer.Decision.BLOCKED


def test_a_row_that_somebody_has_changed_is_not_deleted_unseen(operator: Client) -> None:
    changed, same = (
        Ban.objects.create(kind="subject", value=value, reason="spam") for value in ("eve", "mal")
    )
    path = "/admin/msgnode/ban/"
    form = shown(operator, path)
    Ban.objects.filter(pk=changed.pk).update(reason="a court order: keep")
    told = act(operator, path, form, "delete_selected", changed, same)
    assert "Changed since you opened the list" in told.content.decode()
    asked = act(operator, path, form, "delete_selected", same)
    assert "Are you sure" in asked.content.decode()
    assert Ban.objects.count() == 2
