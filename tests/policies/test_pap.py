"""The draft, its check, its publication and the way back."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path

import pytest
from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import reverse

from policies.authoring import pap, presets
from policies.authoring.cases import run_case
from policies.authoring.drafts import add_to_draft, draft_document, draft_lists, replace_draft
from policies.authoring.transfer import read_bundle, write_bundle
from policies.enforcement import prp
from policies.engine.language import PolicyError
from policies.models import NamedList, PolicySet, PolicyTest, Version

pytestmark = pytest.mark.django_db

DOCUMENT = [
    {
        "id": "night",
        "mode": "enforce",
        "priority": 3,
        "target": {"actionType": {"equals": "create"}},
        "policyCombiningAlgorithm": "firstApplicable",
        "obligations": {"deny": {"log": "at night"}},
        "policies": [
            {
                "id": "P",
                "ruleCombiningAlgorithm": "denyOverrides",
                "rules": [
                    {"id": "R", "effect": "deny", "condition": {"srcUsername": {"in": "@bad"}}}
                ],
            },
            {"id": "inner", "policies": [{"id": "Q", "rules": [{"effect": "permit"}]}]},
        ],
    }
]
LISTS = {"bad": ["eve@a.com", "bob@a.com"]}
EXPECT_DENY = {"user": "eve@a.com", "expect": "deny"}


@pytest.fixture
def draft():
    replace_draft(DOCUMENT, LISTS)


def test_a_document_survives_the_way_into_the_draft_and_back(draft):
    (out,) = draft_document()
    assert (out["id"], out["mode"], out["priority"]) == ("night", "enforce", 3)
    assert out["target"] == DOCUMENT[0]["target"]
    assert [child["id"] for child in out["policies"]] == ["P", "inner"]
    assert out["policies"][0]["ruleCombiningAlgorithm"] == "blockOverrides"
    assert out["policies"][1]["policies"][0]["rules"][0]["effect"] == "permit"
    before = draft_document()
    replace_draft(before, draft_lists())
    assert draft_document() == before


def test_publication_numbers_and_tells_the_workers(draft):
    first, second = pap.publish(note="one"), pap.publish(note="two")
    assert (first.number, second.number) == (1, 2)
    told = apps.get_model("msgnode", "ControlMessage").objects.filter(kind=pap.PUBLISHED)
    assert [row.payload for row in told.order_by("id")] == [{"version": 1}, {"version": 2}]


def test_of_two_who_publish_at_once_the_second_is_told(draft, admin_client):
    first = []

    def let_another_be_first(execute, sql, *rest):
        if sql.startswith("INSERT") and "policies_version" in sql and not first:
            first.append(None)
            first[0] = pap.publish(note="first")
        return execute(sql, *rest)

    form = {"note": "second", "shown": pap.mark_of_draft()}
    with connection.execute_wrapper(let_another_be_first):
        answer = admin_client.post(reverse("admin:policies_publish"), form)
    assert answer.status_code == 200
    assert "Nothing is published" in answer.content.decode()
    assert first[0].number == 1  # in the same transaction here, so that it is gone with the second
    assert not Version.objects.filter(note="second").exists()


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_for_a_transaction_while_a_version_is_checked(draft, monkeypatch):
    real, seen = pap.check, []

    def check(document, lists):
        seen.append(connection.in_atomic_block)
        PolicySet.objects.create(key=f"meanwhile-{len(seen)}")  # somebody edits the draft
        return real(document, lists)

    monkeypatch.setattr(pap, "check", check)
    first = pap.publish()
    second = pap.publish()
    third = pap.roll_back(first)
    assert seen == [False] * 3
    sets = [{each["id"] for each in version.document} for version in (first, second, third)]
    assert "meanwhile-1" not in sets[0]  # it is for the next version
    assert "meanwhile-1" in sets[1]
    assert sets[2] == sets[0]


def test_a_version_does_not_change_with_the_draft(draft):
    version = pap.publish()
    PolicySet.objects.all().delete()
    assert Version.objects.get(number=version.number).document[0]["id"] == "night"


def test_what_tells_the_sender_nothing_is_not_published(draft):
    row = PolicySet.objects.get(key="night")
    row.obligations = {"deny": {"inform": "", "log": ""}, "permit": [{"info": " "}, {"log": "x"}]}
    row.save()
    (published,) = pap.publish().document
    assert published["obligations"] == {"deny": {"log": ""}, "permit": [{}, {"log": "x"}]}
    row.obligations = {"deny": {"inform": "Not today."}}
    row.save()
    assert pap.publish().document[0]["obligations"] == row.obligations


def test_a_published_version_is_never_changed(draft):
    version = pap.publish()
    version.note = "other"
    with pytest.raises(TypeError):
        version.save()


def test_a_draft_with_a_fault_is_not_published(draft):
    NamedList.objects.all().delete()
    with pytest.raises(pap.NotFit, match="no list named 'bad'"):
        pap.publish()
    assert not Version.objects.exists()


def test_a_failing_test_blocks_publication(draft):
    PolicyTest.objects.create(name="eve passes", case={**EXPECT_DENY, "expect": "permit"})
    with pytest.raises(pap.NotFit, match="eve passes: the decision is 'deny'"):
        pap.publish()


def test_a_passing_and_an_inactive_test_do_not(draft):
    PolicyTest.objects.create(name="eve is out", case=EXPECT_DENY)
    PolicyTest.objects.create(name="off", case={"expect": "nonsense"}, is_active=False)
    assert pap.publish().number == 1


def test_rolling_back_publishes_the_old_and_keeps_the_draft_and_its_ids(draft):
    first = pap.publish()
    replace_draft([{"id": "other"}], {})
    second = pap.publish()
    kept, ids = draft_document(), set(PolicySet.objects.values_list("pk", flat=True))
    third = pap.roll_back(first)
    assert (third.number, third.document, third.lists) == (3, first.document, first.lists)
    assert draft_document() == kept == second.document
    assert set(PolicySet.objects.values_list("pk", flat=True)) == ids


def test_what_is_in_force_is_not_rolled_back_to(draft):
    first = pap.publish()
    with pytest.raises(pap.InForce):
        pap.roll_back(first)
    assert Version.objects.count() == 1


def test_the_difference_of_versions_is_told(draft):
    first = pap.publish()
    PolicySet.objects.filter(key="night").update(priority=7)
    lines = pap.difference(first, None)
    assert any(line.startswith("-") and '"priority": 3' in line for line in lines)
    assert any(line.startswith("+") and '"priority": 7' in line for line in lines)


def test_workers_take_the_newest_version_once(draft):
    assert prp.active_sets().version == 0
    pap.publish()
    snapshot = prp.active_sets(0)
    assert (snapshot.version, snapshot.enforced.rules) == (1, 2)
    assert prp.active_sets(1) is None


def test_sets_that_are_off_are_not_compiled_and_shadows_do_not_enforce(draft):
    PolicySet.objects.filter(key="night").update(mode="off")
    pap.publish()
    assert prp.active_sets().is_empty
    PolicySet.objects.filter(key="night").update(mode="shadow")
    pap.publish()
    snapshot = prp.active_sets()
    assert snapshot.enforced.rules == 0
    assert snapshot.shadow.rules == 2


def test_a_fault_has_its_place_in_the_whole_document_and_sets_that_are_off_have_none():
    faulty = {"policies": [{"rules": [{"effect": "maybe"}]}]}
    document = [{**faulty, "mode": "off"}, {"mode": "shadow", "policies": []}, faulty]
    (problem,) = pap.check(document, {}).problems
    assert problem.path == "$[2].policies[0].rules[0].effect"


def test_a_large_draft_is_read_in_few_queries(django_assert_max_num_queries):
    rules = [{"effect": "deny", "condition": {"msgId": {"equals": n}}} for n in range(300)]
    replace_draft([{"id": "many", "policies": [{"id": "P", "rules": rules}]}], {})
    with django_assert_max_num_queries(4):
        draft_document()


def test_import_replaces_sets_of_the_same_id_and_keeps_others(draft):
    add_to_draft([{"id": "other", "policies": []}], "shadow")
    add_to_draft([{"id": "night", "policies": []}])
    assert {row.key: row.mode for row in PolicySet.objects.all()} == {
        "night": "off",
        "other": "shadow",
    }


def test_sets_of_one_id_may_stand_in_different_sets(draft):
    document = [
        {"id": outer, "policies": [{"id": "inner", "policies": []}, {"id": outer, "policies": []}]}
        for outer in ("a", "b")
    ]
    replace_draft(document, {})
    replace_draft(draft_document(), {})
    assert [inner["id"] for inner in draft_document()[1]["policies"]] == ["inner", "b"]


def test_a_set_cannot_stand_in_itself(draft):
    replace_draft([{"id": "a", "policies": [{"id": "b", "policies": []}]}], {})
    outer, inner = PolicySet.objects.get(key="a"), PolicySet.objects.get(key="b")
    outer.parent = inner
    with pytest.raises(ValidationError, match="in itself"):
        outer.full_clean()


def test_a_fault_anywhere_leaves_the_draft_as_it_was(draft):
    with pytest.raises(PolicyError):
        add_to_draft([{"id": "night", "policies": []}, {"id": "bad", "policies": 5}])
    assert draft_document()[0]["priority"] == 3


def test_a_bundle_survives_writing_and_reading(draft):
    text = write_bundle(draft_document(), draft_lists(), 4)
    bundle = read_bundle(text)
    assert (bundle.document, bundle.lists, bundle.version) == (draft_document(), LISTS, 4)


def test_a_bundle_that_was_changed_is_refused(draft):
    text = write_bundle(draft_document(), draft_lists()).replace("eve@a.com", "all@a.com")
    with pytest.raises(PolicyError, match="hash"):
        read_bundle(text)


def test_a_policy_of_a_runtime_is_read():
    raw = {
        "MyPolicy": {
            "key": "MyPolicy",
            "combiningAlgorithm": "allowOverrides",
            "rules": [
                {
                    "decision": False,
                    "priority": 0,
                    "scope": "identity",
                    "target": "bob@a.com",
                    "condition": [
                        "not",
                        {"attribute": "source", "operator": "in", "params": ["eve@a.com"]},
                    ],
                }
            ],
        }
    }
    (policy_set,) = read_bundle(json.dumps(raw)).document
    (rule,) = policy_set["policies"][0]["rules"]
    assert rule["effect"] == "deny"
    assert rule["target"] == {"srcUsername": {"equals": "bob@a.com"}}
    assert rule["condition"] == {"not": [{"srcUsername": {"in": ["eve@a.com"]}}]}
    add_to_draft([policy_set])


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        (("date", "equals", "13/02/2017"), {"date": {"equals": "2017-02-13"}}),
        (("weekday", "equals", "0"), {"weekday": {"equals": "sunday"}}),
        (("weekday", "in", ["1", "6"]), {"weekday": {"in": ["monday", "saturday"]}}),
        (("time", "between", ["0800", "1730"]), {"time": {"between": "08:00 17:30"}}),
        (("time", "between", [800, 1730]), {"time": {"between": "08:00 17:30"}}),
        (("time", "between", "2200 600"), {"time": {"between": "22:00 06:00"}}),
        (("domain", "equals", "a.com"), {"srcIDPDomain": {"equals": "a.com"}}),
        (("source", "in", "bad"), {"srcUsername": {"in": "@bad"}}),
        (("valueNumber", "greaterThan", 5), {"valueNumber": {"moreThan": 5}}),
    ],
)
def test_a_condition_of_a_runtime_is_read_in_the_words_of_the_language(draft, condition, read):
    attribute, operator, params = condition
    raw = {"attribute": attribute, "operator": operator, "params": params}
    text = json.dumps({"P": {"rules": [{"decision": True, "condition": raw}]}})
    bundle = read_bundle(text)
    assert bundle.document[0]["policies"][0]["rules"][0]["condition"] == read
    add_to_draft(bundle.document)


@pytest.mark.parametrize("name", presets.names())
def test_what_comes_with_the_node_is_in_order_and_described(name):
    call_command("policy_import", readymade=name, mode="enforce", publish=True)
    assert presets.summary(name)


def test_what_comes_with_the_node_does_what_it_says():
    for name in presets.names():
        call_command("policy_import", readymade=name, mode="enforce")
    NamedList.objects.filter(name="blocked-users").update(members="eve@a.com")
    call_command("policy_import", readymade="blocked-users", mode="enforce")
    snapshot = pap.check_draft().snapshot.enforced
    hyperty, registry = "hyperty://b.com/2", "domain://registry.b.com"
    handler, known = "runtime://b.com/2/p2phandler/1", {"user": "b@a.com"}
    for given, to, type_, expected in (
        ({"user": "eve@a.com"}, hyperty, "create", "deny"),  # the list was kept
        ({"user": "bob@a.com"}, hyperty, "create", "notApplicable"),
        ({}, hyperty, "create", "deny"),
        ({}, hyperty, "response", "notApplicable"),
        ({}, registry, "read", "notApplicable"),
        ({}, "mn:/session", "open", "notApplicable"),
        (known, handler, "create", "deny"),  # P13
        (known, handler, "execute", "notApplicable"),
        ({"user": "b@a.com", "pip": {"rate.srcUsername.day": 100001}}, hyperty, "read", "deny"),
        ({"user": "b@a.com", "pip": {"rate.srcSession.minute": 6001}}, hyperty, "read", "deny"),
    ):
        case = {"msg": {"to": to, "type": type_}, "expect": expected, **given}
        assert run_case(case, snapshot).faults == ()


def test_an_import_with_a_fault_changes_no_list_either(admin_client, draft):
    file = io.BytesIO(json.dumps({"lists": {"bad": []}, "sets": [{"id": 5, "x": 1}]}).encode())
    file.name = "policies.json"
    page = admin_client.post(reverse("admin:policies_import"), {"file": file, "mode": ""})
    assert "has no such key" in page.content.decode()
    assert draft_lists() == LISTS


def test_an_import_keeps_the_modes_of_the_file_if_asked(admin_client, draft):
    file = io.BytesIO(write_bundle(draft_document(), draft_lists()).encode())
    file.name = "policies.json"
    address = reverse("admin:policies_import")
    assert admin_client.post(address, {"mode": "off"}).context["form"].non_field_errors()
    admin_client.post(address, {"file": file, "mode": ""})
    assert PolicySet.objects.get(key="night").mode == "enforce"


@pytest.mark.parametrize("text", ["5", "{}", '{"sets": 1}', '{"sets": [], "lists": {"a": 1}}', "x"])
def test_what_is_no_policy_file_is_refused(text):
    with pytest.raises(PolicyError):
        read_bundle(text)


def test_commands_import_check_and_export(draft, tmp_path, capsys):
    file = tmp_path / "policies.json"
    call_command("policy_export", "--draft", "--output", str(file))
    PolicySet.objects.all().delete()
    call_command("policy_import", str(file), "--mode", "enforce", "--publish", "--note", "again")
    assert "Version 1 is published." in capsys.readouterr().out
    call_command("policy_check")
    assert capsys.readouterr().out == "Fit: 2 enforced rules, 0 tests passed.\n"
    call_command("policy_export")
    assert json.loads(capsys.readouterr().out)["version"] == 1


def test_the_check_command_tells_every_fault_with_its_path(tmp_path):
    file = tmp_path / "policies.json"
    file.write_text('[{"policies": [{"rules": [{"effect": "x"}]}], "prio": 1}]')
    with pytest.raises(CommandError) as caught:
        call_command("policy_check", str(file))
    assert "$[0].prio: " in str(caught.value)
    assert "$[0].policies[0].rules[0].effect: " in str(caught.value)


def test_the_test_command_counts_and_fails(tmp_path, capsys):
    file = tmp_path / "cases.jsonl"
    file.write_text('{"id": "a", "cond": {}, "expect": "permit"}\n{"id": "b", "cond": 1}\n{\n')
    with pytest.raises(SystemExit) as caught:
        call_command("policy_test", str(file))
    out = capsys.readouterr().out.splitlines()
    assert caught.value.code == 1
    assert out[-1] == "1 passed, 2 failed"
    assert out[0].startswith("FAILED b: $[0].policies[0].rules[0].condition: ")


def test_a_file_is_checked_with_the_lists_that_are_kept(draft, tmp_path, capsys):
    file = tmp_path / "policies.json"
    rule = {"effect": "deny", "condition": {"srcUsername": {"in": "@bad"}}}
    file.write_text(json.dumps([{"policies": [{"rules": [rule]}]}]))
    call_command("policy_check", str(file))
    assert "Fit" in capsys.readouterr().out


@pytest.mark.django_db(transaction=True)
def test_a_file_that_comes_slowly_holds_up_nobody_who_writes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def bring() -> None:
        call_command("policy_import", str(pipe), stdout=io.StringIO())
        connection.close()

    importing = threading.Thread(target=bring)
    importing.start()
    with pipe.open("w") as file:  # once it is being read
        NamedList.objects.create(name="meanwhile")
        file.write('[{"id": "slow", "policies": []}]')
    importing.join(20)
    assert PolicySet.objects.filter(key="slow").exists()
