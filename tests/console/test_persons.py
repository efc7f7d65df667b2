"""What is kept about a person is written out whole, and is gone when it is erased."""

from __future__ import annotations

import json
import re
import shutil
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from msgnode.console import persons
from msgnode.core.redaction import without_persons
from msgnode.identity.bindings import key_name
from msgnode.models import (
    AddressOwner,
    Alarm,
    Allocation,
    AuditEntry,
    Ban,
    ComponentStatus,
    Connector,
    ControlMessage,
    IdentityBinding,
    LegacyAddress,
    LegacyNetwork,
    Session,
)
from msgnode.qos.models import Reservation
from msgnode.scripts.store import FORGET
from policies.models import DecisionEntry, NamedList
from registry import api
from registry.api import Kind
from registry.models import DataObject, Hyperty, StatusChange
from registry.models import Runtime as RegistryRuntime
from registry.models import User as RegistryUser
from tests.node import ROOT, Node

pytestmark = pytest.mark.django_db

EMAIL = "alice@localhost"
FACTS = {
    "descriptor": "d", "resources": [], "dataSchemes": [], "status": "live", "expires": 60,
}  # fmt: skip


def run(*words: str) -> Any:
    out = StringIO()
    call_command(*words, "--json", stdout=out)
    return json.loads(out.getvalue())


def live_of(name: str, runtime: str = "") -> dict[str, Any]:
    """Somebody with everything the node can keep."""
    user = User.objects.create_user(name, f"{name}@localhost", "a password")
    runtime = runtime or f"runtime://localhost/{name}"
    session = Session.objects.create(
        runtime_url=runtime, handshake="ws", remote_address="192.0.2.1",
        issuer=settings.PROVIDER["ISSUER"], subject=str(user.pk),
    )  # fmt: skip
    hyperty = f"hyperty://localhost/{name}"
    Allocation.objects.create(address=hyperty, scheme="hyperty", session=session)
    AddressOwner.objects.create(
        address=hyperty, issuer=settings.PROVIDER["ISSUER"], subject=str(user.pk)
    )
    IdentityBinding.objects.create(
        name=f"digest of {name}", value=runtime, runtime_url=runtime, ends_at=timezone.now()
    )
    api.register(
        Kind.HYPERTY, hyperty, {**FACTS, "runtime": runtime}, f"user://localhost/{user.email}"
    )
    api.register(
        Kind.OBJECT, f"comm://localhost/{name}",
        {**FACTS, "runtime": runtime, "name": "n", "schema": "s", "reporter": hyperty},
    )  # fmt: skip
    DecisionEntry.objects.create(
        at=timezone.now(), direction="in", effect="deny", passes=False, version=1, type="read",
        sender=hyperty, to="x", username=user.email, session=str(session.pk),
    )  # fmt: skip
    AuditEntry.objects.create(actor=name, action="x.change", object="y", before={}, after={"a": 1})
    AuditEntry.objects.create(
        actor="boss", action="user.change", object=name, before={"email": user.email}, after={}
    )
    return {"user": user, "session": session, "hyperty": hyperty}


def test_everything_is_written_out_and_nothing_of_others() -> None:
    live_of("alice")
    live_of("bob")
    told = run("person_export", EMAIL)
    for kind in (
        "account", "sessions", "allocations", "address_owners", "token_bindings", "decisions",
    ):  # fmt: skip
        assert len(told[kind]) == 1, kind
    assert len(told["audit"]) == 2
    registry = {kind: len(rows) for kind, rows in told["registry"].items()}
    assert registry == {
        "runtime": 1, "user": 1, "hyperty": 1, "dataobject": 1, "statuschange": 2,
        "globalrecord": 0,
    }  # fmt: skip
    text = json.dumps(told)
    assert "bob" not in text
    assert "password" not in text
    assert "hyperty://localhost/alice" in told["record_pseudonyms"]


@pytest.mark.parametrize("name", ["alice", EMAIL, f"user://localhost/{EMAIL}", "ALICE@localhost"])
def test_a_person_is_found_under_each_name(name: str) -> None:
    live_of("alice")
    assert len(run("person_export", name)["sessions"]) == 1


def test_who_sees_a_person_in_a_legacy_network_is_told_and_erased() -> None:
    live_of("alice")
    network = LegacyNetwork.objects.create(domain="b.example", component="gw.b.example")
    for name in ("alice", "bob"):
        user = f"user://localhost/{name}@localhost"
        LegacyAddress.objects.create(
            network=network, kind="contact", here=user, there="x@b.example"
        )
    assert len(run("person_export", EMAIL)["legacy_addresses"]) == 1
    run("person_erase", EMAIL, "--yes")
    assert LegacyAddress.objects.get().here == "user://localhost/bob@localhost"


def test_a_subject_of_an_issuer_is_not_somebody_with_that_name() -> None:
    live_of("alice")
    Session.objects.create(runtime_url="runtime://x/1", issuer="https://i.example", subject="alice")
    told = run("person_export", "alice", "--issuer", "https://i.example")
    assert [row["issuer"] for row in told["sessions"]] == ["https://i.example"]
    assert told["account"] == []


def test_erased_nothing_is_left_of_the_one_and_everything_of_the_other() -> None:
    alice, bob = live_of("alice"), live_of("bob")
    run("person_erase", EMAIL, "--yes")
    for model in (User, Session, Allocation, AddressOwner, IdentityBinding, DecisionEntry, Hyperty,
                  DataObject, StatusChange, RegistryUser, AuditEntry):  # fmt: skip
        text = str(list(model.objects.values()))  # type: ignore[attr-defined]
        assert "alice" not in text, model
        assert "bob" in text or str(bob["session"].pk.hex) in text or model is AddressOwner, model
    assert ControlMessage.objects.filter(kind="session.end").count() == 1
    told = ControlMessage.objects.filter(kind="identity.revoked").get().payload
    assert told["subject"] == str(alice["user"].pk)
    assert AuditEntry.objects.get(action="person.erase").object == persons.ERASED
    assert AuditEntry.objects.filter(actor=persons.ERASED).count() == 1  # what, without who
    with pytest.raises(CommandError) as nothing:
        run("person_export", EMAIL)
    assert nothing.value.returncode == 1


def test_what_others_have_at_the_same_runtime_stays() -> None:
    """As two who log in at one device, one after the other."""
    shared = "runtime://localhost/shared"
    alice, bob = live_of("alice", shared), live_of("bob", shared)
    issuer = settings.PROVIDER["ISSUER"]
    for person in (alice, bob):
        subject = str(person["user"].pk)
        IdentityBinding.objects.create(
            name=key_name(shared, issuer, subject), value="of the key", runtime_url=shared,
            ends_at=timezone.now(),
        )  # fmt: skip
        Reservation.objects.create(
            id=person["user"].username, traffic_class="audio", bitrate=1, issuer=issuer,
            session_id=person["session"].pk, client_name=person["user"].username, subject=subject,
            runtime_url=shared, created_at=timezone.now(), expires_at=timezone.now(),
        )  # fmt: skip
    Alarm.objects.create(kind="gap", subject=shared, text="lost")
    AuditEntry.objects.create(actor="boss", action="session.end", object=shared, before={})
    bobs = persons.export(persons.names_of("bob@localhost"))
    told = persons.export(persons.names_of(EMAIL))
    assert "bob" not in json.dumps(told, default=str)
    run("person_erase", EMAIL, "--yes")
    left = persons.export(persons.names_of("bob@localhost"))
    for kind, rows in {**bobs, **bobs["registry"]}.items():
        there = left[kind] if kind in left else left["registry"][kind]
        assert all(row in there for row in rows), kind
    assert Alarm.objects.get().subject == shared
    assert AuditEntry.objects.filter(actor="boss", object=shared).exists()
    assert set(IdentityBinding.objects.values_list("name", flat=True)) == {
        "digest of alice", "digest of bob", key_name(shared, issuer, str(bob["user"].pk)),
    }  # fmt: skip
    assert RegistryRuntime.objects.get().url == shared
    assert [each.url for each in DataObject.objects.all()] == ["comm://localhost/bob"]
    run("person_erase", "bob@localhost", "--yes")
    for model in (IdentityBinding, RegistryRuntime, Hyperty, DataObject, Alarm):
        assert not model.objects.exists(), model  # type: ignore[attr-defined]


def test_what_names_a_person_elsewhere_is_told_and_loses_the_name() -> None:
    user = live_of("alice")["user"]
    Alarm.objects.create(kind="gap", subject="runtime://localhost/alice", text="lost")
    Alarm.objects.create(kind="gap", subject="runtime://localhost/bob", text="lost")
    ban = Ban.objects.create(value="runtime://localhost/mallory", reason="x", created_by="alice")
    NamedList.objects.create(name="friends", members="bob@localhost\nalice@localhost")
    NamedList.objects.create(name="others", members="bob@localhost")
    LogEntry.objects.create(user=user, object_repr="a policy", action_flag=2, object_id="1")
    told = run("person_export", EMAIL)
    assert [row["subject"] for row in told["alarms"]] == ["runtime://localhost/alice"]
    assert [row["name"] for row in told["named_lists"]] == ["friends"]
    assert [row["value"] for row in told["msgnode.Ban"]] == ["runtime://localhost/mallory"]
    assert len(told["console_history"]) == 1
    done = run("person_erase", EMAIL, "--yes")
    assert (done["alarms"], done["authors"]) == (1, 1)
    assert Alarm.objects.get().subject == "runtime://localhost/bob"
    ban.refresh_from_db()
    assert ban.created_by == persons.ERASED
    assert not LogEntry.objects.exists()


def test_the_page_says_of_each_table_what_it_keeps_of_persons() -> None:
    """One that is new belongs into the table of docs/security.md, or among those without."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = text.partition("## Personal data")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z][a-z0-9_]*\.(?:[A-Z]\w+|\*))`", section)
    assert len(named) == len(set(named))
    known = {model._meta.label for model in apps.get_models()}
    whole = {each.removesuffix(".*") for each in named if each.endswith(".*")}
    said = {each for each in named if not each.endswith(".*")}
    said |= {each for each in known if each.partition(".")[0] in whole}
    assert said == known


def test_a_reservation_is_told_and_stays_without_the_name() -> None:
    session = live_of("alice")["session"]
    alice = {"subject": session.subject, "issuer": session.issuer}
    for id_, about in (("one", alice), ("two", {})):
        Reservation.objects.create(
            id=id_, traffic_class="audio", bitrate=1, session_id=session.pk, client_name="alice",
            runtime_url=session.runtime_url, created_at=timezone.now(), expires_at=timezone.now(),
            received=7, **about,
        )  # fmt: skip
    assert {row["id"] for row in run("person_export", EMAIL)["reservations"]} == {"one", "two"}
    assert run("person_erase", EMAIL, "--yes")["reservations without the name"] == 2
    for row in Reservation.objects.all():
        assert (row.received, row.client_name, row.runtime_url, row.subject) == (7, "", "", "")


IDP = "https://idp.example"
URL = f"user://idp.example/{EMAIL}"


def live_elsewhere() -> None:
    """The same mail address, as an identity provider of somebody else vouches for it."""
    identity = {"issuer": IDP, "subject": "77", "username": EMAIL, "user_url": URL}
    session = Session.objects.create(
        runtime_url="runtime://localhost/phone", handshake="ws", issuer=IDP, subject="77",
        identity=identity,
    )  # fmt: skip
    AddressOwner.objects.create(address="hyperty://localhost/phone", issuer=IDP, subject="77")
    DecisionEntry.objects.create(
        at=timezone.now(), direction="in", effect="deny", passes=False, version=1, type="read",
        sender="hyperty://localhost/phone", to="x", username=URL, session=str(session.pk),
    )  # fmt: skip
    AuditEntry.objects.create(actor="boss", action="identity.revoke", object=URL, after={})
    Ban.objects.create(kind=Ban.Kind.SUBJECT, value=URL, reason="x")


@pytest.mark.parametrize("name", [EMAIL, URL, "ALICE@localhost"])
def test_a_person_is_found_at_another_identity_provider_by_mail_and_by_user_url(name: str) -> None:
    live_elsewhere()
    told = run("person_export", name)
    numbers = {kind: len(told[kind]) for kind in ("sessions", "address_owners", "decisions")}
    assert set(numbers.values()) == {1}, numbers
    if name == "ALICE@localhost":
        return  # what has only the text of the address is found as it is written
    assert {len(told[kind]) for kind in ("audit", "bans")} == {1}
    run("person_erase", name, "--yes")
    for model in (Session, AddressOwner, DecisionEntry, AuditEntry):
        assert EMAIL not in str(list(model.objects.values())), model  # type: ignore[attr-defined]


def test_sessions_without_an_identity_are_found_by_the_mail_address_in_their_runtime_url() -> None:
    for name in (EMAIL, "alice%40localhost", f"not-{EMAIL}", f"{EMAIL}.example"):
        Session.objects.create(runtime_url=f"runtime://localhost/{name}", handshake="ws")
    told = run("person_export", EMAIL)
    urls = {row["runtime_url"] for row in told["sessions"]}
    assert urls == {f"runtime://localhost/{EMAIL}", "runtime://localhost/alice%40localhost"}
    run("person_erase", EMAIL, "--yes")
    assert Session.objects.count() == 2


def test_no_component_names_a_person_in_its_last_error() -> None:
    live_of("alice")
    error = "is another's: "
    for number, name in enumerate(
        (EMAIL, f"user://localhost/{EMAIL}", "runtime://localhost/alice")
    ):
        ComponentStatus.objects.create(
            worker="w", name=str(number), kind="component", state="up", since=timezone.now(),
            seen_at=timezone.now(), last_error=error + name,
        )  # fmt: skip
        shown = without_persons(error + name)
        assert shown.startswith(error) and "alice" not in shown
    assert len(run("person_export", EMAIL)["components"]) == 3
    run("person_erase", EMAIL, "--yes")
    assert not ComponentStatus.objects.exclude(last_error="").exists()


@pytest.mark.parametrize("words", ["a" * 100_000, "a." * 50_000, f"{'a' * 100_000} {EMAIL}"])
def test_a_long_text_is_searched_for_persons_once(words: str) -> None:
    """From each of its characters to its end would take many minutes."""
    assert EMAIL not in without_persons(words)


def test_what_a_connector_shows_of_a_person_is_told_and_forgotten() -> None:
    live_of("alice")
    user, other = f"user://localhost/{EMAIL}", "user://localhost/mallory@example.org"
    calls = [{"method": "find", "argument": {"user": each}} for each in (user, other)]
    for port, figures, error in (
        ("domain-registry", {"recorded": calls, "log": [f"asked by {EMAIL}", "other"]}, ""),
        ("qos", {"refusals": [f"GET https://a.example/{quote(user, '')}: no"]}, f"no {user}"),
        ("global-registry", {"recorded": calls[1:], "log": ["other"]}, "other"),
        ("identity", None, ""),
    ):
        Connector.objects.create(port=port, figures=figures, last_error=error)
    told = {each["port"]: each["shown"] for each in run("person_export", EMAIL)["connectors"]}
    assert sorted(told) == ["domain-registry", "qos"]
    assert [len(lines) for lines in told.values()] == [2, 2]
    assert "mallory" not in str(told)
    run("person_erase", EMAIL, "--yes")
    left = {each.port: (each.figures, each.last_error) for each in Connector.objects.all()}
    assert left["domain-registry"] == left["qos"] == (None, "")
    assert left["global-registry"] == ({"recorded": calls[1:], "log": ["other"]}, "other")
    posted = ControlMessage.objects.filter(kind=FORGET)
    assert {each.payload["port"] for each in posted} == {"domain-registry", "qos"}


def test_values_in_the_audit_that_name_the_person_go_and_what_was_done_stays() -> None:
    live_of("alice")
    AuditEntry.objects.create(
        actor="boss", action="alarmrule.change", object="gaps", after={"mail_to": EMAIL}
    )
    run("person_erase", EMAIL, "--yes")
    entry = AuditEntry.objects.get(action="alarmrule.change")
    assert (entry.actor, entry.object, entry.after) == ("boss", "gaps", {})


def test_without_a_terminal_it_asks_for_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    live_of("alice")
    monkeypatch.setattr("sys.stdin", StringIO(""))
    with pytest.raises(CommandError, match="--yes"):
        run("person_erase", EMAIL)
    assert User.objects.filter(username="alice").exists()


def test_nothing_of_the_erased_is_left_in_the_files_of_sqlite(
    tmp_path: Path, template: Path
) -> None:
    shutil.copy(template, tmp_path / "node.sqlite3")
    node = Node(tmp_path)
    mail = "somebody.unusual@mail.example"
    script = (
        "from msgnode.models import *\n"
        f"for n in range(50): Session.objects.create(runtime_url='runtime://d/{mail}/%d' % n)\n"
        f"AuditEntry.objects.create(actor='{mail}', action='a', object='o')\n"
        "import os; os._exit(0)\n"  # the write-ahead log stays
    )
    node.manage("shell", "--verbosity", "0", "-c", script)

    def found() -> list[str]:
        files = tmp_path.glob("node.sqlite3*")
        return [each.name for each in files if mail.encode() in each.read_bytes()]

    assert "node.sqlite3-wal" in found()
    node.manage("person_erase", mail, "--yes")
    assert found() == []


def test_a_dry_run_only_looks() -> None:
    live_of("alice")
    numbers = run("person_erase", EMAIL, "--dry-run")
    assert numbers["sessions"] == 1
    assert User.objects.filter(username="alice").exists()


def test_a_superuser_is_not_erased() -> None:
    User.objects.create_superuser("root", "root@localhost")
    with pytest.raises(CommandError, match="superuser"):
        run("person_erase", "root", "--yes")


def test_pseudonyms_are_told_where_the_record_has_them(settings: Any) -> None:
    settings.RECORD = {**settings.RECORD, "PSEUDONYM_KEY": "key"}
    live_of("alice")
    told = run("person_export", EMAIL)["record_pseudonyms"]
    assert told["hyperty://localhost/alice"].startswith("hyperty://localhost/~")


def test_the_file_is_the_owners(tmp_path: Path) -> None:
    live_of("alice")
    path = tmp_path / "alice.json"
    call_command("person_export", EMAIL, "--output", str(path), stdout=StringIO())
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["sessions"]
