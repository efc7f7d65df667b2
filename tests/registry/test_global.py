"""The global registry over HTTP and its commands: docs/reference/registry.md,
cases 32-41."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import Client

from registry import api
from registry.global_registry import guids, signed, store

from .conftest import Clock, Field

KEY, OTHER_KEY = (ec.derive_private_key(number, ec.SECP256K1()) for number in (7, 8))
SALT = "salt"
GUID = guids.derive(signed.public_text(KEY), SALT)


def record(**other: Any) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "guid": GUID,
        "salt": SALT,
        "userIDs": [{"uid": "user://example.com/alice", "domain": "example.com"}],
        "lastUpdate": "2029-12-31T00:00:00Z",
        "timeout": "2034-01-01T00:00:00.000Z",
        "publicKey": signed.public_text(KEY),
        "active": 1,
        "revoked": 0,
        "defaults": {"voice": "a", "chat": "b", "video": "c"},
    } | other


def jwt(encoding: str = "raw", **other: Any) -> str:
    return signed.sign(record(**other), KEY, encoding)


@pytest.fixture
def registry(db: None, clock: Clock) -> Field:
    return Field("/global-registry")


def put(registry: Field, text: str, guid: str = GUID) -> HttpResponse:
    return registry.put("guid", guid, body=text.encode())


def explained(answer: HttpResponse, code: int) -> str:
    body = answer.json()
    assert (answer.status_code, body["Code"], body["Value"]) == (code, code, "")
    return str(body["Explanation"])


@pytest.mark.parametrize("encoding", ["raw", "der"])
def test_case_33_what_was_stored_is_served_byte_for_byte(registry: Field, encoding: str) -> None:
    text = jwt(encoding)
    answer = put(registry, text)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["Code"], body["Description"], body["Value"]) == (200, "OK", "")
    assert registry.get("guid", GUID).json() == {"Code": 200, "Description": "OK", "Value": text}
    assert registry.get("guid", f"user-guid://{GUID}").json()["Value"] == text


def test_a_record_with_blanks_around_it_is_taken_without_them(registry: Field) -> None:
    text = jwt()
    assert put(registry, f" {text}\r\n").status_code == 200
    assert registry.get("guid", GUID).json()["Value"] == text
    assert put(registry, text.replace(".", ".\n", 1)).status_code == 400


def test_case_34_an_unknown_guid_is_404(registry: Field) -> None:
    answer = registry.get("guid", GUID)
    assert answer.json()["Description"] == "Not found"
    assert explained(answer, 404).startswith("GUID not found")
    for odd in ("x" * 5000, "x" * 42, "\x00" * 43, "ü" * 43, "../guid", "x" * 42 + "\n"):
        assert registry.get("guid", odd).status_code == 404


@pytest.mark.parametrize(
    "name",
    ["guid", "schemaVersion", "userIDs", "lastUpdate", "timeout", "publicKey", "salt", "revoked"],
)
def test_case_35_a_missing_field_is_named(registry: Field, name: str) -> None:
    fields = record()
    del fields[name]
    assert f"'{name}'" in explained(put(registry, signed.sign(fields, KEY)), 400)


@pytest.mark.parametrize("name", ["voice", "chat", "video"])
def test_case_35_a_missing_default_is_named(registry: Field, name: str) -> None:
    defaults = {k: v for k, v in record()["defaults"].items() if k != name}
    assert name in explained(put(registry, jwt(defaults=defaults)), 400)


@pytest.mark.parametrize(
    "text",
    ["", "x", "a.b", "a.b.c.d", "....", "é.é.é", jwt().replace(".", " . "), jwt()[:-3] + "!!!"],
)
def test_case_35_what_is_no_signed_token_is_400(registry: Field, text: str) -> None:
    assert "Malformed JWT" in explained(put(registry, text), 400)
    assert registry.get("guid", GUID).status_code == 404


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"publicKey": "garbage"}, "public key"),
        ({"publicKey": 5}, "publicKey"),
        ({"lastUpdate": "yesterday"}, "lastUpdate"),
        ({"lastUpdate": "0001-01-01T00:00:00+23:59"}, "lastUpdate"),
        ({"timeout": 5}, "timeout"),
        ({"revoked": 2}, "revoked"),
        ({"revoked": []}, "revoked"),
        ({"userIDs": "alice"}, "userIDs"),
        ({"userIDs": [{}]}, "userIDs"),
        ({"userIDs": ["x"] * 101}, "userIDs"),
        ({"guid": None}, "guid"),
        ({"defaults": []}, "defaults"),
    ],
)
def test_case_35_a_field_of_another_type_is_400(
    registry: Field, fields: dict[str, Any], said: str
) -> None:
    assert said in explained(put(registry, jwt(**fields)), 400)


def test_case_35_a_key_of_another_curve_is_400(registry: Field) -> None:
    foreign = signed.public_text(ec.derive_private_key(7, ec.SECP256R1()))
    assert "secp256k1" in explained(put(registry, jwt(publicKey=foreign)), 400)


def test_case_35_a_key_of_an_unknown_kind_is_400(registry: Field) -> None:
    der = base64.b64decode(signed.public_text(KEY).split("-----")[2])
    for identifier in ("06072a8648ce3d0201", "06052b8104000a"):  # of EC keys, and of secp256k1
        oid = bytes.fromhex(identifier)
        unknown = base64.b64encode(der.replace(oid, oid[:-1] + b"\x7f")).decode()
        text = f"-----BEGIN PUBLIC KEY-----{unknown}-----END PUBLIC KEY-----"
        assert "public key" in explained(put(registry, jwt(publicKey=text)), 400)


def test_case_35_a_payload_that_is_no_record_is_400(registry: Field) -> None:
    head, _, signature = jwt().split(".")
    for payload in (
        b"5",
        b"{}",
        b'{"data":5}',
        b'{"data":"W10"}',
        b'{"data":"' + b"W1" * 9 + b'"}',
    ):
        middle = base64.urlsafe_b64encode(payload).decode().rstrip("=")
        assert "Malformed JWT" in explained(put(registry, f"{head}.{middle}.{signature}"), 400)


def test_case_32_a_record_signed_by_another_key_is_400(registry: Field) -> None:
    text = signed.sign(record(), OTHER_KEY)
    assert "signature" in explained(put(registry, text), 400)


def test_case_36_a_guid_is_not_taken_over_by_another_key(registry: Field) -> None:
    text = jwt()
    put(registry, text)
    other = record(publicKey=signed.public_text(OTHER_KEY), lastUpdate="2029-12-31T12:00:00Z")
    assert "GUID" in explained(put(registry, signed.sign(other, OTHER_KEY)), 400)
    assert registry.get("guid", GUID).json()["Value"] == text


def test_case_36_a_stored_guid_is_pinned_to_its_key(registry: Field, monkeypatch: Any) -> None:
    put(registry, jwt())
    monkeypatch.setattr(store, "_follows", lambda *_: True)  # as if two keys had the same GUID
    other = record(publicKey=signed.public_text(OTHER_KEY), lastUpdate="2029-12-31T12:00:00Z")
    assert "another key" in explained(put(registry, signed.sign(other, OTHER_KEY)), 403)


LEGACY = guids.derive_legacy(signed.public_text(KEY), SALT)


@pytest.fixture
def derived(monkeypatch: Any, settings: Any) -> list[str]:
    """The salts from which GUIDs of the older variant were derived; two a minute may be."""
    monkeypatch.setattr(api, "GLOBAL_WRITES_PER_MINUTE", 40)
    salts: list[str] = []

    def derive(public_key: str, salt: str) -> str:
        salts.append(salt)
        return LEGACY if salt == SALT else "x" * 43

    monkeypatch.setattr(guids, "derive_legacy", derive)
    return salts


def test_a_guid_of_the_older_variant_is_paid_for_before_it_is_derived(
    registry: Field, derived: list[str]
) -> None:
    def wrong(number: int, address: str = "192.0.2.1") -> int:
        text = jwt(guid="y" * 43, salt=str(number))
        path = f"/global-registry/guid/{'y' * 43}"
        return Client().put(path, text, REMOTE_ADDR=address).status_code

    assert [wrong(number) for number in range(5)] == [400, 429, 429, 429, 429]  # it costs twice
    assert derived == ["0"]
    assert wrong(7, "2001:db8::1") == 400
    assert wrong(8, "2001:db8::2") == 429  # the same source
    assert put(registry, jwt(guid=LEGACY), LEGACY).status_code == 200  # from elsewhere
    assert derived == ["0", "7", SALT]


def test_the_guid_of_a_stored_record_is_not_derived_again(
    registry: Field, derived: list[str]
) -> None:
    assert put(registry, jwt(guid=LEGACY), LEGACY).status_code == 200
    for second in range(5):
        newer = jwt(guid=LEGACY, lastUpdate=f"2029-12-31T00:00:0{second + 1}Z")
        assert put(registry, newer, LEGACY).status_code == 200
    assert put(registry, jwt(guid=LEGACY, salt="other"), LEGACY).status_code == 400
    assert derived == [SALT]


def test_a_source_may_send_so_many_records(registry: Field, derived: list[str]) -> None:
    text = jwt()
    codes = [put(registry, text).status_code for _ in range(42)]
    assert codes == [200] * 40 + [429] * 2


def test_who_sends_what_is_no_record_waits_and_may_read(
    registry: Field, derived: list[str]
) -> None:
    codes = [put(registry, "no record").status_code for _ in range(4)]
    assert codes == [400] * 2 + [429] * 2
    assert registry.get("guid", GUID).status_code == 404


def test_records_that_come_as_resources_are_charged_alike(
    registry: Field, derived: list[str]
) -> None:
    def code(fields: dict[str, Any]) -> int:
        path = f"/api/v1/guids/{GUID}"
        return Client().put(path, fields, content_type="application/json").status_code

    assert [code({"jwt": "no record"}) for _ in range(4)] == [400] * 2 + [429] * 2
    assert put(registry, "no record").status_code == 429


def test_one_guid_of_the_older_variant_is_derived_at_a_time(
    registry: Field, derived: list[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(store, "DERIVING_SECONDS", 0.01)
    with store._deriving:
        assert put(registry, jwt(guid=LEGACY), LEGACY).status_code == 503
    assert derived == []


def test_case_37_the_guid_of_the_path_must_be_the_records(registry: Field) -> None:
    assert "GUIDs do not match" in explained(put(registry, jwt(), "x" * 43), 400)


def test_case_38_an_older_record_is_refused_and_the_same_again_is_fine(registry: Field) -> None:
    text = jwt()
    put(registry, text)
    assert put(registry, text).status_code == 200
    older = jwt(lastUpdate="2029-12-30T23:59:59Z")
    assert "newer" in explained(put(registry, older), 409)
    same_time = jwt(defaults={"voice": "", "chat": "", "video": ""})
    assert "newer" in explained(put(registry, same_time), 409)
    newer = jwt(lastUpdate="2029-12-31T00:00:00.001+00:00")
    assert put(registry, newer).status_code == 200
    assert registry.get("guid", GUID).json()["Value"] == newer
    assert "future" in explained(put(registry, jwt(lastUpdate="2031-01-01T00:00:00Z")), 400)


def test_case_39_a_revoked_record_is_gone_for_good(registry: Field) -> None:
    put(registry, jwt())
    revocation = jwt(revoked=1, lastUpdate="2029-12-31T01:00:00Z")
    assert put(registry, revocation).status_code == 200
    assert "revoked" in explained(registry.get("guid", GUID), 410)
    assert "revoked" in explained(put(registry, jwt(lastUpdate="2029-12-31T02:00:00Z")), 410)


def test_case_40_a_record_past_its_time_is_gone_until_it_is_renewed(
    registry: Field, clock: Clock
) -> None:
    put(registry, jwt(timeout="2030-01-01T13:00:00Z"))
    clock.forward(3601)
    assert "timed out" in explained(registry.get("guid", GUID), 410)
    late = jwt(timeout="2030-01-01T13:00:00Z", lastUpdate="2030-01-01T12:00:00Z")
    assert "timed out" in explained(put(registry, late), 400)
    assert put(registry, jwt(lastUpdate="2030-01-01T12:00:00Z")).status_code == 200
    assert registry.get("guid", GUID).status_code == 200


def test_case_41_nobody_deletes_a_record(registry: Field) -> None:
    put(registry, jwt())
    assert "revoked by its owner" in explained(registry.delete("guid", GUID), 405)
    assert registry.get("guid", GUID).status_code == 200


def test_a_record_of_the_oldest_form_lists_user_ids_as_texts(registry: Field) -> None:
    assert put(registry, jwt(userIDs=["user://example.com/alice"])).status_code == 200
    uid = [{"uID": "user://example.com/alice", "domain": "example.com"}]
    newer = jwt(userIDs=uid, lastUpdate="2029-12-31T01:00:00Z")
    assert put(registry, newer).status_code == 200


def test_a_record_of_a_guid_of_older_runtimes_is_stored(registry: Field) -> None:
    legacy = guids.derive_legacy(signed.public_text(KEY), SALT)
    assert put(registry, jwt(guid=legacy), legacy).status_code == 200


def test_an_oversized_record_is_400(registry: Field) -> None:
    assert "longer" in explained(put(registry, "x" * 70_000), 400)


def test_the_root_says_that_it_is_up(registry: Field) -> None:
    body = registry.get().json()
    assert (body["Code"], body["connectedNodes"]) == (200, [])


def test_a_guid_is_made_signed_stored_and_revoked_by_commands(
    db: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "alice.pem"
    call_command("guid_create", "--out", str(path), "--json")
    made = json.loads(capsys.readouterr().out)
    assert path.stat().st_mode & 0o777 == 0o600
    sign = ("guid_sign", "--key", str(path), "--salt", made["salt"], "--user-id", "user://d/alice")
    call_command(*sign, "--store")
    text = capsys.readouterr().out.strip()
    registry = Field("/global-registry")
    assert registry.get("guid", made["guid"]).json()["Value"] == text
    call_command(*sign, "--revoke", "--store")
    assert registry.get("guid", made["guid"]).status_code == 410
    with pytest.raises(CommandError, match="410"):
        call_command(*sign, "--store")


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "alice.pem"
    path.write_text("mine")
    with pytest.raises(CommandError, match="exists"):
        call_command("guid_create", "--out", str(path))
    assert path.read_text() == "mine"
    with pytest.raises(CommandError, match="private key"):
        call_command("guid_sign", "--key", str(path), "--salt", "x")
