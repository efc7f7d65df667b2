"""Two real nodes, of which one asks for identities: who comes to it by the other."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import code
from tests.issuer import Issuer, enter

from .nodes import A, B, TwoNodes, come, subscribe
from .sandboxes import needs_deno
from .test_two_linked import is_linked

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
        place / "nodes", rows, IDENTIFY_TIMEOUT=3, **settings,
        of_b={"ADMISSION": "anonymous", "IDENTITY_PASSES_UNKNOWN": "true",
              "FEDERATION": "listed", "FEDERATION_NETWORKS": "127.0.0.0/8"},
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


async def test_case_71_who_has_logged_in_at_a_linked_node_is_known_here_if_that_is_trusted(
    nodes: TwoNodes, issuer: Issuer
) -> None:
    """He says nothing of himself with his message; an operator of a decides about all of b."""
    to_b, to_a = (f"http://127.0.0.1:{each.port}" for each in (nodes.b, nodes.a))
    nodes.b.manage("peers", "add", A, "--url", to_a)
    nodes.wait(lambda peer: peer["node_found"], nodes.b, A)
    nodes.b.manage("peers", "approve", A)
    nodes.wait(is_linked)
    ours, theirs = f"hyperty://{A}/carol", f"hyperty://{B}/dave"
    carol, dave = await come(nodes.a, A, "carol"), await come(nodes.b, B, "dave")
    wanted = {"resources": [ours], "identity": issuer.identity("carol")}
    assert code(await carol.ask("subscribe", f"domain://msg-node.{A}/sm", wanted)) == 200
    wanted = {"resources": [theirs], "accessToken": issuer.token("dave")}
    assert code(await dave.ask("subscribe", f"domain://msg-node.{B}/sm", wanted)) == 200  # logs in
    await dave.send("create", ours, {"value": 1}, id="untrusted", sender=theirs)
    assert code(await dave.answer("untrusted")) == 401
    before = nodes.peer()["state_at"]
    nodes.a.manage("peers", "add", B, "--url", to_b, "--vouches", "yes")
    until = time.monotonic() + 30
    while not (come_in := [each for each in await carol.settled() if each["from"] == theirs]):
        assert time.monotonic() < until, nodes.a.log()
        await dave.send("create", ours, {"value": 2}, sender=theirs)
        await dave.settled()
    assert come_in[0]["body"] == {"value": 2, "auth": False, "assertedIdentity": True}
    assert "A failure was kept" not in nodes.a.log(), "a link is ended in a way that is allowed"
    nodes.wait(lambda peer: is_linked(peer) and peer["state_at"] != before)
