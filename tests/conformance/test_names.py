"""Nobody gets at a runtime's messages by taking a name that is nearly its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import REGISTRY, SESSION, SM, Client, code, runtime
from tests.conftest import Come
from tests.node import Node, running


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    """A node on which sessions share no runtime URL."""
    place = tmp_path_factory.mktemp("strict")
    with running(place, template, SHARE_RUNTIME_URL="false") as node:
        yield node


async def _answered(node: Node, type_: str, name: str) -> int:
    """The code a stranger's session frame is answered with."""
    async with node.ws() as stranger:
        return code(await stranger.ask(type_, SESSION, sender=name))


async def test_a_session_below_another_runtime_is_refused(node: Node) -> None:
    async with node.ws() as alice:
        await alice.open()
        assert await _answered(node, "open", f"{alice.runtime_url}/sm") == 403


@pytest.mark.parametrize(
    ("type_", "name"),
    [("open", "{}"), ("re-open", "{}/made-up"), ("open", "hyperty-{}")],
    ids=["by its name", "by a made-up token", "by its other spelling"],
)
async def test_a_runtime_url_in_use_is_not_shared_where_sharing_is_off(
    strict: Node, type_: str, name: str
) -> None:
    async with strict.ws() as alice:
        await alice.open(runtime())
        assert await _answered(strict, type_, name.format(alice.runtime_url)) == 403


def look_alikes(held: str) -> dict[str, str]:
    """Spellings that a person or a list takes for this address."""
    scheme, _, rest = held.partition("://")
    domain, _, last = rest.partition("/")
    return {
        "capital scheme": f"{scheme.upper()}://{rest}",
        "capital domain": f"{scheme}://{domain.upper()}/{last}",
        "dot segment": f"{scheme}://{domain}/./{last}",
        "upwards": f"{scheme}://{domain}/x/../{last}",
        "empty segment": f"{scheme}://{domain}//{last}",
        "encoded": f"{scheme}://{domain}/%{ord(last[0]):02x}{last[1:]}",
        "blank": f"{held} ",
        "query": f"{held}?x",
        "fragment": f"{held}#x",
        "no-width": f"{held}\u200b",
        "turned around": f"{held}\u202e",
    }


READABLE = {"capital scheme", "capital domain", "dot segment", "empty segment", "encoded"}
"""What has a canonical form, in which the recipient of a message is read."""


@pytest.mark.parametrize("kind", look_alikes("a://b/c"))
async def test_a_look_alike_of_a_held_address_has_no_second_holder(come: Come, kind: str) -> None:
    owner, stranger = await come(), await come()
    (held,) = await owner.allocate()
    fake = look_alikes(held)[kind]
    refused = [
        await stranger.ask("subscribe", SM, {"resources": [fake]}),
        await stranger.ask("subscribe", SM, {"resource": fake, "children": ["x"]}),
        await stranger.ask("create", owner.runtime_url, sender=fake),
        await stranger.ask("create", REGISTRY, {"value": registered(fake, stranger)}),
    ]
    assert [code(each) for each in refused[:3]] == [400, 400, 400]
    assert code(refused[3]) in (400, 403)
    assert code(await owner.ask("create", owner.runtime_url, sender=fake)) == 400
    id_ = await stranger.send("create", fake, {"value": kind})
    if kind in READABLE:
        came = await owner.expect(type="create")
        assert (came["to"], came["from"]) == (held, stranger.runtime_url)
        await owner.send("response", came["from"], {"code": 200}, sender=held, id=id_)
        assert code(await stranger.answer(id_)) == 200
    else:
        assert code(await stranger.answer(id_)) == 400
    assert await owner.settled() == []


async def test_a_look_alike_of_a_runtime_url_gets_no_session(node: Node) -> None:
    async with node.ws() as alice:
        await alice.open()
        fakes = look_alikes(alice.runtime_url)
        for kind, fake in fakes.items():
            assert await _answered(node, "open", fake) == 400, kind
        async with node.stub(fakes["encoded"]) as stranger:
            assert await stranger.close_code() == 4403


def registered(url: str, client: Client) -> dict[str, object]:
    """A registration of a hyperty at this address."""
    return {
        "user": "user://d.example/somebody", "url": url, "descriptor": "x", "expires": 60,
        "resources": ["chat"], "dataSchemes": ["comm"], "runtime": client.runtime_url,
        "status": "live",
    }  # fmt: skip
