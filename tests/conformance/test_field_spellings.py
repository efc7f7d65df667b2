"""Messages in the spellings of the field's specifications, old and new, that clients still send.

docs/reference/field.md is the table of what is answered differently on purpose.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.client import ALLOCATION, DOMAIN, REGISTRY, SM, Client, Frame, address, code, runtime
from tests.conftest import Come

LATER = {"resources": ["chat"], "dataSchemes": ["comm"], "status": "live", "expires": 60}


def user_name() -> str:
    return f"{uuid.uuid4().hex}@d.example"


async def register(client: Client, url: str, **value: Any) -> Frame:
    whole = {**LATER, "url": url, "runtime": client.runtime_url, **value}
    return await client.ask("create", REGISTRY, {"value": whole})


async def found(client: Client, resource: str, **criteria: Any) -> Any:
    body = {"resource": resource} | ({"criteria": criteria} if criteria else {})
    answer = await client.ask("read", REGISTRY, body)
    return answer["body"].get("value") or code(answer)


async def test_observers_answer_the_deletion_of_an_object_from_its_changes(come: Come) -> None:
    reporter, one, other, stranger = [await come() for _ in range(4)]
    (obj,) = await reporter.allocate("comm")
    changes, subscription = f"{obj}/changes", f"{obj}/subscription"
    for each in (one, other):
        assert code(await each.ask("subscribe", SM, {"resources": [changes]})) == 200
    await reporter.send("delete", changes, {}, id="d1", sender=subscription)
    for each in (one, other):
        (deleted,) = [each for each in await each.received_from(reporter) if each["id"] == "d1"]
        body = {"code": 200, "source": each.runtime_url}
        await each.send("response", deleted["from"], body, id="d1", sender=deleted["to"])
    for id_, sender in (("d1", stranger), ("d2", one)):  # not asked; and not this
        await sender.send("response", subscription, {"code": 200}, id=id_, sender=changes)
        await sender.settled()
    answers = [await reporter.expect(type="response", id="d1") for _ in range(2)]
    assert {each["body"]["source"] for each in answers} == {one.runtime_url, other.runtime_url}
    assert {each["from"] for each in answers} == {changes}
    assert await reporter.settled() == []


@pytest.mark.parametrize("tail", ["p2phandler", "p2prequester"])
async def test_a_stub_of_a_domain_is_claimed_and_invited(come: Come, tail: str) -> None:
    one, other = await come(), await come()
    stub = f"hyperty-runtime://{DOMAIN}/{tail}/{uuid.uuid4()}"
    assert code(await one.ask("subscribe", SM, {"subscribe": [stub], "source": stub})) == 200
    assert code(await other.ask("subscribe", SM, {"subscribe": [stub]})) == 403
    await other.send("create", stub, {"value": {}})
    (invited,) = [each for each in await one.received_from(other) if each["to"] == stub]
    assert invited["type"] == "create"


async def test_the_first_status_of_a_stub_may_be_a_create_and_is_no_request(come: Come) -> None:
    client = await come()
    for stub in (f"{client.runtime_url}/p2phandler/1", f"runtime://{DOMAIN}/p2prequester/1"):
        await client.send("create", f"{stub}/status", {"value": "created"}, sender=stub)
    assert [each for each in await client.settled() if each["type"] == "response"] == []
    assert code(await client.ask("create", f"{address()}/status")) in (403, 404)


async def test_context_objects_have_addresses_in_both_spellings(come: Come) -> None:
    client = await come()
    for scheme in ("context", "ctxt"):
        answer = await client.ask("create", ALLOCATION, {"scheme": scheme, "value": {"number": 1}})
        (obj,) = answer["body"]["value"]["allocated"]
        assert obj.startswith(f"{scheme}://")


async def test_a_registration_of_the_first_phase(come: Come) -> None:
    client, name = await come(), user_name()
    (hyperty,) = await client.allocate("hyperty")
    value = {
        "user": f"user://d.example/{name}",
        "hypertyURL": hyperty,
        "hypertyDescriptorURL": "hyperty-catalogue://d.example/Chat",
        "expires": "60",
    }
    assert code(await client.ask("create", REGISTRY, {"value": value})) == 200
    record = await found(client, hyperty)
    assert (record["descriptor"], record["expires"]) == (value["hypertyDescriptorURL"], 60)
    assert record["runtime"] == client.runtime_url
    for filter_ in ("idp-identifier", "email"):
        assert list(await found(client, name, filter=filter_)) == [hyperty]
        assert list(await found(client, f"/hyperty/user/{name}", filter=filter_)) == [hyperty]
    refused = await client.ask(
        "read", REGISTRY, {"resource": name, "criteria": {"filter": "shoe size"}}
    )
    assert code(refused) == 400
    assert "idp-identifier" in refused["body"]["desc"]


async def test_what_is_registered_may_be_json_text(come: Come) -> None:
    client = await come()
    (hyperty,) = await client.allocate("hyperty")
    value = {**LATER, "url": hyperty, "user": "user://d.example/x", "descriptor": "d",
             "runtime": client.runtime_url}  # fmt: skip
    assert code(await client.ask("create", REGISTRY, {"value": json.dumps(value)})) == 200
    changed = {"resource": hyperty, "value": json.dumps({"resources": ["video"]})}
    assert code(await client.ask("update", REGISTRY, changed)) == 200
    assert (await found(client, hyperty))["resources"] == ["video"]
    gone = {"value": json.dumps({"url": hyperty, "user": "user://d.example/x"})}
    assert code(await client.ask("delete", REGISTRY, gone)) == 200
    assert code(await client.ask("create", REGISTRY, {"value": "{"})) == 400


@pytest.mark.parametrize("scheme", ["comm", "ctxt"])
async def test_an_object_is_named_by_the_type_of_all_objects(come: Come, scheme: str) -> None:
    client, other, user = await come(), await come(), f"user://d.example/{user_name()}"
    (hyperty,) = await client.allocate("hyperty")
    (obj,) = await client.allocate(scheme)
    assert code(await register(client, hyperty, user=user, descriptor="d")) == 200
    facts = {"schema": "s", "name": "n", "reporter": hyperty}
    assert code(await register(client, obj, **facts)) == 200
    named = f"/dataObject/{obj.rpartition('/')[2]}"
    assert (await found(other, named))["url"] == obj
    assert (await found(other, f"/dataObject/url/{obj}"))["url"] == obj
    assert list(await found(other, f"/dataObject/user/{user}")) == [obj]
    ended = {"resource": named, "value": "disconnected", "attribute": "status"}
    assert code(await other.ask("update", REGISTRY, ended)) in (403, 404)
    assert code(await client.ask("update", REGISTRY, ended)) == 200
    assert (await found(other, named))["status"] == "disconnected"
    assert await found(other, f"/dataObject/{uuid.uuid4()}") == 404


async def test_a_log_in_with_a_scope_alone_is_told_where_a_person_logs_in(come: Come) -> None:
    client = await come(runtime())
    body = {"method": "login", "params": {"scope": "openid"}}
    answer = await client.ask("execute", f"domain://idm.{DOMAIN}", body)
    assert code(answer) == 401
    assert answer["body"]["value"]["name"] == "IdPLoginError"
    assert "/o/authorize/?" in answer["body"]["value"]["loginUrl"]
