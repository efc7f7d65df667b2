"""What the editor is told while a rule is built: its sentence, and what it would have changed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from msgnode.console import roles
from msgnode.traffic import kinds
from policies.apps import PoliciesConfig
from policies.authoring import pap, standing
from policies.authoring.drafts import draft_document, policy_of_the_console, replace_draft
from policies.models import Policy, Rule, Version

pytestmark = pytest.mark.django_db

HOUR = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def policy() -> Policy:
    rules = [{"id": "no-x", "effect": "deny", "condition": {"msgTo": {"equals": "comm://a/x"}}}]
    inner = {"id": "T", "policies": [{"id": "P", "rules": rules}]}
    replace_draft([{"id": "S", "mode": "off", "policies": [inner]}], {})
    return Policy.objects.get()


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Messages of an hour: three to x, four to y. The hours that were asked for."""
    asked: list[int] = []

    def recorded(until: datetime, hours: int, most: int) -> kinds.Kinds:
        asked.append(hours)
        rows = [
            (kinds.Kind(HOUR, "read", "hyperty://a/1", f"comm://a/{to}", f"runtime://a/{to}"), n)
            for to, n in (("x", 3), ("y", 4))
        ]
        return kinds.Kinds(rows, 7, True)

    monkeypatch.setattr(PoliciesConfig.installed(), "recorded", recorded, raising=False)
    return asked


def asked(client: Client, name: str, **form: Any) -> Any:
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in form.items()
    }
    return client.post(reverse(f"admin:policies_{name}_typed"), texts).json()


def test_a_rule_is_said_as_it_stands_in_the_form(admin_client: Client) -> None:
    told = asked(
        admin_client, "say", layer="rule", effect="deny",
        condition={"actionType": {"equals": "create"}}, obligations={"inform": "No."},
    )  # fmt: skip
    said = "Refuses a message if its type is create, and tells its sender “No.”."
    assert told["sentence"] == said
    told = asked(admin_client, "say", layer="policy", target={"bytes": {"moreThan": 5}})
    assert told["sentence"].startswith("This policy is asked about a message if its length")
    assert asked(admin_client, "say", layer="set", target="")["sentence"].endswith("every message.")


@pytest.mark.parametrize(
    "operator", ["equals", "in", "moreThan", "between", "contains", "like", "exists"]
)
def test_a_test_without_a_value_is_a_fault_and_not_a_rule_for_everything(
    admin_client: Client, operator: str
) -> None:
    told = asked(
        admin_client, "say", layer="rule", effect="deny", condition={"bytes": {operator: None}}
    )
    assert told["sentence"] == ""
    assert told["problems"]


@pytest.mark.parametrize("condition", ["{", "[1]", '{"nope": {"equals": 1}}', '{"not":' * 3000])
def test_what_is_not_in_order_is_said_and_nothing_fails(
    admin_client: Client, condition: str, policy: Policy, record: list[int]
) -> None:
    told = asked(admin_client, "say", layer="rule", effect="deny", condition=condition)
    assert told["problems"]
    told = asked(
        admin_client, "try", layer="rule", effect="deny", condition=condition, policy=str(policy.pk)
    )
    assert told["fault"]


def test_a_new_rule_is_tried_against_the_draft_without_it(
    admin_client: Client, policy: Policy, record: list[int]
) -> None:
    before = draft_document()
    told = asked(
        admin_client, "try", effect="deny", key="no-y", policy=str(policy.pk), hours="6",
        condition={"msgTo": {"equals": "comm://a/y"}},
    )  # fmt: skip
    assert (told["refused"], told["passed"], told["looked_at"]) == (4, 0, 7)
    assert told["senders"] == [{"name": "runtime://a/y", "refused": 4, "passed": 0}]
    assert told["rules"][0]["name"] == "S/T/P/no-y"
    assert record == [6]
    assert draft_document() == before
    assert not Version.objects.exists()


def test_a_rule_that_is_changed_is_tried_in_its_own_place(
    admin_client: Client, policy: Policy, record: list[int]
) -> None:
    form = {"effect": "deny", "key": "no-x", "policy": str(policy.pk)}
    rule = Rule.objects.get()
    told = asked(
        admin_client, "try", **form, rule=str(rule.pk), condition={"msgTo": {"like": "comm://a/*"}}
    )
    assert told["refused"] == 7  # counted without what the rule refuses already
    told = asked(admin_client, "try", **form, condition={"msgTo": {"equals": "comm://a/y"}})
    assert told["refused"] == 4  # another rule of the same id: said when it is saved


@pytest.mark.parametrize("policy_", ["", "9" * 30])
def test_a_rule_without_a_policy_is_tried_in_the_one_it_would_be_saved_in(
    admin_client: Client, record: list[int], policy_: str
) -> None:
    told = asked(admin_client, "try", effect="deny", policy=policy_)
    assert told["refused"] == told["looked_at"] > 0
    assert not Policy.objects.filter(key="rules").exists()


def test_without_a_record_and_with_one_that_cannot_be_read_it_is_said(
    admin_client: Client, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PoliciesConfig.installed(), "recorded", None, raising=False)
    assert "keeps no record" in asked(admin_client, "try", effect="deny")["fault"]

    def broken(*_: Any) -> Any:
        raise OSError("no such disk")

    monkeypatch.setattr(PoliciesConfig.installed(), "recorded", broken, raising=False)
    told = asked(admin_client, "try", effect="deny", policy=str(policy.pk))
    assert "no such disk" in told["fault"]


def test_beside_the_button_stands_what_the_rule_would_have_done_and_it_acts_at_once(
    admin_client: Client, record: list[int]
) -> None:
    mail = {"id": "user", "effect": "deny", "condition": {"srcUsername": {"equals": "eve@a"}}}
    policies = [{"id": "P", "rules": [mail]}]
    replace_draft([{"id": "House", "mode": "enforce", "policies": policies}], {})
    condition = {"msgTo": {"equals": "comm://a/x"}}
    rule = Rule.objects.create(key="no-x", policy=policy_of_the_console(), condition=condition)
    address = reverse("admin:policies_rule_force", args=[rule.pk])
    told = admin_client.get(address).content.decode()
    assert "would have refused <strong>3</strong> more" in told
    assert record == [24]
    pap.publish()
    told = admin_client.get(address).content.decode()
    assert "Not among them are 7 messages whose decision cannot be told" in told
    assert "alone, <strong>3</strong> of 7 would have been refused" in told
    shown = re.search(r'name="shown-enforce" value="(\w+)"', told)[1]
    form = {"act": "enforce", "shown-enforce": shown}
    said = admin_client.post(address, form, follow=True).content.decode()
    assert "Version 2 is published: this rule is enforced from now on" in said
    assert "messages are decided by this rule now" in said
    said = admin_client.post(address, form, follow=True).content.decode()
    assert "Nothing is published" in said
    admin_client.post(address, {"act": "take-back"})
    assert standing.standing_of(rule).state is standing.State.SHADOW
    assert pap.current().number == 3


def test_who_may_not_publish_neither_enforces_nor_is_offered_to(
    client: Client, django_user_model: Any
) -> None:
    rule = Rule.objects.create(key="R", policy=policy_of_the_console())
    viewer = django_user_model.objects.create_user("viewer", is_staff=True)
    viewer.groups.add(Group.objects.get(name=roles.VIEWER))
    client.force_login(viewer)
    address = reverse("admin:policies_rule_force", args=[rule.pk])
    assert client.post(address, {"act": "enforce"}).status_code == 403
    page = client.get(reverse("admin:policies_rule_change", args=[rule.pk])).content.decode()
    assert "no message is decided by this rule" in page
    assert address not in page
