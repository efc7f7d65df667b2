"""The Graph Connector: one's own record; registries that lie, repeat, refuse or are silent.

The numbers of cases are those of docs/reference/registry.md.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bus_harness import Bench, R
from graph_registry import ALICE, VECTOR, WORDS, Answer, Registry, connector, guid_of, jwt_of, of
from hypothesis import given, settings
from hypothesis import strategies as st

from msgnode.core import base64url
from msgnode.runtime.python.graph import keys, records
from msgnode.runtime.python.graph.errors import GraphError
from registry.global_registry import signed


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
    assert base64url.decode(signature)[0] == 0x30  # DER; raw ones are read too:
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
