"""Data objects over the field's endpoints: docs/reference/registry.md, cases 16 and 17."""

from __future__ import annotations

import pytest

from registry.records import REQUIRED, Kind

from .conftest import Clock, Field, data_object, hyperty, without

CHAT = "comm://d/1"


def test_case_16_a_data_object_is_found_by_url_with_12_keys(field: Field) -> None:
    answer = field.put("hyperty", "dataobject", CHAT, body=data_object())
    assert (answer.status_code, answer.json()) == (200, {"message": "Data object created"})
    record = field.get("hyperty", "dataobject", "url", CHAT).json()
    assert data_object().items() <= record.items()
    assert record["url"] == CHAT
    assert len(record) == 12


def test_case_16_a_disconnected_data_object_is_found_with_200(field: Field, clock: Clock) -> None:
    field.put("hyperty", "dataobject", CHAT, body=data_object(expires=1))
    clock.forward(3)
    answer = field.get("hyperty", "dataobject", "url", CHAT)
    assert (answer.status_code, answer.json()["status"]) == (200, "disconnected")
    for by, key in (("name", "myChat"), ("reporter", "hyperty://d/1")):
        answer = field.get("hyperty", "dataobject", by, key)
        assert (answer.status_code, answer.json()[CHAT]["status"]) == (200, "disconnected")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("resources=resource3", 2),
        ("dataSchemes=datascheme3", 2),
        ("resources=resource5&dataSchemes=datascheme4", 1),
        ("resources=resource5&dataSchemes=datascheme44", 0),
        ("resources=resource3&dataSchemes=datascheme4", 1),
        ("resources=resource3&dataSchemes=datascheme3", 2),
        ("dd=dd", 0),
        ("", 0),
    ],
)
@pytest.mark.parametrize("by", [("name", "name3"), ("reporter", "reporter1")])
def test_case_16_objects_of_a_name_or_reporter_are_filtered(
    field: Field, by: tuple[str, str], query: str, found: int
) -> None:
    first = {"resources": ["resource3", "resource5"], "dataSchemes": ["datascheme3", "datascheme4"]}
    second = {"resources": ["resource3"], "dataSchemes": ["datascheme3"]}
    for number, lists in enumerate((first, second)):
        body = data_object(name="name3", reporter="reporter1", **lists)
        field.put("hyperty", "dataobject", f"comm://d/{number}", body=body)
    answer = field.get("hyperty", "dataobject", *by, "do", query=query)
    assert answer.status_code == (200 if found else 404)
    assert len(answer.json()) == (found or 1)


def test_case_16_a_filter_by_url_finds_one_or_nothing(field: Field) -> None:
    field.put("hyperty", "dataobject", CHAT, body=data_object())
    path = ("hyperty", "dataobject", "url")
    assert list(field.get(*path, CHAT, "do", query="resources=chat").json()) == [CHAT]
    assert field.get(*path, "comm://d/2", "do", query="resources=chat").status_code == 404


def test_case_16_updates_and_signs_of_life_and_no_delete(field: Field) -> None:
    field.put("hyperty", "dataobject", CHAT, body=data_object(status="created"))
    answer = field.put("dataobject", "url", CHAT, body={"schema": "new"})
    assert answer.json() == {"message": "data object updated"}
    assert field.put("dataobject", "url", CHAT, body={}).json() == {"message": "Keep alive"}
    record = field.get("hyperty", "dataobject", "url", CHAT).json()
    assert (record["schema"], record["status"]) == ("new", "live")
    assert field.put("dataobject", "url", "comm://d/2", body={}).status_code == 404
    assert field.delete("hyperty", "dataobject", CHAT).status_code == 404


@pytest.mark.parametrize("key", REQUIRED[Kind.OBJECT])
def test_case_16_a_required_key_must_be_there(field: Field, key: str) -> None:
    answer = field.put("hyperty", "dataobject", CHAT, body=without(data_object(), key))
    assert (answer.status_code, answer.content) == (400, b"")


def test_case_17_a_data_object_is_overwritten_by_its_reporter_only(field: Field) -> None:
    field.put("hyperty", "dataobject", CHAT, body=data_object(reporter="hyperty://d/1"))
    again = data_object(reporter="hyperty://d/1", name="renamed")
    assert field.put("hyperty", "dataobject", CHAT, body=again).status_code == 200
    stranger = data_object(reporter="hyperty://d/2")
    assert field.put("hyperty", "dataobject", CHAT, body=stranger).status_code == 403
    patch = {"reporter": "hyperty://d/2"}
    assert field.put("dataobject", "url", CHAT, body=patch).status_code == 403
    record = field.get("hyperty", "dataobject", "url", CHAT).json()
    assert (record["reporter"], record["name"]) == ("hyperty://d/1", "renamed")


def test_case_17_another_hyperty_of_the_same_user_may_overwrite_it(field: Field) -> None:
    for url, user in (
        ("hyperty://d/1", "alice"),
        ("hyperty://d/2", "alice"),
        ("hyperty://d/3", "b"),
    ):
        field.put("hyperty", "user", user, url, body=hyperty())
    field.put("hyperty", "dataobject", CHAT, body=data_object(reporter="hyperty://d/1"))
    foreign = data_object(reporter="hyperty://d/3")
    assert field.put("hyperty", "dataobject", CHAT, body=foreign).status_code == 403
    own = data_object(reporter="hyperty://d/2")
    assert field.put("hyperty", "dataobject", CHAT, body=own).status_code == 200
