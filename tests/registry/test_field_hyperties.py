"""Hyperties over the field's endpoints: docs/reference/registry.md, cases 1-15
and 17-18."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from registry import searches
from registry.records import REQUIRED, Kind
from registry.rest import field as views

from .conftest import Clock, Field, hyperty, without

ALICE = "user://idp.example/alice@d.example"
ONE = "hyperty://d/1"


def test_case_1_a_registered_hyperty_is_found_by_url_with_13_keys(
    field: Field, clock: Clock
) -> None:
    answer = field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    assert (answer.status_code, answer.json()) == (200, {"message": "Hyperty created"})
    record = field.get("hyperty", "url", ONE).json()
    assert record == hyperty() | {
        "hypertyID": ONE,
        "userID": ALICE,
        "startingTime": "2030-01-01T12:00:00Z",
        "lastModified": "2030-01-01T12:00:00Z",
    }
    assert len(record) == 13


@pytest.mark.parametrize("key", REQUIRED[Kind.HYPERTY])
def test_case_2_a_registration_without_a_required_key_is_400_and_empty(
    field: Field, key: str
) -> None:
    answer = field.put("hyperty", "user", ALICE, ONE, body=without(hyperty(), key))
    assert (answer.status_code, answer.content) == (400, b"")
    assert answer["Content-Type"] == "application/json"
    assert field.get("hyperty", "url", ONE).status_code == 404


def test_case_2_optional_keys_may_be_absent_and_unknown_ones_are_not_stored(field: Field) -> None:
    body = without(hyperty(), "guid", "p2pRequester", "p2pHandler") | {"colour": "red"}
    assert field.put("hyperty", "user", ALICE, ONE, body=body).status_code == 200
    record = field.get("hyperty", "url", ONE).json()
    assert not {"guid", "p2pRequester", "p2pHandler", "colour"} & set(record)


def test_case_3_the_life_of_an_entry_is_clamped(field: Field) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty(expires=999_999))
    assert field.get("hyperty", "url", ONE).json()["expires"] == 3600
    field.put("hyperty", "url", ONE, body={"expires": 10**30})
    assert field.get("hyperty", "url", ONE).json()["expires"] == 3600


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("status", "alive", "created, live, disconnected, dead"),
        ("status", "LIVE", "created, live, disconnected, dead"),
        ("status", "", "created, live, disconnected, dead"),
        ("runtime", "runtime://d/r 1", "contains a blank"),
        ("p2pHandler", "runtime://d/r1/p2phandler/ x", "contains a blank"),
    ],
)
def test_an_unknown_status_and_a_blank_in_a_url_are_400(
    field: Field, name: str, value: str, said: str
) -> None:
    answer = field.put("hyperty", "user", ALICE, ONE, body=hyperty(**{name: value}))
    assert answer.status_code == 400
    assert said in answer.content.decode()
    assert field.get("hyperty", "url", ONE).status_code == 404
    field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    assert field.put("hyperty", "url", ONE, body={name: value}).status_code == 400
    assert field.get("hyperty", "url", ONE).json()["status"] == "live"
    assert field.put("hyperty", "user", ALICE, "hyperty://d/a b", body=hyperty()).status_code == 400
    assert (
        field.put("hyperty", "user", ALICE, ONE, body=hyperty(status="created")).status_code == 200
    )


@pytest.mark.parametrize("status", ["live", "disconnected"])
def test_case_4_another_users_url_is_404(field: Field, status: str) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty(status=status))
    answer = field.put("hyperty", "user", "bob", ONE, body=hyperty())
    assert (answer.status_code, answer.json()) == (404, {"message": "Not Found"})
    assert field.get("hyperty", "url", ONE).json()["userID"] == ALICE


def test_case_5_registering_again_replaces_all_but_the_starting_time(
    field: Field, clock: Clock
) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    clock.forward(10)
    body = without(hyperty(resources=["voice"]), "guid")
    assert field.put("hyperty", "user", ALICE, ONE, body=body).json() == {
        "message": "Hyperty created"
    }
    record = field.get("hyperty", "url", ONE).json()
    assert record["startingTime"] == "2030-01-01T12:00:00Z"
    assert record["lastModified"] == "2030-01-01T12:00:10Z"
    assert record["resources"] == ["voice"]
    assert "guid" not in record


def test_case_6_an_expired_entry_is_408_and_stands_once_in_the_feed(
    field: Field, clock: Clock
) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty(expires=1))
    clock.forward(1.9)
    assert field.get("hyperty", "url", ONE).status_code == 200
    clock.forward(0.2)
    answer = field.get("hyperty", "url", ONE)
    assert (answer.status_code, answer.json()["status"]) == (408, "disconnected")
    assert len(answer.json()) == 13
    for by, key in (("user", ALICE), ("email", "alice@d.example"), ("guid", "user-guid://g1")):
        answer = field.get("hyperty", by, key)
        assert (answer.status_code, list(answer.json())) == (408, [ONE])
    assert list(field.get("registry", "updated").json()) == [ONE]
    assert field.get("registry", "updated").json() == {}


def test_case_7_a_sign_of_life_revives_an_expired_entry(field: Field, clock: Clock) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty(expires=1))
    clock.forward(3)
    answer = field.put("hyperty", "url", ONE, body={})
    assert answer.json() == {"statusChanged": "true", "message": "Keep alive"}
    answer = field.get("hyperty", "url", ONE)
    assert (answer.status_code, answer.json()["status"]) == (200, "live")
    assert field.put("hyperty", "url", ONE, body={}).json()["statusChanged"] == "false"
    assert field.get("registry", "updated").json() == {}


def test_case_8_one_live_among_disconnected_entries_is_200_with_all(field: Field) -> None:
    for number, status in enumerate(("live", "disconnected", "disconnected")):
        field.put("hyperty", "user", ALICE, f"hyperty://d/{number}", body=hyperty(status=status))
    answer = field.get("hyperty", "user", ALICE)
    assert (answer.status_code, len(answer.json())) == (200, 3)


def test_case_9_a_filter_that_meets_disconnected_entries_only_is_408(field: Field) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    gone = hyperty(status="disconnected", resources=["voice"])
    field.put("hyperty", "user", ALICE, "hyperty://d/2", body=gone)
    answer = field.get("hyperty", "user", ALICE, "hyperty", query="resources=voice")
    assert (answer.status_code, list(answer.json())) == (408, ["hyperty://d/2"])


@pytest.mark.parametrize("by", [("user", ALICE), ("email", "alice@d.example")])
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("resources=voice", 1),
        ("dataSchemes=comm", 3),
        ("dataSchemes=comm&resources=chat,video", 2),
        ("resources=voice&dataSchemes=comm", 1),
        ("resources=voice,chat", 1),
        ("resources=chat,voice,chat", 1),
        ("resources=video", 2),
        ("resources=chat", 3),
        ("resources=messaging", 0),
        ("resources=Chat", 0),
        ("dataSchemes=comm,fake", 0),
        ("resources=", 0),
        ("resources=comm", 0),
    ],
)
def test_case_10_all_wanted_values_must_be_there(
    field: Field, by: tuple[str, str], query: str, found: int
) -> None:
    for number, resources in enumerate((["voice", "chat"], ["chat", "video"], ["video", "chat"])):
        body = hyperty(resources=resources)
        field.put("hyperty", "user", ALICE, f"hyperty://d/{number}", body=body)
    answer = field.get("hyperty", *by, "hyperty", query=query)
    assert answer.status_code == (200 if found else 404)
    assert len(answer.json()) == (found or 1)


@pytest.mark.parametrize("query", ["", "colour=red", "resources=chat&dataSchemes=comm&x=1"])
def test_case_11_any_other_query_is_404(field: Field, query: str) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    answer = field.get("hyperty", "user", ALICE, "hyperty", query=query)
    assert (answer.status_code, answer.json()) == (404, {"message": "Not Found"})


def test_case_12_deleting_disconnects_and_only_ones_own(field: Field) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    for user, url in (("bob", ONE), (ALICE, "hyperty://d/2"), ("nobody", "hyperty://d/2")):
        assert field.delete("hyperty", "user", user, url).status_code == 404
    assert field.delete("hyperty", "user", ALICE, ONE).json() == {"message": "Hyperty deleted"}
    assert field.get("hyperty", "url", ONE).status_code == 408


def test_case_13_a_partial_update_keeps_the_rest(field: Field) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    answer = field.put("hyperty", "url", ONE, body={"descriptor": "new", "userID": "bob"})
    assert answer.json() == {"statusChanged": "false", "message": "Hyperty updated"}
    record = field.get("hyperty", "url", ONE).json()
    assert (record["descriptor"], record["resources"], record["userID"]) == ("new", ["chat"], ALICE)
    answer = field.put("hyperty", "url", ONE, body={"status": "disconnected"})
    assert answer.json()["statusChanged"] == "true"
    assert field.get("hyperty", "url", ONE).status_code == 408
    assert field.get("registry", "updated").json() == {}
    assert field.put("hyperty", "url", "hyperty://d/2", body={}).status_code == 404


def test_case_14_an_e_mail_is_the_last_part_of_a_user_id(field: Field) -> None:
    field.put("hyperty", "user", "user://idp.example/a+b@d.example", ONE, body=hyperty())
    field.put("hyperty", "user", "a+b@d.example", "hyperty://d/2", body=hyperty())
    answer = field.get("hyperty", "email", "a+b@d.example")
    assert (answer.status_code, sorted(answer.json())) == (200, [ONE, "hyperty://d/2"])


def test_case_15_a_guid_finds_only_the_entries_with_that_guid(field: Field) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty(guid="user-guid://g1"))
    field.put("hyperty", "user", ALICE, "hyperty://d/2", body=hyperty(guid="user-guid://g2"))
    field.put("hyperty", "user", "bob", "hyperty://d/3", body=hyperty(guid="g1"))
    for spelling in ("user-guid://g1", "g1"):
        answer = field.get("hyperty", "guid", spelling)
        assert sorted(answer.json()) == [ONE, "hyperty://d/3"]
    assert field.get("hyperty", "guid", "g3").status_code == 404


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000, b'{"a":"\\ud800"}'],
)
def test_case_17_what_is_no_json_object_is_400(field: Field, body: bytes) -> None:
    assert field.put("hyperty", "user", ALICE, ONE, body=body).status_code == 400
    assert field.put("hyperty", "url", ONE, body=body).status_code in (400, 404)


WRONG = [None, True, 5, 1.5, -1, "text", ["x", 1], {}, "\x00", "x" * 3000, ["x"] * 101, ["x" * 300]]


@pytest.mark.parametrize("key", sorted(hyperty()))
def test_case_17_a_value_of_another_type_is_400_and_changes_nothing(field: Field, key: str) -> None:
    allowed = {
        "expires": [5],
        "guid": [None, "text"],
        "p2pHandler": [None, "text"],
        "p2pRequester": [None, "text"],
        "resources": [],
        "dataSchemes": [],
        "status": [],
    }.get(key, ["text"])
    for number, value in enumerate(WRONG):
        url = f"hyperty://d/{number}"
        answer = field.put("hyperty", "user", ALICE, url, body=hyperty(**{key: value}))
        is_allowed = any(value is a or (value == a and type(value) is type(a)) for a in allowed)
        assert answer.status_code == (200 if is_allowed else 400), value
        assert field.get("hyperty", "url", url).status_code == (200 if is_allowed else 404), value


@pytest.mark.parametrize("bad", ["", "x" * 601, "hyperty://d/\x00"])
def test_case_17_ids_that_cannot_be_stored_are_400(field: Field, bad: str) -> None:
    assert field.put("hyperty", "user", ALICE, bad, body=hyperty()).status_code in (400, 404)
    assert field.put("hyperty", "user", bad, ONE, body=hyperty()).status_code in (400, 404)
    assert field.get("hyperty", "url", bad).status_code in (400, 404)


def test_case_18_the_root_leads_to_the_state_of_the_registry(field: Field) -> None:
    field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    answer = field.get()
    assert (answer.status_code, answer["Location"]) == (302, "/domain-registry/live")
    live = field.get("live").json()
    assert live["Hyperties_stored"] == "1"
    assert live["status"] == "up"
    answer = field.get("error")
    assert (answer.status_code, answer.json()) == (401, {"message": "Unauthorized."})


def test_case_18_with_accounts_asked_for_a_stranger_is_401(field: Field, settings) -> None:
    settings.REGISTRY = settings.REGISTRY | {"ACCESS": "read-open"}
    answer = field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    assert (answer.status_code, answer.json()) == (401, {"message": "Unauthorized."})
    assert field.get("hyperty", "url", ONE).status_code == 404
    settings.REGISTRY = settings.REGISTRY | {"ACCESS": "account"}
    assert field.get("hyperty", "url", ONE).status_code == 401


def test_case_18_an_account_writes_with_the_permission_only(db: None, settings) -> None:
    settings.REGISTRY = settings.REGISTRY | {"ACCESS": "account"}
    account = User.objects.create_user("connector", password="a long password")
    client = Client()
    client.force_login(account)
    path = "/domain-registry/hyperty/user/alice/hyperty%3A%2F%2Fd%2F1"
    send = {"data": b"{}", "content_type": "application/json", "RAW_URI": path}
    assert client.put(path, **send).status_code == 403
    account.user_permissions.add(Permission.objects.get(codename="change_hyperty"))
    assert client.put(path, **send).status_code == 400


def test_a_client_that_asks_too_often_is_told_when_to_return(field: Field, settings) -> None:
    settings.CLIENT_REQUESTS_PER_MINUTE = 1
    answers = [field.get("live") for _ in range(3)]
    assert answers[-1].status_code == 429
    assert int(answers[-1]["Retry-After"]) > 0


def test_more_matches_than_the_limit_are_refused_not_cut_off(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "MAX_MATCHES", 2)
    for number in range(2):
        field.put("hyperty", "user", ALICE, f"hyperty://d/{number}", body=hyperty())
    assert len(field.get("hyperty", "user", ALICE).json()) == 2
    field.put("hyperty", "user", ALICE, "hyperty://d/2", body=hyperty())
    assert field.get("hyperty", "user", ALICE).status_code == 429


def test_a_longer_body_than_the_limit_is_refused(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MAX_BODY_BYTES", 100)
    answer = field.put("hyperty", "user", ALICE, ONE, body=hyperty())
    assert answer.status_code == 400
    assert "100 bytes" in answer.json()["message"]
