"""`from` is of the node's own domain, but for visitors, who speak for theirs."""

from __future__ import annotations

import uuid

import pytest

from tests.client import code

from .conftest import HOMES, Parties

pytestmark = pytest.mark.xdist_group("ownership")

THIRD = "third.example"
SCHEMES = ("hyperty", "comm", "user", "runtime", "hyperty-runtime", "connection")


def foreign(scheme: str, domain: str = THIRD) -> str:
    return f"{scheme}://{domain}/{uuid.uuid4()}"


async def test_a_local_runtime_speaks_for_no_other_domain(parties: Parties) -> None:
    mallory, bob = await parties.bring("mallory"), await parties.bring("bob")
    names = [foreign(scheme) for scheme in SCHEMES]
    names += [
        f"{foreign('runtime')}/registry/",
        "sip:bob@third.example",
    ]
    names += [foreign("hyperty", "localhost.third.example"), foreign("hyperty", "localhost:8080")]
    for name in names:
        answer = await mallory.ask("create", bob.runtime_url, {"value": name}, sender=name)
        assert code(answer) == 403, name
        await mallory.send("response", bob.runtime_url, {"code": 200}, sender=name)
    answer = await mallory.ask("create", bob.runtime_url, {"value": 1}, sender=names[0].upper())
    assert code(answer) == 400, "no address in its canonical form"
    assert await bob.received_from(mallory) == []


async def test_a_local_runtime_claims_and_registers_no_address_of_another_domain(
    parties: Parties,
) -> None:
    mallory = await parties.bring("mallory")
    for scheme in ("hyperty", "comm"):
        name = foreign(scheme)
        assert code(await mallory.subscribe(name)) == 403
        assert code(await mallory.subscribe(f"{name}/changes")) == 200
    value = {
        "url": foreign("hyperty"), "user": "u", "descriptor": "d", "expires": 60,
        "resources": [], "dataSchemes": [], "status": "live", "runtime": mallory.runtime_url,
    }  # fmt: skip
    answer = await mallory.ask("create", "domain://registry.localhost", {"value": value})
    assert code(answer) == 403


async def test_a_local_runtime_speaks_for_what_nobody_holds_in_its_domain(
    parties: Parties,
) -> None:
    alice, bob = await parties.bring("alice"), await parties.bring("bob")
    names = [
        parties.address(),
        parties.address("comm"),
        f"{parties.url()}/registry/",
        "publisher",
        f"hyperty://msg-node.{HOMES[parties.mode]}/{uuid.uuid4()}",
    ]
    names += [f"hyperty-runtime://sp1.example/protostub/{uuid.uuid4()}"]
    names += [f"runtime://{THIRD}/p2prequester/{uuid.uuid4()}"]
    for name in names:
        await alice.send("create", bob.runtime_url, {"value": 1}, sender=name)
    assert [each["from"] for each in await bob.received_from(alice)] == names


async def test_a_visitor_speaks_for_the_domain_of_its_runtime(parties: Parties) -> None:
    if parties.mode != "anonymous":
        pytest.skip("the mode goes with the domain of the runtime")
    visitor = await parties.bring("visitor", home=THIRD)
    bob = await parties.bring("bob")
    names = [foreign("hyperty"), foreign("comm"), f"{visitor.runtime_url}/sm"]
    for name in names:
        await visitor.send("create", bob.runtime_url, {"value": 1}, sender=name)
    assert [each["from"] for each in await bob.received_from(visitor)] == names
    other = foreign("hyperty", "fourth.example")
    assert code(await visitor.ask("create", bob.runtime_url, sender=other)) == 403


async def test_who_is_logged_in_speaks_for_the_domain_of_the_identity(parties: Parties) -> None:
    if not parties.knows_people:
        pytest.skip("nobody is logged in")
    alice, bob = await parties.bring("alice"), await parties.bring("bob")
    domain = parties.idp_domain
    name = foreign("hyperty", domain)
    await alice.send("create", bob.runtime_url, {"value": 1}, sender=name)
    assert [each["from"] for each in await bob.received_from(alice)] == [name]
    other = foreign(
        "hyperty", next(d for m, d in HOMES.items() if m != parties.mode and d != "localhost")
    )
    assert code(await alice.ask("create", bob.runtime_url, sender=other)) == 403
