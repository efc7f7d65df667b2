"""Connectors by script in the console, over REST and by command: the same rights and sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from msgnode.console.roles import ADMINISTRATOR, OPERATOR, VIEWER
from msgnode.models import AuditEntry, Connector, ConnectorSecret, ControlMessage
from msgnode.scripts import store
from tests.scripts.stage import needs_deno, script

from .accounts import as_role

pytestmark = pytest.mark.django_db

ALL = "/api/v1/connectors/"
ONE = f"{ALL}domain-registry/"
LIST = reverse("admin:msgnode_connector_changelist")
SOURCE = script("""async find({ url }) {
  const headers = { "X-Key": node.secret("key") };
  const answer = await fetch(`https://api.example/${config.path}`, { headers });
  if (answer.status === 404) throw Object.assign(new Error("not there"), { code: 404 });
  return { [url]: await answer.json() };
}""")
PARTS: dict[str, Any] = {
    "source": SOURCE, "configuration": {"path": "a"}, "origins": ["https://api.example"],
    "secrets": {"key": "https://api.example"},
}  # fmt: skip


@pytest.fixture
def administrator() -> Client:
    return as_role(ADMINISTRATOR)


def post(client: Client, path: str, **body: Any) -> Any:
    return client.post(path, body, content_type="application/json")


def test_case_84_a_script_is_given_gets_its_secret_and_is_approved(administrator: Client) -> None:
    added = post(administrator, ALL, port="domain-registry", **PARTS)
    assert added.status_code == 201, added.content
    assert added.json()["decision"] == "pending"
    early = post(administrator, f"{ONE}approve/")
    assert (early.status_code, "lacks the value of key" in early.json()["detail"]) == (409, True)
    assert post(administrator, f"{ONE}secret/", name="key", value="s3cr3t").status_code == 204
    wrong = post(administrator, f"{ONE}approve/", digest="0000")
    assert (wrong.status_code, added.json()["found_digest"] in wrong.json()["detail"]) == (
        409,
        True,
    )
    approved = post(administrator, f"{ONE}approve/", digest=added.json()["found_digest"][:10])
    assert (approved.status_code, approved.json()["approved_by"]) == (200, ADMINISTRATOR)
    assert ControlMessage.objects.filter(kind=store.CHANGED).exists()
    again = post(administrator, ALL, port="domain-registry", **{**PARTS, "origins": [
        "https://api.example", "https://b.example",
    ]})  # fmt: skip
    assert again.json()["found_digest"] != added.json()["found_digest"]
    assert again.json()["approved_digest"] == added.json()["found_digest"], "until it is approved"
    for act, decision in (("pause", "paused"), ("resume", "approved"), ("restart", "approved")):
        assert post(administrator, f"{ONE}{act}/").json()["decision"] == decision
    versions = administrator.get(f"{ONE}versions/").json()
    assert [each["source"] for each in versions] == [SOURCE] * 2
    done = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert done == [
        f"connector.{each}"
        for each in ("add", "secret", "approve", "add", "pause", "resume", "restart")
    ]
    sealed = ConnectorSecret.objects.get().sealed
    pages = [administrator.get(path) for path in (ONE, f"{ONE}versions/", LIST)]
    for told in (sealed, *AuditEntry.objects.values_list("after", flat=True), *pages):
        assert "s3cr3t" not in str(getattr(told, "content", told))
    assert administrator.delete(ONE).status_code == 204
    assert not Connector.objects.exists()


def test_case_84_only_administrators_decide(administrator: Client) -> None:
    post(administrator, ALL, port="domain-registry", **PARTS)
    for role in (VIEWER, OPERATOR):
        other = as_role(role)
        assert other.get(ONE).status_code == 200
        for path in (f"{ONE}approve/", f"{ONE}secret/", f"{ONE}try/", f"{ONE}pause/", ALL):
            assert post(other, path, port="domain-registry").status_code == 403, path
        assert other.delete(ONE).status_code == 403
    assert Connector.objects.get().decision == "pending"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"source": " "}, "source"),
        ({"source": "x" * 1_100_000}, "source"),
        ({"port": "mqtt"}, "port"),
        ({"port": "identity"}, "configuration"),
        ({"configuration": {"a": "x" * 70_000}}, "configuration"),
        ({"origins": ["https://api.example/v1"]}, "origins"),
        ({"origins": ["ftp://api.example"]}, "origins"),
        ({"origins": ["https://a@api.example"]}, "origins"),
        ({"secrets": {"key": "https://evil.example"}}, "secrets"),
        ({"secrets": {"Key!": "*"}}, "secrets"),
        ({"decision": "approved"}, "decision"),
    ],
)
def test_what_cannot_be_a_version_is_refused_by_name(
    administrator: Client, wrong: dict[str, Any], named: str
) -> None:
    answer = post(administrator, ALL, **{"port": "domain-registry", **PARTS, **wrong})
    assert answer.status_code == 400, answer.content
    assert named in answer.content.decode()
    assert not Connector.objects.exists()


@needs_deno
def test_the_workbench_runs_a_script_against_recorded_answers_and_sends_nothing(
    administrator: Client,
) -> None:
    post(administrator, ALL, port="domain-registry", **PARTS)
    calls = [{"method": "find", "argument": {"url": "hyperty://d/1"}}, {"method": "gone"}]
    answers = {"GET https://api.example/a": {"body": {"status": "live"}}}
    told = post(administrator, f"{ONE}try/", calls=calls, answers=answers).json()
    found, gone = told["calls"]
    assert found["value"] == {"hyperty://d/1": {"status": "live"}}
    assert found["ms"] > 0
    assert (gone["code"], gone["error"]) == (502, "it has no method gone")
    assert told["requests"][0]["request"] == "GET https://api.example/a"
    assert told["requests"][0]["headers"]["x-key"] == "(secret)"
    refused = post(administrator, f"{ONE}try/", calls=calls[:1]).json()
    assert "no answer to it was recorded" in refused["refused"][0]
    broken = post(administrator, f"{ONE}try/", source="export default 5").json()
    assert "exports no function" in broken["fault"]
    assert not Connector.objects.get().approved_digest


@needs_deno
def test_the_pages_show_a_script_and_do_what_rest_does(admin_client: Client) -> None:
    add = {
        "port": "domain-registry", "source": SOURCE, "configuration": '{"path": "a"}',
        "origins": "https://api.example\n", "secrets": json.dumps(PARTS["secrets"]),
        "secret_name": "key", "secret_value": "s3cr3t",
    }  # fmt: skip
    said = admin_client.post(reverse("admin:msgnode_connector_add"), add, follow=True)
    row = Connector.objects.get()
    assert row.found_digest == store.digest_of(store.checked(PARTS)), said.content.decode()
    assert ConnectorSecret.objects.count() == 1
    change = reverse("admin:msgnode_connector_change", args=[row.pk])
    page = admin_client.get(change).content.decode()
    assert ("api.example" in page, "s3cr3t" in page) == (True, False)
    wrong = {**add, "secrets": '{"key": "https://evil.example"}'}
    assert "none of the origins" in admin_client.post(change, wrong).content.decode()

    def act(action: str, **more: Any) -> str:
        body = {"action": action, "_selected_action": [row.pk], **more}
        answer = admin_client.post(LIST, body, follow=True)
        assert answer.status_code == 200
        return str(answer.content.decode())

    assert "may run" in act("approve")
    assert "Workbench" in act("try_it")
    call = json.dumps([{"method": "find", "argument": {"url": "hyperty://d/1"}}])
    answers = json.dumps({"GET https://api.example/a": {"status": 404, "body": "{}"}})
    shown = act("try_it", confirmed="yes", source=SOURCE, calls=call, answers=answers)
    assert "not there" in shown
    assert "paused" in act("pause")
    assert row.scripts.count() == 1


def test_the_command_gives_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, value = tmp_path / "a.js", tmp_path / "value"
    file.write_text(SOURCE)
    value.write_text("s3cr3t\n")
    words = ("--script", str(file), "--config", '{"path": "a"}', "--origins", "https://api.example")
    with pytest.raises(CommandError, match="none of the origins"):
        call_command("connectors", "add", "qos", *words, "--secrets", "key=https://evil.example")
    call_command("connectors", "add", "qos", *words, "--secrets", "key=https://api.example")
    call_command("connectors", "secret", "qos", "--name", "key", "--value-file", str(value))
    call_command("connectors", "approve", "qos")
    with pytest.raises(CommandError, match="Look at: qos"):
        call_command("connectors")
    call_command("connectors", "versions", "qos")
    digest = Connector.objects.get().approved_digest
    assert f"{digest} " in capsys.readouterr().out
    call_command("connectors", "remove", "qos")
    assert not Connector.objects.exists()
