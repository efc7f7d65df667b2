"""Entries of the domain registry, by message: a stranger changes none, their owner all of them."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from tests.client import Client, Frame
from tests.registry.test_global import GUID, jwt

from .conftest import Parties

pytestmark = pytest.mark.xdist_group("ownership")

REGISTRY = "domain://registry.localhost"
USER = "user://d.example/alice@d.example"
DISCONNECTED = {"value": "disconnected", "attribute": "status"}


def hyperty(client: Client, url: str, **other: Any) -> Frame:
    return {
        "url": url, "user": client.user or USER, "expires": 3600, "status": "live",
        "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Chat",
        "resources": ["chat"], "dataSchemes": ["comm"], "runtime": client.runtime_url,
    } | other  # fmt: skip


def data_object(client: Client, url: str, reporter: str, **other: Any) -> Frame:
    return {
        "url": url, "name": f"chat {uuid.uuid4()}", "reporter": reporter, "expires": 3600,
        "schema": "hyperty-catalogue://localhost/.well-known/dataschema/Communication",
        "resources": ["chat"], "dataSchemes": ["comm"], "status": "live",
        "runtime": client.runtime_url,
    } | other  # fmt: skip


async def ask(client: Client, type_: str, **body: Any) -> Frame:
    """The body of the answer, asked as runtimes do: by the runtime's registry component."""
    answer = await client.ask(type_, REGISTRY, body, sender=f"{client.runtime_url}/registry/")
    found: Frame = answer["body"]
    return found


async def status(client: Client, type_: str, **body: Any) -> int:
    found: int = (await ask(client, type_, **body))["code"]
    return found


async def entry(client: Client, url: str) -> Frame:
    """The record of a URL, without the time of its last change."""
    found = (await ask(client, "read", resource=url))["value"]
    return {name: value for name, value in found.items() if name != "lastModified"}


async def registered(parties: Parties, holds: bool) -> tuple[Client, str, str]:
    """A runtime with a hyperty, held or only registered, and an object that it reports."""
    alice = await parties.bring("alice")
    if holds:
        (url,), (obj,) = await alice.allocate(), await alice.allocate("comm")
    else:
        url, obj = parties.address(), parties.address("comm")
    assert await status(alice, "create", value=hyperty(alice, url)) == 200
    assert await status(alice, "create", value=data_object(alice, obj, url)) == 200
    return alice, url, obj


@pytest.mark.parametrize("holds", [True, False], ids=["held", "registered only"])
async def test_a_stranger_changes_nothing_of_anothers_entries(
    parties: Parties, holds: bool
) -> None:
    alice, url, obj = await registered(parties, holds)
    mallory = await parties.bring("mallory")
    before = [await entry(mallory, each) for each in (url, obj)]
    name = before[1]["name"]
    for runtime in (mallory.runtime_url, alice.runtime_url):
        forged = hyperty(mallory, url, descriptor="evil", runtime=runtime)
        assert await status(mallory, "create", value=forged) in (403, 404)
        for reporter in (url, parties.address()):
            forged = data_object(mallory, obj, reporter, schema="evil", runtime=runtime)
            assert await status(mallory, "create", value=forged) == 403
    for each in (url, obj):
        for body in (
            {},
            {"value": {"status": "live"}, "method": "refresh"},
            {"value": {"status": "disconnected"}},
            {"value": {"runtime": mallory.runtime_url}},
            {"value": {"reporter": mallory.runtime_url, "resources": ["evil"]}},
            DISCONNECTED,
        ):
            assert await status(mallory, "update", resource=each, **body) == 403, (each, body)
        named = {"url": each, "user": alice.user or USER}
        assert await status(mallory, "delete", value=named) == 403
        assert await status(mallory, "delete", resource=each) == 403
    assert await status(mallory, "delete", value={"name": name}) == 403
    short = f"/hyperty/{url.rpartition('/')[2]}"
    assert await status(mallory, "update", resource=short, **DISCONNECTED) == 403
    assert [await entry(mallory, each) for each in (url, obj)] == before


@pytest.mark.parametrize("holds", [True, False], ids=["held", "registered only"])
async def test_the_owner_registers_anew_updates_keeps_alive_and_ends(
    parties: Parties, holds: bool
) -> None:
    alice, url, obj = await registered(parties, holds)
    assert await status(alice, "create", value=hyperty(alice, url, resources=["voice"])) == 200
    assert await status(alice, "create", value=data_object(alice, obj, url, name="n")) == 200
    for each in (url, obj):
        assert await status(alice, "update", resource=each) == 200
        refresh = {"value": {"status": "live"}, "method": "refresh"}
        assert await status(alice, "update", resource=each, **refresh) == 200
        assert await status(alice, "update", resource=each, **DISCONNECTED) == 200
        assert await status(alice, "update", resource=each) == 200
    assert await status(alice, "delete", value={"url": url, "user": alice.user or USER}) == 200
    assert await status(alice, "delete", value={"url": obj}) == 200


async def test_a_hyperty_is_entered_under_the_sessions_own_user_and_nobody_elses(
    parties: Parties,
) -> None:
    alice, mallory = await parties.bring("alice"), await parties.bring("mallory")
    for user in (alice.user, USER) if parties.knows_people else ():
        forged = hyperty(mallory, parties.address(), user=user)
        refused = await ask(mallory, "create", value=forged)
        assert refused["code"] == 403
        assert "is not this session's user" in refused["desc"]
    if parties.knows_people:
        subject = f"user://{parties.idp_domain}/sub-{mallory.user.rpartition('/')[2].split('@')[0]}"
        for own in (mallory.user, mallory.user.upper().replace("USER:", "user:"), subject):
            value = hyperty(mallory, parties.address(), user=own)
            assert await status(mallory, "create", value=value) == 200


async def test_an_owners_next_session_of_the_same_runtime_goes_on(parties: Parties) -> None:
    alice, url, obj = await registered(parties, holds=True)
    await alice.close_session()
    again = await parties.bring("alice", alice.runtime_url)
    live = {"status": "live", "user": alice.user or USER}
    async with asyncio.timeout(10):  # another worker is told within a second whose it was
        while await status(again, "update", resource=url, value=live) == 403:
            pass
    for each in (url, obj):
        assert await status(again, "update", resource=each, value=live) == 200
    assert await status(again, "create", value=hyperty(again, url)) == 200
    assert (await entry(again, obj))["status"] == "live"


async def test_two_tabs_of_a_runtime_share_its_entries(parties: Parties) -> None:
    alice, url, obj = await registered(parties, holds=True)
    tab = await parties.bring("alice", alice.runtime_url)
    for each in (url, obj):
        assert await status(tab, "update", resource=each) == 200
    assert await status(tab, "create", value=hyperty(tab, url)) == 200


async def test_another_device_is_the_owner_only_if_it_is_the_same_persons(
    parties: Parties,
) -> None:
    alice, url, obj = await registered(parties, holds=False)
    device = await parties.bring("alice")
    expected = 200 if parties.knows_people else 403
    assert await status(device, "update", resource=url) == expected
    assert await status(device, "create", value=hyperty(device, url)) == expected
    assert await status(device, "create", value=data_object(device, obj, url)) == expected
    assert await status(alice, "update", resource=url) == 200  # whatever the runtime of the entry


async def test_who_claims_the_address_of_an_ended_entry_may_register_it_but_not_a_persons(
    parties: Parties,
) -> None:
    alice, url, _ = await registered(parties, holds=False)
    assert await status(alice, "update", resource=url, **DISCONNECTED) == 200
    bob = await parties.bring("bob")
    await bob.subscribe(url)
    assert await status(bob, "update", resource=url) == 403  # nobody revives what is another's
    expected = 404 if parties.knows_people else 200
    assert await status(bob, "create", value=hyperty(bob, url)) == expected


async def test_case_p4_a_registration_names_its_own_runtime_handler_and_reporter(
    parties: Parties,
) -> None:
    alice, url, _ = await registered(parties, holds=True)
    mallory = await parties.bring("mallory")
    mine = parties.address()
    for wrong in (
        {"runtime": alice.runtime_url},
        {"runtime": f"hyperty-{alice.runtime_url}"},
        {"runtime": "runtime://localhost/nobody"},
        {"p2pHandler": f"{alice.runtime_url}/p2phandler/1"},
    ):
        assert await status(mallory, "create", value=hyperty(mallory, mine, **wrong)) == 403
    assert await status(mallory, "read", resource=mine) == 404
    obj = parties.address("comm")
    assert await status(mallory, "create", value=data_object(mallory, obj, url)) == 403
    assert await status(mallory, "read", resource=obj) == 404
    own = {"p2pHandler": f"{mallory.runtime_url}/p2phandler/1"}
    assert await status(mallory, "create", value=hyperty(mallory, mine, **own)) == 200
    for wrong in ({"runtime": alice.runtime_url}, {"p2pHandler": f"{alice.runtime_url}/x"}):
        assert await status(mallory, "update", resource=mine, value=wrong) == 403


async def test_cases_p3_and_p5_an_object_too_says_who_is_invited_while_somebody_is_there(
    parties: Parties,
) -> None:
    alice, url, _ = await registered(parties, holds=True)
    obj = parties.address("comm")
    p2p = {
        "p2pHandler": f"{alice.runtime_url}/p2phandler/1",
        "p2pRequester": "hyperty-catalogue://localhost/.well-known/protocolstub/p2p-requester",
    }
    made = data_object(alice, obj, url) | p2p
    assert await status(alice, "create", value=made) == 200
    wrong = {"p2pHandler": "runtime://localhost/other/p2phandler/1"}
    assert await status(alice, "update", resource=obj, value=wrong) == 403
    found = await alice.ask("read", REGISTRY, {"resource": obj})
    value = found["body"]["value"]
    assert {key: value[key] for key in p2p} == p2p and value["runtime"] == alice.runtime_url
    assert await status(alice, "update", resource=obj, **DISCONNECTED) == 200
    value = (await alice.ask("read", REGISTRY, {"resource": obj}))["body"]["value"]
    assert value["status"] == "disconnected" and "p2pHandler" not in value


async def test_nobody_registers_an_address_that_another_holds_or_speaks_as(
    parties: Parties,
) -> None:
    alice, mallory = await parties.bring("alice"), await parties.bring("mallory")
    (held,), (obj,) = await alice.allocate(), await alice.allocate("comm")
    claimed, used = parties.address(), parties.address()
    await alice.subscribe(claimed)
    await alice.send("ping", alice.runtime_url, sender=used)
    await alice.settled()
    for url in (held, claimed, used, f"{held}/x"):
        assert await status(mallory, "create", value=hyperty(mallory, url)) == 403
    for url in (obj, alice.runtime_url, f"{alice.runtime_url}/x", "domain://registry.localhost"):
        own = data_object(mallory, url, mallory.runtime_url)
        assert await status(mallory, "create", value=own) == 403
    assert await status(alice, "create", value=hyperty(alice, held)) == 200


async def test_another_users_hyperty_is_404(parties: Parties) -> None:
    _, url, _ = await registered(parties, holds=False)
    mallory = await parties.bring("mallory")
    other = hyperty(mallory, url, user=mallory.user or "user://d.example/mallory")
    assert await status(mallory, "create", value=other) == 404


async def test_http_without_an_account_changes_no_entry_of_a_session(parties: Parties) -> None:
    alice, url, _ = await registered(parties, holds=True)
    before = await entry(alice, url)
    node = parties.nodes[0]
    path = f"/domain-registry/hyperty/url/{url.replace(':', '%3A').replace('/', '%2F')}"
    assert node.put(path, {}) == 403
    assert node.put(path, {"status": "disconnected"}) == 403
    assert await entry(alice, url) == before


async def test_a_signed_record_is_replaced_by_its_key_alone(parties: Parties) -> None:
    mallory = await parties.bring("mallory")
    record = jwt(lastUpdate="2026-01-01T00:00:00Z")
    body = {"guid": GUID, "jwt": record}
    to = "global://registry"
    assert (await mallory.ask("create", to, body))["body"]["code"] in (200, 409)
    stored = (await mallory.ask("read", to, {"guid": GUID}))["body"]["value"]
    head, payload, signature = record.split(".")
    forged = f"{head}.{payload}.{signature[:-4]}AAAA"
    answer = await mallory.ask("create", to, {"guid": GUID, "jwt": forged})
    assert answer["body"]["code"] in (400, 403)
    assert (await mallory.ask("read", to, {"guid": GUID}))["body"]["value"] == stored
