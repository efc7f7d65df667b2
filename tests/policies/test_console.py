"""The policies in the console, by its forms and pages."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from msgnode.console import roles
from policies.authoring import pap
from policies.authoring.drafts import draft_document, replace_draft
from policies.models import (
    DecisionEntry,
    NamedList,
    Policy,
    PolicySet,
    PolicyTest,
    Rule,
    RuleHits,
    Version,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(admin_client):
    return admin_client


@pytest.fixture
def rule():
    rules = [{"id": "R", "effect": "deny", "condition": {"msgTo": {"like": "*/secret"}}}]
    policies = [{"id": "P", "rules": rules}]
    replace_draft([{"id": "S", "mode": "enforce", "policies": policies}], {})
    return Rule.objects.get()


@pytest.mark.parametrize(
    "name",
    ["policyset", "policy", "rule", "namedlist", "policytest", "version", "decisionentry",
     "rulehits"],
)  # fmt: skip
def test_every_list_opens(operator, rule, name):
    pap.publish()
    DecisionEntry.objects.create(
        at=datetime.now(UTC), direction="in", effect="deny", passes=False, version=1, type="read",
        sender="a", to="b", message="{}",
    )  # fmt: skip
    RuleHits.objects.create(path="S/P/R", hits=1234, last_hit=datetime.now(UTC))
    PolicyTest.objects.create(name="t", case={"expect": "deny"})
    assert operator.get(reverse(f"admin:policies_{name}_changelist")).status_code == 200


def test_the_list_of_rules_shows_hits(operator, rule):
    address = reverse("admin:policies_rule_changelist")
    assert b"never" in operator.get(address).content
    RuleHits.objects.create(path="S/P/R", hits=1234, last_hit=datetime.now(UTC))
    assert b"1,234" in operator.get(address).content


def test_rules_of_sets_in_sets_are_counted_too_and_the_others_are_found(operator):
    rules = [{"id": "R", "effect": "deny"}, {"id": "unused", "effect": "deny"}]
    inner = {"id": "T", "policies": [{"id": "P", "rules": rules}]}
    replace_draft([{"id": "S", "policies": [inner]}], {})
    RuleHits.objects.create(path="S/T/P/R", hits=77, last_hit=datetime.now(UTC))
    address = reverse("admin:policies_rule_changelist")

    def shown(**query):
        return [rule.key for rule in operator.get(address, query).context["cl"].queryset]

    assert b"77" in operator.get(address).content
    assert (shown(hit="never"), shown(hit="yes")) == (["unused"], ["R"])


def test_a_fault_in_a_rule_stands_at_its_field_with_its_path(operator, rule):
    address = reverse("admin:policies_rule_change", args=[rule.pk])
    answer = operator.post(
        address,
        {
            "key": "R", "effect": "deny", "policy": rule.policy_id, "priority": 0,
            "target": "{}", "condition": '{"msgFrm": {"equals": 1}}',
            "obligations": '{"mail": 1}', "advice": "{}",
        },
    )  # fmt: skip
    errors = answer.context["adminform"].form.errors
    assert "did you mean msgFrom" in errors["condition"][0]
    assert errors["condition"][0].startswith("condition.msgFrm: ")
    assert errors["obligations"][0].startswith("obligations.mail: ")
    rule.refresh_from_db()
    assert rule.condition == {"msgTo": {"like": "*/secret"}}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ('{"not":' * 20_000 + "{}" + "}" * 20_000, "nested too deeply"),
        ('{"msgTo": ', "Enter a valid JSON."),
    ],
    ids=["too deep", "half"],
)
def test_what_cannot_be_read_is_a_fault_at_its_field_and_shown_again(operator, rule, typed, said):
    answer = operator.post(
        reverse("admin:policies_rule_change", args=[rule.pk]),
        {
            "key": "R", "effect": "deny", "policy": rule.policy_id, "priority": 0,
            "target": "{}", "condition": typed, "obligations": "", "advice": "",
        },
    )  # fmt: skip
    assert answer.context["adminform"].form.errors["condition"] == [said]
    assert typed.encode().replace(b'"', b"&quot;") in answer.content


def test_a_rule_in_order_is_saved(operator, rule):
    operator.post(
        reverse("admin:policies_rule_change", args=[rule.pk]),
        {
            "key": "R2", "effect": "permit", "policy": rule.policy_id, "priority": 5,
            "target": "", "condition": "[]", "obligations": '[{"log": "x"}]', "advice": "",
        },
    )  # fmt: skip
    rule.refresh_from_db()
    assert (rule.key, rule.effect, rule.priority, rule.target) == ("R2", "permit", 5, {})
    assert pap.check(draft_document(), {}).is_fit


def check(operator, layer, field, text):
    address = reverse("admin:policies_check_typed")
    answer = operator.post(address, {"layer": layer, "field": field, "text": text})
    return answer.json()["problems"]


def test_typing_is_checked(operator):
    assert check(operator, "rule", "condition", '{"msgId": {"equals": 1}}') == []
    assert "not JSON" in check(operator, "rule", "condition", "{")[0]
    assert "condition.nope" in check(operator, "rule", "condition", '{"nope": 1}')[0]
    assert check(operator, "set", "obligations", '{"deny": {"log": "x"}}') == []
    assert "nested" in check(operator, "set", "target", '{"not":' * 3000 + "1" + "}" * 3000)[0]


def test_publishing_and_rolling_back(operator, rule, admin_user):
    page = reverse("admin:policies_publish")
    assert "may be published" in operator.get(page).content.decode()
    operator.post(page, {"note": "first"})
    version = Version.objects.get()
    assert (version.number, version.author, version.note) == (1, admin_user, "first")
    Rule.objects.update(effect="permit")
    operator.post(page, {"note": "second"})
    back = reverse("admin:policies_roll_back", args=[1])
    asked = operator.get(back).content.decode()
    assert Version.objects.count() == 2
    assert "<del>" in asked and "<ins>" in asked
    edited = Rule.objects.get().pk
    operator.post(back)
    assert Version.objects.first().number == 3
    assert Version.objects.first().document == version.document
    assert (Rule.objects.get().pk, Rule.objects.get().effect) == (edited, "permit")
    page = operator.get(reverse("admin:policies_version_changelist")).content.decode()
    offered = [n for n in (1, 2, 3) if reverse("admin:policies_roll_back", args=[n]) in page]
    assert offered == [1, 2]
    newest = operator.get(reverse("admin:policies_roll_back", args=[3])).content.decode()
    assert "nothing to roll back" in newest
    changes = operator.get(reverse("admin:policies_version_change", args=[version.pk]))
    assert changes.status_code == 200


def shown(page):
    """The mark of what a page has shown."""
    return {"shown": re.search(r'name="shown" value="([^"]+)"', page.content.decode())[1]}


@pytest.mark.parametrize("change", ["of the draft", "of a list", "of what is in force"])
def test_a_draft_that_a_colleague_has_changed_is_not_published_unseen(operator, rule, change):
    path = reverse("admin:policies_publish")
    form = {"note": "mine", **shown(operator.get(path))}
    if change == "of the draft":
        Rule.objects.update(effect="permit")
    elif change == "of a list":
        NamedList.objects.create(name="friends", members="a")
    else:
        pap.publish(note="of a colleague")
    before = Version.objects.count()
    told = operator.post(path, form)
    assert "Nothing is published" in told.content.decode()
    assert Version.objects.count() == before
    assert operator.post(path, {"note": "mine", **shown(told)}).status_code == 302
    assert Version.objects.first().note == "mine"


def test_rolling_back_does_not_undo_a_version_that_was_not_shown(operator, rule):
    for note in ("first", "second"):
        pap.publish(note=note)
    path = reverse("admin:policies_roll_back", args=[1])
    form = shown(operator.get(path))
    pap.publish(note="urgent, of a colleague")
    told = operator.post(path, form, follow=True)
    assert "version 3 is in force by now" in told.content.decode()
    assert Version.objects.first().number == 3
    operator.post(path, shown(told))
    assert Version.objects.first().note == "back to version 1"


def test_a_draft_that_is_not_fit_cannot_be_published(operator, rule):
    PolicyTest.objects.create(name="wrong", case={"expect": "permit"})
    answer = operator.post(reverse("admin:policies_publish"), {"note": ""})
    assert "wrong: the decision is" in answer.content.decode()
    assert not Version.objects.exists()


def test_the_playground_shows_the_decision_and_why(operator, rule):
    message = {"to": "hyperty://b.com/secret"}
    answer = operator.post(
        reverse("admin:policies_playground"),
        {"message": json.dumps(message), "against": "draft", "direction": "in", "keep": "1"},
    ).content.decode()
    assert "deny by S / P / R" in answer
    assert "msgTo like */secret" in answer
    assert "hyperty://b.com/secret" in answer
    assert PolicyTest.objects.get().case["expect"] == "deny"
    assert pap.check_draft().is_fit


def test_a_message_that_passes_is_not_said_to_have_been_delivered(operator, rule):
    page = reverse("admin:policies_playground")
    for to, words in (("secret", "The message does not pass"), ("open", "The message passes")):
        message = json.dumps({"to": f"hyperty://b.com/{to}"})
        fields = {"message": message, "against": "draft", "direction": "in"}
        assert words in operator.post(page, fields).content.decode()


def test_a_case_is_kept_though_an_earlier_one_was_deleted(operator, rule):
    page = reverse("admin:policies_playground")
    fields = {"message": '{"to": "a"}', "against": "draft", "direction": "in", "keep": "1"}
    operator.post(page, fields)
    operator.post(page, fields)
    PolicyTest.objects.get(name="playground 1").delete()
    for name in ("playground 1", "playground 3"):
        assert operator.post(page, fields).status_code == 200
        assert PolicyTest.objects.filter(name=name).exists()


def test_a_case_is_offered_to_be_kept_only_to_who_may(client, operator, rule):
    page = reverse("admin:policies_playground")
    assert 'name="keep"' in operator.get(page).content.decode()
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.groups.add(Group.objects.get(name=roles.VIEWER))
    client.force_login(viewer)
    shown = client.get(page).content.decode()
    assert "Decide" in shown
    assert 'name="keep"' not in shown


@pytest.mark.parametrize("number", ["x", "9" * 30, "7"])
def test_a_version_that_there_is_not_cannot_be_exported(operator, number):
    assert operator.get(reverse("admin:policies_export"), {"version": number}).status_code == 404


def test_trying_a_masked_decision_again_says_that_texts_are_missing(operator):
    deny = {"id": "R", "effect": "deny", "condition": {"bodyValue": {"equals": "x"}}}
    policies = [{"id": "P", "rules": [deny]}]
    replace_draft([{"id": "S", "mode": "enforce", "policies": policies}], {})
    pap.publish()
    entry = DecisionEntry.objects.create(
        at=datetime.now(UTC), direction="in", effect="deny", passes=False, version=1, type="read",
        sender="a", to="b", path="S/P/R",
        message='{"id":1,"type":"read","from":"a","to":"b","body":{"value":"…"}}',
    )  # fmt: skip
    page = reverse("admin:policies_playground")
    shown = operator.get(page, {"entry": entry.pk})
    assert 'id="masked"' in shown.content.decode()
    form = shown.context["form"]
    fields = {name: form[name].value() or "" for name in form.fields}
    tried = operator.post(page, fields).content.decode()
    assert 'id="masked"' in tried
    assert "The log has deny" in tried  # here it is not applicable, and both are said


def test_a_decision_of_the_log_leads_to_its_rule_version_and_session(operator, rule):
    version = pap.publish()
    session = "6f9619ff8b86d011b42d00cf4fc964ff"
    entry = DecisionEntry.objects.create(
        at=datetime.now(UTC), direction="in", effect="deny", passes=False, version=1, type="read",
        sender="a", to="b", path="S/P/R", session=session, message="{}",
        microseconds=68.3270000081393,
    )  # fmt: skip
    page = operator.get(reverse("admin:policies_decisionentry_change", args=[entry.pk]))
    text = page.content.decode()
    assert "68 µs" in text
    assert "68.327" not in text
    for name, key in (
        ("policies_rule", rule.pk),
        ("policies_version", version.pk),
        ("msgnode_session", uuid.UUID(session)),
    ):
        assert reverse(f"admin:{name}_change", args=[key]) in text


def test_the_playground_takes_a_decision_of_the_log(operator, rule, settings):
    pap.publish()
    entry = DecisionEntry.objects.create(
        at=datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), direction="out", effect="deny", passes=False,
        version=1, type="read", sender="a", to="b", username="eve@a.com",
        message='{"id":1,"type":"read","from":"a","to":"b","body":{}}',
        facts={"srcUsername": "eve@a.com", "srcIDP": "https://idp", "srcGroups": ["x", "y"],
               "rate.srcSession.minute": 51},
    )  # fmt: skip
    settings.POLICY = {**settings.POLICY, "TIME_ZONE": "Europe/Berlin"}
    answer = operator.get(reverse("admin:policies_playground"), {"entry": entry.pk})
    form = answer.context["form"]
    assert form["username"].value() == "eve@a.com"
    assert (form["issuer"].value(), form["groups"].value()) == ("https://idp", "x y")
    assert form["facts"].value() == '{"rate.srcSession.minute":51}'
    assert form["now"].value() == "2020-01-02T04:04:05"  # as the policies' clock showed it
    assert '"to": "b"' in form["message"].value()


def test_a_refusal_has_its_tree_what_its_sender_was_told_and_the_way_to_try_again(operator):
    rules = [
        {"id": "R", "effect": "deny", "condition": {"msgTo": {"like": "*/secret"}},
         "obligations": {"inform": "Ask the house."}},
        *({"id": f"other-{n}", "effect": "deny", "condition": {"msgId": {"equals": 9}}}
          for n in range(30)),
    ]  # fmt: skip
    replace_draft([{"id": "S", "mode": "enforce", "policies": [{"id": "P", "rules": rules}]}], {})
    pap.publish()
    replace_draft([], {})  # what was in force then is what explains
    entry = DecisionEntry.objects.create(
        at=datetime.now(UTC), direction="in", effect="deny", passes=False, version=1, path="S/P/R",
        type="read", sender="hyperty://a/1", to="hyperty://a/secret",
        message='{"id":1,"type":"read","from":"hyperty://a/1","to":"hyperty://a/secret"}',
    )  # fmt: skip
    page = operator.get(reverse("admin:policies_decisionentry_change", args=[entry.pk]))
    text = page.content.decode()
    assert "It was refused: deny by S/P/R" in text
    assert "Its sender was told: “Ask the house.”" in text
    assert "msgTo like */secret" in text
    assert "30 more" in text and "other-19" in text and "other-20" not in text
    assert f"{reverse('admin:policies_playground')}?entry={entry.pk}" in text


def test_a_decision_whose_message_was_cut_says_that_it_cannot_be_explained(operator):
    entry = DecisionEntry.objects.create(
        at=datetime.now(UTC), direction="in", effect="deny", passes=False, version=7, type="read",
        sender="a", to="b", message='{"id":1,"type":"re',
    )  # fmt: skip
    page = operator.get(reverse("admin:policies_decisionentry_change", args=[entry.pk]))
    assert "was not kept whole" in page.content.decode()


def test_the_decision_log_counts_and_distinguishes_nothing_over_all_its_rows(
    operator,
):
    with CaptureQueriesContext(connection) as asked:
        operator.get(reverse("admin:policies_decisionentry_changelist"))
    about = [each["sql"] for each in asked if "policies_decisionentry" in each["sql"]]
    assert about
    for sql in about:
        assert "DISTINCT" not in sql
        assert "COUNT(" not in sql or "LIMIT" in sql


@pytest.mark.parametrize("message", ["", "{", "[]", '{"to": 5}', '{"from": ""}', '{"body": 1}'])
def test_the_playground_says_what_is_wrong_with_a_message(operator, rule, message):
    answer = operator.post(
        reverse("admin:policies_playground"),
        {"message": message, "against": "draft", "direction": "in"},
    )
    assert answer.status_code == 200
    assert answer.context["form"].errors["message"]


def test_deep_conditions_are_shown_as_far_as_they_can_be(operator):
    condition = {"msgId": {"equals": 1}}
    for _ in range(100):
        condition = {"allOf": [{"msgId": {"equals": 1}}, {"not": condition}]}
    replace_draft([{"policies": [{"rules": [{"effect": "deny", "condition": condition}]}]}], {})
    PolicySet.objects.update(mode="enforce")
    answer = operator.post(
        reverse("admin:policies_playground"),
        {"message": "{}", "against": "draft", "direction": "in"},
    ).content.decode()
    assert "deeper layers" in answer


def test_import_and_export(operator, rule, tmp_path):
    text = operator.get(reverse("admin:policies_export")).content
    Policy.objects.all().delete()
    file = tmp_path / "p.json"
    file.write_bytes(text)
    with file.open("rb") as stream:
        operator.post(reverse("admin:policies_import"), {"file": stream, "mode": "shadow"})
    assert Rule.objects.get().key == "R"
    assert PolicySet.objects.get().mode == "shadow"
    file.write_text('[{"polices": []}]')
    with file.open("rb") as stream:
        answer = operator.post(reverse("admin:policies_import"), {"file": stream, "mode": "off"})
    assert "$[0].polices" in answer.content.decode()


@pytest.mark.parametrize("name", ["publish", "playground", "import", "export", "shadow"])
def test_pages_ask_for_rights(client, rule, name):
    user = get_user_model().objects.create_user("guest", password="x", is_staff=True)
    client.force_login(user)
    assert client.get(reverse(f"admin:policies_{name}")).status_code == 403


def test_the_shadow_report_counts_what_would_have_changed(operator, rule):
    for sender in ("a", "a", "b"):
        DecisionEntry.objects.create(
            at=datetime.now(UTC), direction="in", effect="permit", passes=True, version=1,
            type="read", sender=sender, to="x", message="{}", shadow="deny by S/P/R",
        )  # fmt: skip
    answer = operator.get(reverse("admin:policies_shadow"))
    assert answer.context["total"] == 3
    assert [(row["sender"], row["n"]) for row in answer.context["senders"]] == [("a", 2), ("b", 1)]


def test_the_first_page_shows_the_defaults_and_what_is_in_force(operator, rule):
    answer = operator.get(reverse("admin:index")).content.decode()
    assert "No policies are published" in answer
    assert "Where no policy applies, a message is" in answer
    pap.publish()
    assert "Version 1 is in force" in operator.get(reverse("admin:index")).content.decode()
