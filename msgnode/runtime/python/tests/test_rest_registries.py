"""Domain registries over REST: what is asked, what is believed, what a bad registry comes to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from world import FakeCatalogue

from msgnode.runtime.python import Runtime, Settings, rest_registries
from msgnode.runtime.python.registry_calls import (
    Call,
    RegistryRefusal,
    body_of_answer,
    call_of,
)

H, BOB, TO = "hyperty://f/1", "user://f/bob", "domain://registry.f"
RECORD = {"hypertyID": H, "userID": BOB, "status": "live", "resources": ["chat"]}
BY_URL = f"/r/hyperty/url/{quote(H, safe='')}"
BY_USER = f"/r/hyperty/user/{quote(BOB, safe='')}"


class Place:
    """A runtime that asks the registry of f over REST."""

    def __init__(self, runtime: Runtime, registry: FakeCatalogue) -> None:
        self.runtime = runtime
        self.registry = registry

    async def ask(self, type_: str, body: Any, to: str = TO, name: str = "me") -> dict[str, Any]:
        message = {"type": type_, "from": f"{self.runtime.url}/{name}", "to": to}
        message |= {} if body is None else {"body": body}
        answer: dict[str, Any] = (await self.runtime.bus.request(message, 30))["body"]
        return answer

    def serve(self, path: str, found: Any, status: int = 200) -> None:
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.registry.entries[path] = (status, {}, text)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with FakeCatalogue() as registry:
        urls = {"f": f"{registry.url}/r"}
        settings = Settings("d", registries=urls, registry_keys={"f": "mnk_1"}, fetch=3.0)
        async with Runtime(settings) as runtime:
            yield Place(runtime, registry)


async def test_an_entry_is_read_registered_kept_alive_and_removed(place: Place) -> None:
    place.serve(BY_URL, RECORD)
    place.serve(BY_USER, {H: RECORD})
    place.serve(f"{BY_USER}/hyperty?resources=chat,a%2Cb", {H: RECORD})
    place.serve(f"{BY_USER}/{quote(H, safe='')}", {"message": "done"})
    assert await place.ask("read", {"resource": H}) == {"code": 200, "value": RECORD}
    found = await place.ask("read", {"resource": BOB}, f"{TO}/")
    assert found == {"code": 200, "value": {H: RECORD}}
    criteria = {"resources": ["chat", "a,b"]}
    found = await place.ask("read", {"resource": BOB, "criteria": criteria}, "domain://registry.F")
    assert found["code"] == 200
    assert await place.ask("create", {"value": {"url": H, "user": BOB}}) == {"code": 200}
    place.serve(BY_URL, {"message": "done"})
    assert await place.ask("update", {"resource": H}) == {"code": 200}
    assert await place.ask("delete", {"value": {"url": H, "user": BOB}}) == {"code": 200}
    methods = [each.split(" ")[0] for each in place.registry.asked]
    assert methods == ["GET", "GET", "GET", "PUT", "PUT", "DELETE"]
    assert place.runtime.resolver.stubs.get("f") is None


@pytest.mark.parametrize(
    ("type_", "body", "path"),
    [
        ("read", {"resource": "/hyperty/idp-identifier/a@b"}, "hyperty/email/a%40b"),
        ("read", {"resource": "/hyperty/user/a@b"}, "hyperty/email/a%40b"),
        ("read", {"resource": "user-guid://x"}, "hyperty/guid/user-guid%3A%2F%2Fx"),
        ("read", {"resource": "comm://f/1"}, "hyperty/dataobject/url/comm%3A%2F%2Ff%2F1"),
        ("read", {"resource": "a name/../x"}, "hyperty/dataobject/name/a%20name%2F..%2Fx"),
        (
            "read",
            {"resource": "/comm", "criteria": {"reporter": "h"}},
            "hyperty/dataobject/reporter/h",
        ),
        ("update", {"resource": "comm://f/1"}, "dataobject/url/comm%3A%2F%2Ff%2F1"),
        ("delete", {"value": {"url": "comm://f/1"}}, "dataobject/url/comm%3A%2F%2Ff%2F1"),
    ],
)
def test_what_the_message_says_is_what_is_asked(type_: str, body: Any, path: str) -> None:
    assert call_of(type_, body).path == path


async def test_what_cannot_be_asked_is_refused_by_name(place: Place) -> None:
    wrong: list[tuple[str, Any, int]] = [
        ("execute", {"resource": H}, 400),
        ("read", None, 400),
        ("read", {"resource": 5}, 400),
        ("read", {"resource": H, "criteria": []}, 400),
        ("read", {"resource": BOB, "criteria": {"resources": [5]}}, 400),
        ("read", {"resource": BOB, "criteria": {"page": 2}}, 501),
        ("read", {"resource": H, "criteria": {"resources": ["chat"]}}, 501),
        ("read", {"resource": "/comm"}, 501),
        ("read", {"resource": "a\ud800"}, 400),
        ("create", {"value": {"url": H}}, 400),
        ("create", {"value": "x"}, 400),
        ("update", {"resource": "nothing"}, 400),
        ("delete", {}, 400),
    ]
    for type_, body, code in wrong:
        assert (await place.ask(type_, body))["code"] == code, (type_, body)
    assert place.registry.asked == []


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (Call("GET", "", url=H), {**RECORD, "hypertyID": "hyperty://f/2"}),
        (Call("GET", "", url=H), [RECORD]),
        (Call("GET", "", url=H), None),
        (Call("GET", "", by=("user", BOB)), {H: {**RECORD, "userID": "user://f/mallory"}}),
        (Call("GET", "", by=("user", BOB)), {"hyperty://f/2": RECORD}),
        (Call("GET", "", by=("user", BOB)), {H: "x"}),
        (Call("GET", "", by=("email", "bob")), {H: {**RECORD, "userID": "user://f/x-bob"}}),
        (Call("GET", "", by=("guid", "g")), {H: {**RECORD, "guid": "h"}}),
        (Call("GET", "", by=("name", "n")), {"comm://f/1": {"url": "comm://f/1", "name": "m"}}),
        (Call("PUT", ""), None),
    ],
)
def test_a_registry_that_lies_is_believed_nothing(call: Call, found: Any) -> None:
    with pytest.raises(RegistryRefusal) as refused:
        body_of_answer(call, 200, found)
    assert refused.value.code == 502


async def test_what_is_no_answer_and_what_is_a_refusal(place: Place) -> None:
    for text in (b"", b"no", b"[]", b"[" * 100_000, b'{"x": "' + b"x" * 1_000_000 + b'"}'):
        place.serve(BY_URL, text)
        assert (await place.ask("read", {"resource": H}))["code"] == 502
    codes = {401: 401, 403: 403, 404: 404, 429: 429, 500: 504, 503: 504, 418: 502, 302: 502}
    for status, code in codes.items():
        place.serve(BY_URL, {"message": "words " * 1000}, status)
        answer = await place.ask("read", {"resource": H})
        assert answer["code"] == code
        assert len(answer["description"]) <= 500
    place.serve(BY_URL, {**RECORD, "status": "disconnected"}, 408)
    answer = await place.ask("read", {"resource": H})
    assert (answer["code"], answer["value"]["hypertyID"]) == (408, H)


async def test_a_frozen_registry_costs_a_limited_time_and_delays_nobody_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_registries, "SECONDS", 1.0)
    place.registry.hangs = True
    asked = [
        asyncio.ensure_future(place.ask("read", {"resource": H}, name=str(number % 9)))
        for number in range(rest_registries.MAX_WAITING + 1)
    ]
    assert (await asked[-1])["code"] == 503
    assert {(await each)["code"] for each in asked[:-1]} == {504}
    assert len(place.registry.asked) <= rest_registries.AT_ONCE * 2
    place.registry.hangs = False
    place.serve(BY_URL, RECORD)
    assert (await place.ask("read", {"resource": H}))["code"] == 200
    assert not place.runtime.bus.outside._running  # type: ignore[union-attr]


async def test_nobody_there_is_504(place: Place) -> None:
    assert place.registry._server is not None
    place.registry._server.close()
    assert (await place.ask("read", {"resource": H}))["code"] == 504


async def test_it_passes_the_policies_and_nothing_that_a_stub_brings_is_asked(
    place: Place,
) -> None:
    def refuse(message: Any, context: Any) -> Any:
        return {"code": 403, "desc": "no"}

    brought = {"id": 7, "type": "read", "from": "hyperty://f/x", "to": TO, "body": {"resource": H}}
    place.runtime.bus._enqueue(brought, "runtime://d/protostub/1", 0)
    place.runtime.bus.pipeline_out.use(refuse)
    message = {"type": "update", "from": "hyperty://d/me", "to": TO, "body": {"resource": H}}
    answer = await place.runtime.bus.request(message)
    assert answer["body"]["code"] == 403
    assert place.registry.asked == []


def test_a_base_that_is_no_url_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="registries"):
        Settings("d", registries={"f": "f/domain-registry"})
