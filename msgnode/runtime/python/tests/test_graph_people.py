"""The Graph Connector: where a person's hyperties are, and contacts.

The numbers of cases are those of docs/reference/registry.md.
"""

from __future__ import annotations

import pytest
from bus_harness import Bench
from graph_registry import ALICE, Answer, Registry, connector, guid_of, jwt_of

from msgnode.runtime.python.graph.contacts import MAX_CONTACTS, Contacts
from msgnode.runtime.python.graph.errors import GraphError
from msgnode.runtime.python.graph.graph_connector import MAX_DOMAINS
from msgnode.runtime.python.messages import Message


async def test_a_persons_hyperties_are_found_in_all_domains_he_names() -> None:
    bench = Bench()
    registry, guid = Registry(bench), guid_of(5)
    ids = [ALICE, {"uid": "alice@b.example", "domain": "b.example"}, ALICE]
    registry.stored[guid] = jwt_of(5, userIDs=ids)
    mine = {"hypertyID": "hyperty://a.example/1", "guid": f"user-guid://{guid}"}
    registry.entries["a.example"] = {mine["hypertyID"]: mine, "x": 5}
    registry.entries["b.example"] = [{"hypertyID": "hyperty://b.example/2", "confirmed": True}]
    found = await connector(bench).hyperties(guid, resources=["chat"])
    assert [each.code for each in found] == [200, 200]
    assert [each.user_id.uid for each in found] == [ALICE, "alice@b.example"]
    assert found[0].hyperties == ({**mine, "confirmed": True},)
    assert found[1].hyperties[0]["confirmed"] is False
    asked = [each for each in registry.asked if each["to"].startswith("domain")]
    assert asked[0]["body"] == {"resource": ALICE, "criteria": {"resources": ["chat"]}}


async def test_a_domain_that_fails_or_lies_fails_for_itself() -> None:
    bench = Bench()
    registry, guid = Registry(bench), guid_of(5)
    registry.stored[guid] = jwt_of(5, userIDs=[f"x@d{n}.example" for n in range(6)])
    lies = {"d0": {"code": 504, "desc": "frozen"}, "d1": {"code": 200, "value": "no map"}}
    lies |= {"d4": {"code": 200, "value": 5}, "d5": {"code": 200, "value": {"a": [5], "b": None}}}
    registry.entries["d3.example"] = {"a": {"hypertyID": "a"}}

    def says(message: Message, said: Answer) -> Answer:
        return lies.get(message["to"].removeprefix("domain://registry.").split(".")[0], said)

    registry.says = says
    found = await connector(bench).hyperties(guid)
    assert [(each.code, len(each.hyperties)) for each in found] == [
        *((504, 0), (200, 0), (404, 0), (200, 1), (200, 0), (200, 0))
    ]
    assert found[0].text == "frozen"


async def test_a_record_of_a_hundred_domains_does_not_have_a_hundred_asked() -> None:
    bench = Bench()
    registry, guid = Registry(bench), guid_of(5)
    registry.stored[guid] = jwt_of(5, userIDs=[f"x@d{n}.example" for n in range(100)])
    found = await connector(bench).hyperties(guid)
    assert [each.code for each in found] == [404] * MAX_DOMAINS + [429] * (100 - MAX_DOMAINS)
    assert len(registry.asked) == 1 + MAX_DOMAINS


# --- contacts -------------------------------------------------------------------------------------


def test_contacts_are_kept_found_changed_and_removed() -> None:
    storage: dict[str, str] = {}
    book = connector(Bench(), storage).contacts
    bob = book.add(f"user-guid://{guid_of(5)}", "Bob", "Brown", ["work"])
    book.add(guid_of(6), "Carol")
    book.edit(bob.guid, first_name="Robert", groups=["home"])
    again = connector(Bench(), storage).contacts
    assert [each.name for each in again] == ["Robert Brown", "Carol"]
    assert (
        [each.guid for each in again.find("bro")]
        == [bob.guid]
        == [each.guid for each in again.find("HOME")]
    )
    assert again.find("obert") == []
    assert again.remove(bob.guid) is True and again.remove(bob.guid) is False
    assert len(connector(Bench(), storage).contacts) == 1


def test_a_guid_is_a_contact_once_and_bad_ones_are_refused() -> None:
    book = connector(Bench()).contacts
    book.add(guid_of(5), "Bob")
    for change, code in (
        (lambda: book.add(guid_of(5), "Twice"), 409),
        (lambda: book.add("short", "Bob"), 400),
        (lambda: book.add(guid_of(6), "x" * 201), 400),
        (lambda: book.add(guid_of(6), 5), 400),  # type: ignore[arg-type]
        (lambda: book.add(guid_of(6), "Bob", groups=["x"] * 101), 400),
        (lambda: book.edit(guid_of(6), first_name="Bob"), 404),
    ):
        with pytest.raises(GraphError) as caught:
            change()
        assert caught.value.code == code
    assert [each.name for each in book] == ["Bob"]


def test_a_storage_that_is_full_or_spoilt_is_told_and_stops_nothing() -> None:
    class Full(dict[str, str]):
        def __setitem__(self, key: str, value: str) -> None:
            raise OSError("disk full")

    told: list[str] = []
    book = Contacts("c", Full(), lambda text, error: told.append(f"{text}: {error}"))
    book.add(guid_of(5), "Bob")
    assert (told, len(book)) == (["c cannot be written: disk full"], 1)
    for spoilt in ("{", "5", '[{"guid": 5}]', '[{"guid": "x", "groups": []}]'):
        told.clear()
        Contacts("c", {"c": spoilt}, lambda text, error: told.append(text))
        assert told == ["c cannot be read"]


def test_the_book_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_CONTACTS == 10_000
    monkeypatch.setattr("msgnode.runtime.python.graph.contacts.MAX_CONTACTS", 1)
    book = connector(Bench()).contacts
    book.add(guid_of(5))
    with pytest.raises(GraphError) as caught:
        book.add(guid_of(6))
    assert caught.value.code == 413
