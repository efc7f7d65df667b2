"""Definitions written out on one node and taken in on another that has lost everything."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from msgnode.console import definitions, operator_actions
from msgnode.models import (
    AddressPool,
    AuditEntry,
    Ban,
    ControlMessage,
    PoolAddress,
    Session,
    Subscription,
)

from .rows import fill

pytestmark = pytest.mark.django_db


def run(*words: str, **options: Any) -> str:
    out = StringIO()
    call_command(*words, stdout=out, **options)
    return out.getvalue()


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """Three sessions, a pool, two bans: the definitions of a node."""
    fill(3)
    pool = AddressPool.objects.create(scheme="sip", note="guests")
    operator_actions.fill_pool(pool, ["sip:1@b.org", "sip:2@b.org"])
    Ban.objects.create(kind="runtime", value="runtime://localhost/bad", reason="spam")
    Ban.objects.create(kind="source", value="192.0.2.0/24", expires_at=timezone.now())
    path = tmp_path / "definitions.json"
    run("definitions_export", "--output", str(path))
    return path


def lose_everything() -> None:
    for model in (PoolAddress, AddressPool, Ban, Subscription, ControlMessage, AuditEntry):
        model.objects.all().delete()


def test_everything_comes_back(document):
    before = definitions.collect()
    lose_everything()
    new = json.loads(run("definitions_import", str(document), "--json"))["new"]
    assert new == {"addresses": 2, "bans": 2, "subscriptions": 3, "without_session": 0}
    assert definitions.collect() == before
    kinds = list(ControlMessage.objects.values_list("kind", flat=True))
    assert kinds == ["pools.changed", "bans.changed", *["subscription.add"] * 3]
    assert AuditEntry.objects.filter(action="definitions.import").exists()


def test_taken_in_twice_it_changes_nothing(document):
    before = definitions.collect()
    run("definitions_import", str(document))
    assert definitions.collect() == before


def test_a_subscription_finds_the_new_session_of_its_runtime(document):
    old = Session.objects.get(runtime_url="runtime://localhost/user000001")
    lose_everything()
    Session.objects.all().delete()
    new = Session.objects.create(runtime_url=old.runtime_url, handshake="ws")
    output = run("definitions_import", str(document))
    assert Subscription.objects.get().session == new
    assert "2 without a session" in output


def test_no_secret_is_in_the_document(document):
    text = document.read_text()
    assert Session.objects.first().token_hash not in text


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"version": 2}, "not version 1"),
        ({"kind": "recipes"}, "not version 1"),
        ({"others": []}, "unknown field"),
        ({"pools": [{"scheme": "sip", "addresses": ["tel:1"]}]}, "faults"),
        ({"bans": [{"kind": "source", "value": "10.0.0"}]}, "faults"),
        ({"bans": [{"kind": "planet", "value": "Mars"}]}, "faults"),
        ({"subscriptions": [{"session": "", "runtime_url": "x", "address": ""}]}, "faults"),
        ({"subscriptions": [{"session": "", "runtime_url": "x", "address": "tel"}]}, "faults"),
        ({"pools": [{"scheme": "one two"}]}, "faults"),
    ],
)
def test_a_document_with_a_fault_changes_nothing(document, change, fault):
    changed = {**json.loads(document.read_text()), **change}
    document.write_text(json.dumps(changed))
    lose_everything()
    with pytest.raises(CommandError, match=fault) as refused:
        run("definitions_import", str(document))
    assert refused.value.returncode == 1
    assert definitions.collect() == definitions.Definitions()


def test_what_is_taken_in_is_stored_as_the_console_stores_it(document):
    lose_everything()
    bans = [{"kind": "source", "value": "192.0.2.7/24"}, {"kind": "domain", "value": "B.example"}]
    told = {"kind": definitions.KIND, "version": 1, "pools": [{"scheme": "SIP:"}], "bans": bans}
    document.write_text(json.dumps(told))
    run("definitions_import", str(document))
    assert AddressPool.objects.get().scheme == "sip"
    assert set(Ban.objects.values_list("value", flat=True)) == {"192.0.2.0/24", "b.example"}


def test_a_dry_run_only_looks(document):
    lose_everything()
    run("definitions_import", str(document), "--dry-run")
    assert definitions.collect() == definitions.Definitions()


def test_status_without_a_node_says_so():
    with pytest.raises(CommandError, match="No worker") as refused:
        run("node_status", "--json")
    assert refused.value.returncode == 1


@pytest.mark.parametrize(
    "command",
    ["node_status", "node_send", "node_tail", "definitions_export", "definitions_import"],
)
def test_help_shows_an_example(command, capsys):
    with pytest.raises(SystemExit):
        call_command(command, "--help")
    text = capsys.readouterr().out
    assert f"Example:\n  manage.py {command}" in text.replace("ssh old ", "")
    assert "--json" in text
