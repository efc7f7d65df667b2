"""The Graph Connector: words, one's own record, others' records, contacts; and registries that lie.

The numbers of cases are those of docs/reference/registry.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bus_harness import Bench, R, answer
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from msgnode.runtime.python.graph import keys, records
from msgnode.runtime.python.graph.contacts import MAX_CONTACTS, Contacts
from msgnode.runtime.python.graph.errors import GraphError
from msgnode.runtime.python.graph.graph_connector import MAX_DOMAINS, GraphConnector
from msgnode.runtime.python.messages import Message
from registry.global_registry import guids, signed

VECTOR = json.loads((Path(__file__).parents[2] / "js/tests/words.json").read_text())
WORDS = VECTOR["words"]
ALICE = "user://a.example/alice"
Answer = dict[str, Any] | None


class Registry:
    """A global registry and domain registries, behind the bus of a runtime.

    `says` changes an answer on its way (None: none comes); `before_put` runs before a record is
    stored, as if somebody else had been faster.
    """

    def __init__(self, *benches: Bench) -> None:
        self.stored: dict[str, str] = {}
        self.entries: dict[str, Any] = {}
        self.asked: list[Message] = []
        self.says: Callable[[Message, Answer], Answer] = lambda message, said: said
        self.before_put: list[Callable[[], None]] = []
        for bench in benches:
            self.serve(bench)

    def serve(self, bench: Bench) -> None:
        def send(message: Message, size: int, stub: str) -> str:
            self.asked.append(message)
            asyncio.get_running_loop().call_soon(reply, message)
            return bench.out.stub

        def reply(message: Message) -> None:
            said = self.says(message, self._answer(message))
            if said is not None:
                back = answer(message["from"], message["id"], said, message["to"])
                bench.bus.receive(back, bench.out.stub)

        bench.out.send = send  # type: ignore[method-assign]

    def _answer(self, message: Message) -> dict[str, Any]:
        body = message["body"]
        if message["to"].startswith("domain://registry."):
            found = self.entries.get(message["to"].removeprefix("domain://registry."))
            return {"code": 200, "value": found} if found else {"code": 404, "desc": "Not Found"}
        if message["type"] == "read":
            jwt = self.stored.get(body["guid"])
            known = {"Code": 200, "code": 200, "Value": jwt, "value": jwt}
            return known if jwt else {"Code": 404, "code": 404, "Description": "GUID not found."}
        return self._put(body)

    def _put(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.before_put:
            self.before_put.pop(0)()
        record = signed.read(body["jwt"])
        assert record.guid == body["guid"] == body["resource"]
        there = self.stored.get(record.guid, "")
        digest = signed.digest(there) if there else ""
        if body.get("previous", digest) != digest:
            return {"Code": 409, "code": 409, "Description": "The record is another one by now."}
        assert not there or record.last_update > signed.read(there).last_update
        self.stored[record.guid] = record.jwt
        return {"Code": 200, "code": 200, "Description": "OK"}


def connector(bench: Bench, storage: dict[str, str] | None = None) -> GraphConnector:
    failures: list[str] = []
    return GraphConnector(bench.bus, Contacts("c", storage, lambda *why: failures.append(why[0])))


def jwt_of(number: int, encoding: str = "raw", **changes: Any) -> str:
    """A record of another person, whose key follows from a number."""
    key = ec.derive_private_key(number, ec.SECP256K1())
    record = {
        **{"schemaVersion": 1, "guid": guid_of(number), "salt": "s", "userIDs": []},
        **{"lastUpdate": "2026-01-01T00:00:00Z", "timeout": "2090-01-01T00:00:00Z"},
        **{"publicKey": signed.public_text(key), "active": 1, "revoked": 0},
        **{"defaults": {"voice": "", "chat": "", "video": ""}, **changes},
    }
    return signed.sign(record, key, encoding)


def guid_of(number: int) -> str:
    key = ec.derive_private_key(number, ec.SECP256K1())
    return guids.derive(signed.public_text(key), "s")


def of(coroutine: Any) -> int:
    """The code of the GraphError that it raises."""
    with pytest.raises(GraphError) as caught:
        asyncio.run(coroutine)
    return caught.value.code


# --- words ----------------------------------------------------------------------------------------


def test_case_31_the_words_give_the_key_the_salt_and_both_guids() -> None:
    found = keys.keys_of(WORDS)
    assert found.private.private_numbers().private_value == int(VECTOR["private"], 16)
    assert (found.public_key, found.salt) == (VECTOR["publicKey"], VECTOR["salt"])
    assert (found.guid, found.legacy_guid) == (VECTOR["guid"], VECTOR["legacy"])
    assert keys.keys_of(f"  {WORDS.upper().replace(' ', chr(10))} ").guid == found.guid


def test_the_master_key_is_that_of_bip_32() -> None:
    """Test vector 1 of BIP-32."""
    key = keys._master_key(bytes(range(16))).private_numbers().private_value
    assert f"{key:064x}" == "e8f32e723decf4051aefac8e2c93c9c5b214313817cdb01a1494b917c8436b35"


def test_new_words_are_good_and_never_the_same() -> None:
    one, other = keys.new_words(), keys.new_words()
    assert one != other
    assert keys.keys_of(one).guid != keys.keys_of(other).guid


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "0 words"),
        (WORDS.rpartition(" ")[0], "15 words"),
        (f"{WORDS} zebra", "17 words"),
        (WORDS.replace("address", "adress"), "Word 15"),
        (WORDS.replace("address", "zoo"), "belong together"),
    ],
)
def test_words_that_are_none_are_refused_and_not_repeated(words: str, said: str) -> None:
    with pytest.raises(GraphError, match=said) as caught:
        keys.keys_of(words)
    assert caught.value.code == 400
    assert "abandon" not in str(caught.value)


# --- one's own record -----------------------------------------------------------------------------


async def test_case_33_what_is_published_at_one_device_is_there_at_another() -> None:
    here, there = Bench(), Bench()
    registry = Registry(here, there)
    alice = connector(here)
    words = await alice.create()
    alice.add_user_id(ALICE)
    alice.add_user_id(ALICE)
    alice.add_user_id("user://idp.example/alice", domain="B.example")
    alice.add_legacy_id("phone", "home", "+351")
    alice.set_defaults(voice="a")
    published = await alice.publish()
    assert published.user_ids == ((ALICE, "a.example"), ("user://idp.example/alice", "b.example"))
    assert published.timeout - published.last_update == records.LIFETIME
    assert registry.asked[-1]["from"] == f"{R}/graph-connector"
    assert registry.asked[-1]["to"] == "global://registry/"

    other = connector(there)
    assert await other.use(words) is True
    assert other.person == published
    other.remove_user_id(ALICE)
    other.remove_legacy_id("+351")
    other.set_active(False)
    left = await other.publish()
    assert [each.domain for each in left.user_ids] == ["b.example"]
    assert (left.legacy_ids, left.is_active, left.defaults["voice"]) == ((), False, "a")
    assert left.last_update > published.last_update
    assert (await alice.lookup(f"user-guid://{alice.guid}")) == left


async def test_case_32_records_are_signed_as_the_field_verifies_them() -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    await alice.create()
    await alice.publish()
    signature = registry.stored[alice.guid].rpartition(".")[2]
    assert signed._decode(signature)[0] == 0x30  # DER; raw ones are read too:
    registry.stored[guid_of(5)] = jwt_of(5, "raw")
    assert (await alice.lookup(guid_of(5))).guid == guid_of(5)


async def test_words_without_a_record_are_somebody_all_the_same() -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    assert await alice.use(WORDS) is False
    assert (alice.guid, alice.person) == (VECTOR["guid"], None)
    await alice.publish()
    assert signed.fields(registry.stored[VECTOR["guid"]])["publicKey"] == VECTOR["publicKey"]


async def test_case_31_words_of_older_runtimes_find_their_record_under_its_older_guid() -> None:
    bench = Bench()
    registry, found = Registry(bench), keys.keys_of(WORDS)
    record = records.new_record(found) | {"guid": found.legacy_guid, "userIDs": [{"uID": ALICE}]}
    registry.stored[found.legacy_guid] = records.sign(
        record, found, None, datetime.now(UTC) - timedelta(days=9)
    )
    alice = connector(bench)
    assert await alice.use(WORDS) is True
    assert alice.guid == VECTOR["legacy"]
    alice.set_defaults(chat="b")
    await alice.publish()
    assert signed.fields(registry.stored[VECTOR["legacy"]])["userIDs"] == [{"uID": ALICE}]
    assert VECTOR["guid"] not in registry.stored


async def test_two_devices_that_publish_at_once_lose_nothing() -> None:
    benches = [Bench() for _ in range(3)]
    registry = Registry(*benches)
    devices = [connector(each) for each in benches]
    for each in devices:
        await each.use(WORDS)
    for number, each in enumerate(devices):
        each.add_user_id(f"user://d{number}.example/alice")
    await asyncio.gather(*(each.publish() for each in devices), devices[0].publish())
    named = {each["domain"] for each in signed.fields(registry.stored[VECTOR["guid"]])["userIDs"]}
    assert named == {"d0.example", "d1.example", "d2.example"}


async def test_a_registry_that_others_never_leave_alone_ends_the_tries_and_keeps_the_changes() -> (
    None
):
    here, there = Bench(), Bench()
    registry = Registry(here, there)
    alice = connector(here)
    await alice.use(WORDS)
    await alice.publish()
    key = keys.keys_of(WORDS)

    def interfere() -> None:
        jwt = registry.stored[alice.guid]
        after = signed.read(jwt).last_update
        registry.stored[alice.guid] = records.sign(signed.fields(jwt), key, after, after)

    alice.add_user_id(ALICE)
    registry.before_put = [interfere] * 10
    with pytest.raises(GraphError) as caught:
        await alice.publish()
    assert caught.value.code == 409
    assert len(registry.before_put) == 6
    registry.before_put = []
    assert (await alice.publish()).user_ids == ((ALICE, "a.example"),)


async def test_case_39_a_revoked_guid_stays_revoked() -> None:
    bench = Bench()
    Registry(bench)
    alice = connector(bench)
    words = await alice.create()
    await alice.publish()
    await alice.revoke()
    assert alice.person is not None and alice.person.is_revoked
    for again in (alice.publish(), alice.lookup(alice.guid)):
        with pytest.raises(GraphError) as caught:
            await again
        assert caught.value.code == 410
    assert await alice.use(words) is False


async def test_case_40_a_record_that_has_timed_out_is_renewed_by_its_owner() -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    await alice.use(WORDS)
    alice.add_user_id(ALICE)
    await alice.publish()
    registry.stored.clear()
    gone = {"Code": 410, "code": 410, "Description": "The record has timed out."}
    registry.says = lambda message, said: gone if message["type"] == "read" else said
    assert (await alice.publish()).user_ids == ((ALICE, "a.example"),)
    assert await alice.use(WORDS) is False
    assert alice.guid == VECTOR["guid"]


async def test_a_record_that_no_registry_takes_is_not_sent() -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    await alice.create()
    alice.add_legacy_id("note", "x", "1", "x" * 40_000)
    with pytest.raises(GraphError) as caught:
        await alice.publish()
    assert caught.value.code == 413
    assert [each["type"] for each in registry.asked] == ["read"]


def test_what_needs_a_guid_says_so_and_values_that_are_none_are_refused() -> None:
    async def publish() -> None:
        await connector(Bench()).publish()

    assert of(publish()) == 400
    alice = connector(Bench())
    for bad in ("", "alice", "user://", "user://a.example/\n"):
        with pytest.raises(GraphError, match="names no user"):
            alice.add_user_id(bad)
    with pytest.raises(GraphError, match="Defaults"):
        alice.set_defaults(fax="1")


# --- registries that lie, repeat, refuse or are silent --------------------------------------------


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"Code": 404, "Value": ""}, 404),
        ({"code": 200, "value": None}, 404),  # as nodes of the field say 404
        ({"Code": 200, "Value": ""}, 404),
        ({"Code": 200, "Value": 5}, 502),
        ({"Code": 200, "Value": "x.y.z"}, 502),
        ({"Code": 200, "Value": "x" * 70_000}, 502),
        ({"Code": 200, "Value": jwt_of(6)}, 502),  # somebody else's, and genuine
        ({"Code": 200, "Value": jwt_of(5, revoked=1)}, 410),
        ({"Code": 200, "Value": jwt_of(5, timeout="2026-02-01T00:00:00Z")}, 410),
        ({"Code": 200, "Value": jwt_of(5, userIDs=["x"] * 101)}, 502),
        ({"Code": True, "code": 503, "desc": "later"}, 503),
        ({"Code": 503, "Description": "later"}, 503),
        ({}, 500),
        (None, 408),
    ],
)
async def test_cases_34_and_42_what_is_no_proof_is_refused(
    said: Answer, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    registry.says = lambda message, _: said
    if said is None:
        request = bench.bus.request
        monkeypatch.setattr(bench.bus, "request", lambda message: request(message, 0.05))
    with pytest.raises(GraphError) as caught:
        await alice.lookup(guid_of(5))
    assert caught.value.code == code
    assert not bench.faults


@pytest.mark.parametrize("at", range(0, 900, 97))
async def test_case_32_a_record_with_another_letter_is_refused(at: int) -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    jwt = jwt_of(5)
    at %= len(jwt)
    registry.stored[guid_of(5)] = jwt[:at] + ("A" if jwt[at] != "A" else "B") + jwt[at + 1 :]
    with pytest.raises(GraphError) as caught:
        await alice.lookup(guid_of(5))
    assert caught.value.code == 502


async def test_case_38_an_older_record_is_refused_after_a_newer_one() -> None:
    bench = Bench()
    registry, storage = Registry(bench), dict[str, str]()
    alice = connector(bench, storage)
    guid = guid_of(5)
    alice.contacts.add(guid, "Bob")
    registry.stored[guid] = jwt_of(5, lastUpdate="2026-03-01T00:00:00Z")
    await alice.lookup(guid)
    registry.stored[guid] = jwt_of(5, lastUpdate="2026-02-01T00:00:00Z", userIDs=[ALICE])
    for each in (alice, connector(bench, storage)):  # a contact's is known after a restart, too
        with pytest.raises(GraphError) as caught:
            await each.lookup(guid)
        assert caught.value.code == 409


async def test_case_38_ones_own_record_is_not_built_on_an_older_one() -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    await alice.create()
    await alice.publish()
    first = registry.stored[alice.guid]
    alice.add_user_id(ALICE)
    await alice.publish()
    registry.stored[alice.guid] = first
    with pytest.raises(GraphError) as caught:
        await alice.publish()
    assert caught.value.code == 409
    assert registry.stored[alice.guid] == first


async def test_words_that_cannot_be_asked_about_leave_one_who_one_was() -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    await alice.create()
    before = alice.guid
    registry.says = lambda message, said: {"Code": 503, "Description": "later"}
    with pytest.raises(GraphError):
        await alice.use(WORDS)
    assert alice.guid == before


async def test_what_is_no_guid_is_not_asked_about() -> None:
    bench = Bench()
    registry, alice = Registry(bench), connector(bench)
    for bad in ("", "x" * 42, "x" * 44, "../" + "x" * 40, "ü" * 43):
        with pytest.raises(GraphError, match="43 letters"):
            await alice.lookup(bad)
    assert registry.asked == []


# --- where a person's hyperties are ---------------------------------------------------------------


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
    registry.stored[guid] = jwt_of(5, userIDs=[f"x@d{n}.example" for n in range(4)])
    lies = {"d0": {"code": 504, "desc": "frozen"}, "d1": {"code": 200, "value": "no map"}}
    registry.entries["d3.example"] = {"a": {"hypertyID": "a"}}

    def says(message: Message, said: Answer) -> Answer:
        return lies.get(message["to"].removeprefix("domain://registry.").split(".")[0], said)

    registry.says = says
    found = await connector(bench).hyperties(guid)
    assert [(each.code, len(each.hyperties)) for each in found] == [
        *((504, 0), (200, 0), (404, 0), (200, 1))
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


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = ("userIDs", "legacyIDs", "defaults", "active", "timeout", "schemaVersion")


@settings(max_examples=60, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(NAMES), json_values))
def test_whatever_a_signed_record_says_it_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        person, _ = records.read(jwt_of(5, **changes))
    except GraphError as error:
        assert error.code == 502
    else:
        assert all(isinstance(part, str) for each in person.user_ids for part in each)
