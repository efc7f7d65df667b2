"""Two real nodes, of which one asks for identities: who comes to it by the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import code
from tests.issuer import Issuer, enter

from .nodes import A, B, TwoNodes, come, subscribe
from .sandboxes import needs_deno

pytestmark = [
    needs_deno,
    pytest.mark.asyncio,
    pytest.mark.long,
    pytest.mark.usefixtures("sessions_end"),
]


@pytest.fixture(scope="module")
def nodes(
    tmp_path_factory: pytest.TempPathFactory, template: Path, issuer: Issuer
) -> Iterator[TwoNodes]:
    place = tmp_path_factory.mktemp("identities")
    rows = place / "rows.sqlite3"
    shutil.copy(template, rows)
    enter(rows, issuer.row())
    settings = {"ADMISSION": "identified", "IDENTITY_PASSES_UNKNOWN": "false"}
    two = TwoNodes(
        place / "nodes", rows, of_b={"ADMISSION": "anonymous", "IDENTITY_PASSES_UNKNOWN": "true"},
        IDENTIFY_TIMEOUT=3, **settings,
    )  # fmt: skip
    with two.running():
        yield two


async def test_cases_44_to_46_who_comes_by_a_peer_is_verified_here(
    nodes: TwoNodes, issuer: Issuer, make_issuer: type[Issuer]
) -> None:
    ours, theirs = f"hyperty://{A}/alice", f"hyperty://{B}/bob"
    alice, bob = await come(nodes.a, A, "alice"), await come(nodes.b, B, "bob")
    said = issuer.identity("alice")
    wanted = {"resources": [ours], "identity": said}
    assert code(await alice.ask("subscribe", f"domain://msg-node.{A}/sm", wanted)) == 200
    assert code(await subscribe(bob, B, theirs)) == 200
    await alice.send("read", theirs, {"identity": said}, id="asked", sender=ours)
    request = await bob.expect(type="read", sender=ours)
    await bob.send("response", ours, {"code": 200}, id=request["id"], sender=theirs)
    assert code(await alice.answer("asked")) == 200, "what was asked needs no identity"

    async def told(**body: object) -> int:
        await bob.send("create", ours, dict(body), id="come", sender=theirs)
        return code(await bob.answer("come"))

    async def delivered(**body: object) -> dict[str, object]:
        await bob.send("create", ours, dict(body), id="come", sender=theirs)
        return (await alice.expect(type="create", sender=theirs))["body"]

    assert await told(value="anonymous") == 401
    other = make_issuer("elsewhere.test")
    assert await told(identity=other.identity("bob")) == 401
    assert not other.asked
    assert await told(identity=said) == 401, "hers: she has shown it to b"
    got = await delivered(identity=issuer.identity("bob"), value=1, assertedIdentity=False)
    assert got["assertedIdentity"] is True
    got = await delivered(identity=issuer.identity("erin"), accessToken=issuer.token("erin"))
    assert got["assertedIdentity"] is True, "one session of the peer, many of its users"
    assert nodes.peer()["state"] == "live", "its session is not hurried to say who it is"
