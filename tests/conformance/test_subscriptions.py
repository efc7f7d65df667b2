"""Cases 29-40: the subscription manager, over real sockets.

The part of case 35 that asks for a verified subject comes with identity.
"""

from __future__ import annotations

import pytest

from tests.client import SM, Client, Frame, address, code, runtime
from tests.conftest import Come

BOTH = pytest.mark.parametrize("handshake", ["ws", "stub"])


async def an_object(reporter: Client) -> str:
    (held,) = await reporter.allocate("comm")
    return held


async def publish(reporter: Client, obj: str, tail: str = "changes", **body: object) -> None:
    await reporter.send("update", f"{obj}/{tail}", body or {"value": 1}, sender=obj)


@BOTH
async def test_case_29_an_update_reaches_the_subscriber_with_its_body_and_no_answer_comes(
    come: Come, handshake: str
) -> None:
    reporter, observer = await come(), await come(handshake=handshake)
    obj = await an_object(reporter)
    assert code(await observer.subscribe(f"{obj}/changes")) == 200
    body = {"value": {"a": [1, "é"], "b": None}, "attribute": "x.y", "version": 2}
    await publish(reporter, obj, **body)
    (update,) = await observer.received_from(reporter)
    assert update["body"].pop("auth") is False
    assert update == {
        "id": update["id"], "type": "update", "from": obj, "to": f"{obj}/changes", "body": body,
    }  # fmt: skip
    assert await reporter.settled() == []


async def test_case_30_the_form_of_resource_and_children(come: Come) -> None:
    reporter, observer = await come(), await come()
    obj = await an_object(reporter)
    body = {"resource": obj, "childrenResources": [{"name": "chat"}]}
    assert code(await observer.ask("subscribe", SM, body)) == 200
    for tail in ("changes", "children/chat", "chat"):
        await publish(reporter, obj, tail)
    arrived = [each["to"] for each in await observer.received_from(reporter)]
    assert arrived == [f"{obj}/changes", f"{obj}/children/chat", f"{obj}/chat"]
    # The object itself stays with its owner.
    await observer.send("read", obj)
    assert len(await reporter.received_from(observer)) == 1


async def test_case_31_every_form_of_the_list_has_the_same_effect(come: Come) -> None:
    reporter, observer = await come(), await come()
    for type_, field in (("subscribe", "subscribe"), ("SUBSCRIBE", "resources")):
        obj = await an_object(reporter)
        assert code(await observer.ask(type_, SM, {field: f"{obj}/changes"})) == 200
        await publish(reporter, obj)
        assert len(await observer.received_from(reporter)) == 1


async def test_case_32_subscribing_twice_is_one_delivery_and_two_runtimes_get_one_each(
    come: Come,
) -> None:
    reporter, first, second = await come(), await come(), await come()
    obj = await an_object(reporter)
    ids = [
        await first.send("subscribe", SM, {"resources": [f"{obj}/changes"] * 2}) for _ in range(3)
    ]
    assert [code(await first.answer(each)) for each in ids] == [200] * 3
    assert code(await second.subscribe(f"{obj}/changes")) == 200
    await publish(reporter, obj)
    assert len(await first.received_from(reporter)) == 1
    assert len(await second.received_from(reporter)) == 1


@pytest.mark.parametrize("field", ["unsubscribe", "resources"])
async def test_case_33_unsubscribing_ends_ones_own_subscription_only(
    come: Come, field: str
) -> None:
    reporter, first, second = await come(), await come(), await come()
    obj = await an_object(reporter)
    await first.subscribe(f"{obj}/changes")
    assert code(await second.unsubscribe(f"{obj}/changes")) == 200
    await second.subscribe(f"{obj}/changes")
    assert code(await second.ask("unsubscribe", SM, {field: [f"{obj}/changes"]})) == 200
    assert code(await second.ask("unsubscribe", SM, {field: [f"{obj}/changes"]})) == 200
    await publish(reporter, obj)
    assert await second.received_from(reporter) == []
    assert len(await first.received_from(reporter)) == 1


async def test_case_33_subscribing_and_unsubscribing_in_one_breath_ends_unsubscribed(
    come: Come,
) -> None:
    reporter, observer = await come(), await come()
    obj = await an_object(reporter)
    body = {"resources": [f"{obj}/changes"]}
    types = ["subscribe", "unsubscribe"] * 5
    ids = [await observer.send(type_, SM, body) for type_ in types]
    assert [code(await observer.answer(each)) for each in ids] == [200] * 10
    await publish(reporter, obj)
    assert await observer.received_from(reporter) == []


async def test_case_34_a_request_without_addresses_is_refused(come: Come) -> None:
    client = await come()
    bodies: tuple[Frame, ...] = (
        {}, {"resources": []}, {"resources": [7]}, {"resources": {"a": 1}}, {"resources": [""]},
        {"resources": ["a\nb"]}, {"resources": ["comm://localhost/" + "x" * 3000]},
        {"childrenResources": ["chat"]}, {"resource": 7}, {"source": "x"},
    )  # fmt: skip
    for body in bodies:
        for type_ in ("subscribe", "unsubscribe"):
            assert code(await client.ask(type_, SM, body)) == 400, body


async def test_case_34_both_lists_mean_their_union(come: Come) -> None:
    reporter, observer = await come(), await come()
    first, second = await an_object(reporter), await an_object(reporter)
    body = {"resources": [f"{first}/changes"], "subscribe": [f"{second}/changes"]}
    assert code(await observer.ask("subscribe", SM, body)) == 200
    await publish(reporter, first)
    await publish(reporter, second)
    assert len(await observer.received_from(reporter)) == 2


@pytest.mark.parametrize("field", ["source", "subscriber"])
async def test_case_35_a_source_of_another_session_of_the_runtime_is_subscribed_instead(
    come: Come, field: str
) -> None:
    reporter, url = await come(), runtime()
    asked_for, asking = await come(url), await come(url)
    (source,) = await asked_for.allocate()
    obj = await an_object(reporter)
    body = {"resources": [f"{obj}/changes"], field: source}
    assert code(await asking.ask("subscribe", SM, body)) == 200
    await publish(reporter, obj)
    await reporter.settled()
    assert len(await asked_for.settled()) == 1
    assert await asking.settled() == []


async def test_case_35_a_source_of_a_stranger_is_not_believed(come: Come) -> None:
    reporter, victim, asking = await come(), await come(), await come()
    (source,) = await victim.allocate()
    obj = await an_object(reporter)
    body = {"resources": [f"{obj}/changes"], "source": source}
    assert code(await asking.ask("subscribe", SM, body)) == 200
    await publish(reporter, obj)
    assert len(await asking.received_from(reporter)) == 1
    assert await victim.received_from(reporter) == []


@pytest.mark.parametrize("via", ["runtime://localhost/protostub/1", ["a", "b"]])
async def test_case_36_a_publisher_that_subscribed_gets_its_echo_with_its_own_via(
    come: Come, via: object
) -> None:
    reporter = await come()
    obj = await an_object(reporter)
    await reporter.subscribe(f"{obj}/changes")
    await publish(reporter, obj, value=1, via=via)
    assert (await reporter.expect(type="update"))["body"]["via"] == via


async def test_case_36_a_session_url_in_via_comes_back_to_its_session_only(come: Come) -> None:
    reporter, observer = await come(), await come()
    obj = await an_object(reporter)
    await reporter.subscribe(f"{obj}/changes")
    await observer.subscribe(f"{obj}/changes")
    await publish(reporter, obj, value=1, via=reporter.session_url)
    assert (await reporter.expect(type="update"))["body"]["via"] == reporter.session_url
    copy = await observer.expect(type="update")
    assert copy["body"]["via"] == reporter.runtime_url
    assert reporter.token not in str(copy)


async def test_case_37_children_with_a_slash_are_another_address_than_without(come: Come) -> None:
    reporter, observer = await come(), await come()
    obj = await an_object(reporter)
    await observer.subscribe(f"{obj}/children/")
    assert code(await reporter.ask("create", f"{obj}/children", sender=obj)) == 404
    await reporter.send("create", f"{obj}/children/", sender=obj)
    assert len(await observer.received_from(reporter)) == 1


async def test_case_38_the_request_for_a_subscription_reaches_its_reporter_alone(
    come: Come,
) -> None:
    reporter, observer, other = await come(), await come(), await come()
    obj = await an_object(reporter)
    assert code(await reporter.subscribe(obj, f"{obj}/subscription")) == 200
    assert code(await other.subscribe(f"{obj}/subscription")) == 403
    id_ = await observer.send("subscribe", f"{obj}/subscription", {"subscriber": "x"})
    asked = await reporter.expect(type="subscribe")
    for number, value in ((100, None), (200, {"name": "chat"})):
        body = {"code": number, "value": value}
        await reporter.send("response", asked["from"], body, id=asked["id"], sender=asked["to"])
    answers = [await observer.answer(id_), await observer.answer(id_)]
    assert [code(each) for each in answers] == [100, 200]
    assert answers[1]["body"]["value"] == {"name": "chat"}
    assert await other.settled() == []


async def test_case_39_a_registration_status_reaches_its_subscribers_only(come: Come) -> None:
    owner, watcher, other = await come(), await come(), await come()
    (held,) = await owner.allocate()
    assert code(await watcher.subscribe(f"{held}/registration")) == 200
    await owner.send("update", f"{held}/registration", {"value": "live"}, sender=held)
    (arrived,) = await watcher.received_from(owner)
    assert arrived["body"]["value"] == "live"
    assert await other.received_from(owner) == []
    assert await owner.settled() == []


@BOTH
async def test_case_40_who_leaves_is_off_the_list_and_the_others_stay(
    come: Come, handshake: str
) -> None:
    reporter, leaving, staying = await come(), await come(), await come(handshake=handshake)
    obj = await an_object(reporter)
    await leaving.subscribe(f"{obj}/changes")
    await staying.subscribe(f"{obj}/changes")
    assert await leaving.close_session() == 1000
    await publish(reporter, obj)
    assert len(await staying.received_from(reporter)) == 1
    assert await reporter.settled() == []


async def test_an_observer_writes_to_a_child_it_made_and_no_other_observer_can(come: Come) -> None:
    reporter, writer, other = await come(), await come(), await come()
    obj = await an_object(reporter)
    child = f"{obj}/children/{address()[-8:]}"
    for observer in (writer, other):
        await observer.subscribe(f"{obj}/changes", f"{obj}/children/")
    await writer.send("create", f"{obj}/children/", {"resource": child}, sender=child)
    assert len(await other.received_from(writer)) == 1
    refused = await other.ask("update", f"{obj}/children/", sender=child)
    assert code(refused) == 403
