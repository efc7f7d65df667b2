"""A page asks for confirmation, and a colleague is faster: only what it has shown is acted on."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from msgnode.identity import api_keys
from msgnode.models import AlarmNotice, AlarmRule, ApiKey, Ban, ControlMessage, Peer, Session
from policies.models import Policy, PolicySet

from .rows import fill
from .test_edited_lists import act, as_posted, shown

pytestmark = pytest.mark.django_db

CHANGED = "Changed since you opened"


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


def asked(client: Client, path: str, action: str, *rows: Any) -> dict[str, Any]:
    """The form of the page that asks, after an action was chosen in a list as it is now."""
    page = text_of(act(client, path, shown(client, path), action, *rows))
    return as_posted(page)


def test_a_peer_that_a_colleague_has_blocked_is_not_let_in_by_going_back(operator: Client) -> None:
    peer = Peer.objects.create(
        domain="b.example", found_digest="1" * 64, approved_digest="1" * 64, decision="approved"
    )
    for digit in "12":
        peer.stubs.create(digest=digit * 64, source="x")
    path = "/admin/msgnode/peer/"
    form = {**asked(operator, path, "go_back", peer), "digest": "2" * 64}
    Peer.objects.update(decision=Peer.Decision.BLOCKED)
    answer = operator.post(path, form, follow=True)
    assert CHANGED in text_of(answer)
    peer.refresh_from_db()
    assert (peer.decision, peer.approved_digest[:1]) == (Peer.Decision.BLOCKED, "1")
    Peer.objects.update(state="live", last_error="The line is cut.")  # the node's own doing
    again = {**asked(operator, path, "go_back", peer), "digest": "2" * 64}
    operator.post(path, again)
    peer.refresh_from_db()
    assert (peer.decision, peer.approved_digest[:1]) == (Peer.Decision.APPROVED, "2")


@pytest.mark.parametrize("way", ["list", "page"])
def test_a_ban_that_was_changed_while_its_deletion_was_asked_about_stays(
    operator: Client, way: str
) -> None:
    ban = Ban.objects.create(kind="subject", value="eve", reason="spam")
    path = "/admin/msgnode/ban/"
    if way == "list":
        form = asked(operator, path, "delete_selected", ban)
    else:
        path = reverse("admin:msgnode_ban_delete", args=[ban.pk])
        form = shown(operator, path)
    Ban.objects.update(reason="a court order: keep")
    told = operator.post(path, form)
    assert CHANGED in text_of(told)
    assert "Are you sure" in text_of(told)
    assert Ban.objects.exists()
    operator.post(path, as_posted(text_of(told)))
    assert not Ban.objects.exists()


@pytest.mark.parametrize("way", ["list", "page"])
def test_a_policy_that_the_page_did_not_list_is_not_deleted_with_its_set(
    operator: Client, way: str
) -> None:
    above = PolicySet.objects.create(key="a", mode="shadow", priority=1)
    path = "/admin/policies/policyset/"
    if way == "list":
        form = asked(operator, path, "delete_selected", above)
    else:
        path = reverse("admin:policies_policyset_delete", args=[above.pk])
        form = shown(operator, path)
    Policy.objects.create(policy_set=above, key="of a colleague", priority=1)
    told = operator.post(path, form)
    assert CHANGED in text_of(told)
    assert "of a colleague" in text_of(told)
    assert Policy.objects.exists()
    operator.post(path, as_posted(text_of(told)))
    assert not PolicySet.objects.exists()


def test_two_who_renew_a_key_from_one_page_leave_the_secret_in_use_working(
    operator: Client,
) -> None:
    row = ApiKey(name="billing", scopes=["registry:read"], expires_at="2099-01-01T00:00:00Z")
    used = api_keys.issue(row)
    row.save()
    path = f"/admin/msgnode/apikey/{row.pk}/rotate/"
    form = shown(operator, path)
    assert "mnk_" in text_of(operator.post(path, form, follow=True))
    told = operator.post(path, form, follow=True)
    assert CHANGED in text_of(told)
    assert "mnk_" not in text_of(told)
    assert api_keys.find(used) is not None, "the page says that it stays valid for a day"


def test_a_test_of_an_alarm_rule_goes_to_nobody_who_was_not_named(operator: Client) -> None:
    rule = AlarmRule.objects.create(
        name="flood", figure="messages", limit=1, mail_to="a@example.org"
    )
    path = f"/admin/msgnode/alarmrule/{rule.pk}/test/"
    form = shown(operator, path)
    AlarmRule.objects.update(mail_to="the-board@example.org")
    told = operator.post(path, form)
    assert CHANGED in text_of(told)
    assert "the-board@example.org will be told" in text_of(told)
    assert not AlarmNotice.objects.exists()
    operator.post(path, as_posted(text_of(told)))
    assert AlarmNotice.objects.get().target == "the-board@example.org"


def test_who_ends_sessions_is_told_which_of_those_shown_had_gone(operator: Client) -> None:
    gone, left, live = fill(3)
    path = "/admin/msgnode/session/"
    listed = f"{path}?state__exact=open"
    Session.objects.update(state="open")
    page = text_of(act(operator, listed, shown(operator, listed), "end", gone, left, live))
    form = as_posted(page) | {"_selected_action": [str(each.pk) for each in (gone, left, live)]}
    Session.objects.filter(pk=gone.pk).update(state="closed")
    Session.objects.filter(pk=left.pk).update(state="detached")
    told = text_of(operator.post(listed, {**form, "then": "return"}, follow=True))
    assert "The session is ended." in told
    assert "2 of those that you have confirmed" in told
    ended = ControlMessage.objects.filter(kind="session.end")
    assert [each.payload["session"] for each in ended] == [live.pk.hex]
