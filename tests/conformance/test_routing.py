"""Cases 41-45 and 51: routing, over real sockets.

Cases 46-50 are the runtime's and come with its bus; the strict variant of case 51 (a policy that
blocks) comes with the policies. Here a node without policies marks `auth:false`; blocking and
permitting are shown with a faked enforcement point in tests/bus/test_pipeline.py.
"""

from __future__ import annotations

import json

import pytest

from tests.client import ALLOCATION, DOMAIN, REGISTRY, SESSION, SM, address, code, runtime
from tests.conftest import Come

BOTH = pytest.mark.parametrize("handshake", ["ws", "stub"])


@BOTH
@pytest.mark.parametrize("type_", ["create", "read", "UPDATE", "delete", "execute", "forward"])
async def test_case_41_a_request_to_an_unknown_address_is_answered_404(
    come: Come, handshake: str, type_: str
) -> None:
    client, to = await come(handshake=handshake), address()
    answer = await client.ask(type_, to)
    assert (code(answer), answer["from"], answer["to"]) == (404, to, client.runtime_url)
    assert to in answer["body"]["desc"]
    assert answer["body"]["desc"] == answer["body"]["description"]


async def test_case_41_a_response_to_an_unknown_address_is_dropped(come: Come) -> None:
    client = await come()
    await client.send("response", address(), {"code": 200})
    await client.send("RESPONSE", address(), {"code": 200})
    await client.send("response", SM, {"code": 200})
    await client.send("response", "mn:/session", {"code": 200})
    assert await client.settled() == []


@pytest.mark.parametrize("tail", ["changes", "status"])
async def test_case_41_an_update_nobody_subscribed_is_silent(come: Come, tail: str) -> None:
    reporter = await come()
    (obj,) = await reporter.allocate("comm")
    await reporter.send("update", f"{obj}/{tail}", sender=obj)
    assert await reporter.settled() == []


async def test_case_42_each_of_two_targets_gets_a_copy_that_names_it_alone(come: Come) -> None:
    sender, first, second = await come(), await come(), await come()
    targets = [first.runtime_url, second.runtime_url, first.runtime_url]
    await sender.send("create", targets, {"value": 1})
    for client in (first, second):
        arrived = await client.received_from(sender)
        assert [each["to"] for each in arrived] == [client.runtime_url]


async def test_case_42_what_cannot_be_delivered_to_one_is_said_and_the_other_gets_its_copy(
    come: Come,
) -> None:
    sender, target, unknown = await come(), await come(), address()
    await sender.send("create", [unknown, target.runtime_url, SM], id=7)
    answers = await sender.settled()
    assert [(each["from"], code(each), each["id"]) for each in answers] == [
        (unknown, 404, 7), (SM, 400, 7),
    ]  # fmt: skip
    assert len(await target.received_from(sender)) == 1


@pytest.mark.parametrize("to", [[], [""], [7], None, 7, {"a": 1}, "", [["x"]], ["x"] * 2000])
async def test_case_42_a_list_of_anything_else_is_refused(come: Come, to: object) -> None:
    client = await come()
    await client.send("read", to, id=7)
    (answer,) = [each for each in await client.settled() if each.get("id") == 7]
    assert code(answer) in (400, 404)


@BOTH
@pytest.mark.parametrize("tail", ["/registry/", "/registry", "/sm", "/ua", "/p2phandler/x/y"])
async def test_case_43_what_lies_below_a_runtime_url_reaches_it_without_a_subscription(
    come: Come, handshake: str, tail: str
) -> None:
    url, talker = runtime(), await come()
    near, client = await come(url + "x"), await come(url, handshake)
    await talker.send("read", url + tail)
    assert [each["to"] for each in await client.received_from(talker)] == [url + tail]
    assert await near.received_from(talker) == []


async def test_case_43_the_longest_runtime_url_wins(come: Come) -> None:
    url, talker = runtime(), await come()
    below, above = await come(f"{url}/inner"), await come(url)
    await talker.send("read", f"{url}/inner/sm")
    assert len(await below.received_from(talker)) == 1
    assert await above.received_from(talker) == []


async def test_case_43_a_session_url_reaches_its_session_among_several(come: Come) -> None:
    url, talker = runtime(), await come()
    first, second = await come(url), await come(url)
    await talker.send("read", first.session_url)
    await talker.send("read", second.session_url)
    await talker.settled()
    assert len(await first.settled()) == 1
    assert len(await second.settled()) == 1


@pytest.mark.parametrize("tail", ["", "/sm"])
async def test_case_44_the_other_spelling_of_a_runtime_url_is_delivered(
    come: Come, tail: str
) -> None:
    client, talker = await come(), await come()
    to = f"hyperty-{client.runtime_url}{tail}"
    await talker.send("read", to)
    assert [each["to"] for each in await client.received_from(talker)] == [to]


@BOTH
async def test_case_45_every_response_to_a_request_is_delivered(come: Come, handshake: str) -> None:
    asking, answering = await come(handshake=handshake), await come()
    id_ = await asking.send("read", answering.runtime_url)
    asked = await answering.expect(type="read")
    for number in (100, 200, 200):
        await answering.send("response", asked["from"], {"code": number}, id=id_)
    arrived = await asking.received_from(answering)
    assert [code(each) for each in arrived] == [100, 200, 200]
    assert {each["id"] for each in arrived} == {id_}


async def test_case_45_an_answer_to_an_address_nobody_registered_finds_its_way_back(
    come: Come,
) -> None:
    asking, answering = await come(), await come()
    own = address("comm")
    id_ = await asking.send("read", answering.runtime_url, sender=own)
    await answering.expect(type="read")
    await answering.send("response", own, {"code": 200}, id=id_)
    assert code(await asking.answer(id_)) == 200


@BOTH
@pytest.mark.parametrize("claimed", [True, "true", {"a": 1}, None])
async def test_case_51_marks_of_the_sender_are_replaced_by_the_nodes(
    come: Come, handshake: str, claimed: object
) -> None:
    sender, target = await come(), await come(handshake=handshake)
    body = {"auth": claimed, "value": {"auth": claimed}, "assertedIdentity": claimed}
    await sender.send("create", target.runtime_url, body)
    (arrived,) = await target.received_from(sender)
    assert arrived["body"] == {"auth": False, "value": {"auth": claimed}}


@pytest.mark.parametrize(
    "body",
    [
        r'{"\u0061uth":true,"assertedIdentit\u0079":true,"value":1}',
        '{"auth":true,"auth":true,"value":1,"auth":true}',
        '{ "value" : 1 , "assertedIdentity" : true , "\\u0061\\u0075th" : true }',
    ],
)
async def test_case_51_no_spelling_of_a_mark_passes(come: Come, body: str) -> None:
    sender, target = await come(), await come()
    frame = {"id": 1, "type": "create", "from": sender.runtime_url, "to": target.runtime_url}
    await sender.send_raw(f'{json.dumps(frame)[:-1]},"body":{body}}}')
    (arrived,) = await target.received_from(sender)
    assert arrived["body"] == {"auth": False, "value": 1}


async def test_a_message_without_a_body_is_delivered_with_the_mark_alone(come: Come) -> None:
    sender, target = await come(), await come()
    for more in ("", ',"body":null', ',"body":{}'):
        frame = {"id": 1, "type": "ping", "from": sender.runtime_url, "to": target.runtime_url}
        await sender.send_raw(f"{json.dumps(frame)[:-1]}{more}}}")
    arrived = await target.received_from(sender)
    assert [each["body"] for each in arrived] == [{"auth": False}] * 3


async def test_fields_the_node_does_not_know_are_passed_on(come: Come) -> None:
    sender, target = await come(), await come()
    await sender.send("create", target.runtime_url, {"value": 1}, extra={"a": [1]}, ttl=7)
    (arrived,) = await target.received_from(sender)
    assert (arrived["extra"], arrived["ttl"]) == ({"a": [1]}, 7)


async def test_a_foreign_hyperty_that_speaks_is_answered_through_the_session_that_carries_it(
    come: Come,
) -> None:
    carrier, local = await come("runtime://foreign.example/" + address()[-12:]), await come()
    foreign = f"hyperty://foreign.example/{address()[-12:]}"
    await carrier.send("create", local.runtime_url, sender=foreign)
    await local.expect(type="create")
    await local.send("create", foreign, {"value": "back"})
    assert [each["to"] for each in await carrier.received_from(local)] == [foreign]


@pytest.mark.parametrize(
    "to",
    [
        f"domain://msg-node.{DOMAIN}/SM", f"domain://msg-node.{DOMAIN}/sm/x", "sm", "mn:/other",
        "domain://msg-node.elsewhere.example/sm", f"domain://msg-node.{DOMAIN}",
    ],
)  # fmt: skip
async def test_a_component_is_found_by_its_exact_address_only(come: Come, to: str) -> None:
    client = await come()
    assert code(await client.ask("subscribe", to, {"resources": [address()]})) == 404


@pytest.mark.parametrize("to", [f"{SM}/", SM.replace("localhost", "LocalHost"), "DOMAIN" + SM[6:]])
async def test_the_domain_of_a_component_is_compared_without_case_and_one_slash_is_ignored(
    come: Come, to: str
) -> None:
    answer = await (await come()).ask("subscribe", to, {"resources": [address()]})
    assert (code(answer), answer["from"]) == (200, to)


@pytest.mark.parametrize("type_", ["telepathy", "Télépathie", "x" * 64])
async def test_a_type_the_node_does_not_know_is_relayed_unread_and_can_be_answered(
    come: Come, type_: str
) -> None:
    asker, answerer = await come(), await come()
    id_ = await asker.send(type_, answerer.runtime_url, {"value": 1})
    heard = await answerer.expect(id=id_)
    assert (heard["type"], heard["body"]["value"]) == (type_, 1)
    await answerer.send("response", asker.runtime_url, {"code": 200}, id=id_)
    assert code(await asker.answer(id_)) == 200
    assert code(await asker.ask(type_, address())) == 404


@pytest.mark.parametrize(
    "to", [SESSION, SM, ALLOCATION, REGISTRY, "global://registry", "domain://idm.localhost"]
)
async def test_components_answer_400_to_a_type_they_do_not_know(come: Come, to: str) -> None:
    client = await come()
    answer = await client.ask("telepathy", to, {"resource": address()})
    assert (code(answer), answer["from"]) == (400, to)


@pytest.mark.parametrize("to", [REGISTRY, SM, ALLOCATION, "domain://idm.localhost"])
async def test_a_path_behind_a_components_address_is_none_of_it(come: Come, to: str) -> None:
    """What a policy says about the address cannot be passed by with another spelling of it."""
    client = await come()
    answer = await client.ask("read", f"{to}/hyperty/x", {"resource": address()})
    assert (code(answer), answer["from"]) == (404, f"{to}/hyperty/x")
    assert code(await client.ask("telepathy", f"{to}/")) == 400, "a slash alone is no path"
