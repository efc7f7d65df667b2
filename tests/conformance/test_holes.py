"""docs/reference/messages.md, section 11: what running nodes of the field get wrong, shown over
real sockets to be right.

The rows of the table that no numbered case shows, and what a little more malice makes of them.
"""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from tests.client import ALLOCATION, SESSION, SM, Client, address, code, runtime
from tests.conftest import Come
from tests.node import Node

BOTH = pytest.mark.parametrize("handshake", ["ws", "stub"])


async def observed(reporter: Client, *observers: Client) -> str:
    """An object of the reporter that the others observe."""
    (obj,) = await reporter.allocate("comm")
    for each in observers:
        await each.subscribe(f"{obj}/changes", f"{obj}/children/")
    return obj


# --- Row 1: broken JSON, a missing body, a list in `to` ---


# --- Row 2: who has gone ---


# --- Row 3: `from` of somebody else ---


@BOTH
async def test_case_84_nobody_speaks_as_somebody_elses_address(come: Come, handshake: str) -> None:
    victim, attacker, target = await come(), await come(handshake=handshake), await come()
    (held,) = await victim.allocate()
    claimed = address()
    await victim.subscribe(claimed)
    own = [held, claimed, victim.runtime_url, f"{victim.runtime_url}/sm", f"{held}/x"]
    own += [f"hyperty-{victim.runtime_url}", victim.session_url, f"hyperty-{victim.runtime_url}/sm"]
    for sender in own:
        assert code(await attacker.ask("create", target.runtime_url, sender=sender)) == 403, sender
    assert await target.received_from(attacker) == []
    await target.send("create", held)
    assert len(await victim.received_from(target)) == 1
    assert await attacker.received_from(target) == []


async def test_nobody_speaks_as_an_address_another_session_was_heard_with(come: Come) -> None:
    victim, attacker, target = await come(), await come(), await come()
    used = address("comm")
    await victim.send("create", target.runtime_url, sender=used)
    await target.expect(type="create")
    assert code(await attacker.ask("create", target.runtime_url, sender=used)) == 403
    await target.send("create", used)
    assert len(await victim.received_from(target)) == 1


@pytest.mark.parametrize(
    "sender", [SM, ALLOCATION, SESSION, "domain://registry.localhost", "mn:/x"]
)
async def test_nobody_speaks_as_a_component_of_the_node(come: Come, sender: str) -> None:
    attacker, target = await come(), await come()
    body = {"code": 200}
    await attacker.send("response", target.runtime_url, body, sender=sender)
    assert code(await attacker.ask("create", target.runtime_url, sender=sender)) == 403
    assert await target.received_from(attacker) == []


async def test_a_session_of_the_other_spelling_is_not_the_runtime(come: Come) -> None:
    victim, target = await come(), await come()
    attacker = await come(f"hyperty-{victim.runtime_url}")
    for sender in (victim.runtime_url, f"{victim.runtime_url}/sm"):
        assert code(await attacker.ask("create", target.runtime_url, sender=sender)) == 403
    stolen = await attacker.subscribe(f"{victim.runtime_url}/sm")
    assert code(stolen) == 403
    await target.send("create", f"{victim.runtime_url}/sm")
    assert len(await victim.received_from(target)) == 1


async def test_a_runtime_url_above_another_is_not_that_runtime(come: Come) -> None:
    above = runtime()
    victim, target = await come(f"{above}/victim"), await come()
    attacker = await come(above)
    for sender in (victim.runtime_url, f"{victim.runtime_url}/sm"):
        assert code(await attacker.ask("create", target.runtime_url, sender=sender)) == 403
        assert code(await attacker.subscribe(sender)) == 403
    await target.send("create", f"{victim.runtime_url}/sm")
    assert len(await victim.received_from(target)) == 1


async def test_a_runtime_url_above_a_claimed_address_does_not_speak_as_it(come: Come) -> None:
    victim, target = await come(), await come()
    claimed = f"runtime://localhost/p2prequester/{uuid.uuid4()}"
    assert code(await victim.subscribe(claimed)) == 200
    attacker = await come("runtime://localhost/p2prequester")
    assert code(await attacker.ask("create", target.runtime_url, sender=claimed)) == 403
    assert code(await attacker.subscribe(claimed)) == 403
    await attacker.close_session()  # it stands above what other tests claim


# --- Row 4: deallocation of somebody else's address ---


# --- Row 5: subscription to somebody else's address ---


async def test_nobody_subscribes_to_somebody_elses_address(come: Come) -> None:
    owner, attacker, talker = await come(), await come(), await come()
    (hyperty,), (obj,) = await owner.allocate(), await owner.allocate("comm")
    claimed = address()
    await owner.subscribe(claimed)
    private = [hyperty, claimed, f"{hyperty}/x", f"{hyperty}/subscription", obj]
    private += [f"{obj}/subscription", owner.runtime_url, f"{owner.runtime_url}/sm", SM, SESSION]
    for each in private:
        assert code(await attacker.subscribe(each)) == 403, each
        # Nor in good company: a request is taken whole or refused whole.
        assert code(await attacker.subscribe(f"{obj}/changes", each)) == 403, each
    for to in (hyperty, claimed, obj, f"{owner.runtime_url}/sm"):
        await talker.send("create", to)
    assert await attacker.received_from(talker) == []
    assert len(await owner.received_from(talker)) == 4
    await owner.send("update", f"{obj}/changes", sender=obj)
    assert await attacker.received_from(owner) == []


# --- Row 6: updates of who is not the reporter ---


@pytest.mark.parametrize("type_", ["update", "create", "execute", "UPDATE"])
async def test_only_the_reporter_speaks_on_an_objects_changes(come: Come, type_: str) -> None:
    reporter, attacker, observer = await come(), await come(), await come()
    obj = await observed(reporter, attacker, observer)
    for sender in (attacker.runtime_url, address(), obj):
        answer = await attacker.ask(type_, f"{obj}/changes", {"value": "evil"}, sender=sender)
        assert code(answer) == 403
    both = await attacker.ask(type_, [observer.runtime_url, f"{obj}/changes"], {"value": "evil"})
    assert code(both) == 403
    assert await observer.received_from(attacker) == []


async def test_nobody_reports_for_an_object_that_nobody_holds(come: Come) -> None:
    attacker, observer, obj = await come(), await come(), address("comm")
    await observer.subscribe(f"{obj}/changes")
    assert code(await attacker.ask("update", f"{obj}/changes")) == 403
    assert await observer.received_from(attacker) == []


# --- Row 7: any scheme ---


# --- Row 8: unknown and foreign addresses ---


# --- Row 9: short addresses ---


# --- Row 10: a made-up token ---


async def test_a_token_that_was_replaced_resumes_nothing(node: Node, come: Come) -> None:
    victim, old = await come(), ""
    old = victim.token
    await victim.open(victim.runtime_url)
    assert victim.token != old
    (held,) = await victim.allocate()
    async with node.ws() as attacker:
        assert "runtimeToken" in (await attacker.reopen(victim.runtime_url, old))["body"]
        await attacker.send("create", held, id="x")
    assert (await victim.expect(id="x"))["to"] == held


# --- Row 11: messages over 64 KiB ---


# --- Row 12: one runtime URL twice ---


# --- Row 13: `delete` in the form of the specification ---


# --- Row 14: the mark on relayed messages ---


async def test_a_relayed_message_carries_the_mark_of_the_policy_and_no_other_new_field(
    come: Come,
) -> None:
    sender, target = await come(), await come()
    await sender.send("create", target.runtime_url, {"value": 1}, id=5)
    (arrived,) = await target.received_from(sender)
    assert arrived == {
        "id": 5, "type": "create", "from": sender.runtime_url, "to": target.runtime_url,
        "body": {"value": 1, "auth": False},
    }  # fmt: skip


# --- Below the table: how the field's stubs and runs behave ---


async def test_a_stub_that_closes_right_after_its_disconnect_is_gone(
    node: Node, come: Come
) -> None:
    talker = await come()
    async with node.stub(runtime()) as client:
        (held,) = await client.allocate()
        command = {"cmd": "disconnect", "data": {"runtimeURL": client.runtime_url}}
        await client.send_raw(json.dumps(command))
    async with asyncio.timeout(10):
        while True:
            await talker.send("create", held)
            if [each for each in await talker.settled() if code(each) == 404]:
                return


# --- Frames that two readers would read differently ---


async def test_what_a_receiver_could_not_read_is_never_passed_on(come: Come) -> None:
    sender, target = await come(), await come()
    frame = {"id": 1, "type": "create", "from": sender.runtime_url, "to": target.runtime_url}
    head = json.dumps(frame)[:-1].encode()
    for text in (
        *(
            b'"\xff"',
            b'"\xc0\xaf"',
            b'"\xed\xa0\x80"',
            b'"a\nb"',
            b'"\x00"',
            b"01",
            b"NaN",
            b'"\\x"',
        ),
        *(b"1.", b"+1", b"[1,]", b"{1:2}", b"tru", b'"\\ud800'),
    ):
        await sender.send_raw(head + b',"body":{"value":' + text + b"}}")
        await sender.send_raw(head + b',"body":{},"more":' + text + b"}")
        assert [code(each) for each in await sender.settled()] == [400, 400], text
    assert await target.received_from(sender) == []


async def test_a_response_is_never_answered_however_broken_it_is(come: Come) -> None:
    client = await come()
    for frame in (
        {"type": "response", "from": "x", "to": "y", "body": {"code": 400}},
        {"type": "response", "from": "x", "to": 7, "id": 1},
        {"type": "Response", "id": 1, "from": client.runtime_url, "to": ""},
        {"type": "response", "id": {}, "from": client.runtime_url, "to": "x", "body": []},
    ):
        await client.send_raw(json.dumps(frame))
    await client.send("response", address(), sender="hyperty://localhost")
    assert await client.settled() == []


async def test_a_session_token_reaches_nobody_else(come: Come) -> None:
    sender, target, observer = await come(), await come(), await come()
    obj = await observed(sender, observer)
    body = {"via": sender.session_url, "value": [sender.token, {sender.token: sender.session_url}]}
    await sender.send("create", target.runtime_url, body, sender=sender.session_url)
    await sender.send("update", f"{obj}/changes", body, sender=obj)
    (direct,) = await target.received_from(sender)
    (published,) = await observer.received_from(sender)
    assert sender.token not in json.dumps([direct, published])
