"""`from` is of the node's own domain, but for visitors, who speak for theirs."""

from __future__ import annotations

import uuid

import pytest

from tests.client import code

from .conftest import Parties

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
