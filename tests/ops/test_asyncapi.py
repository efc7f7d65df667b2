"""The AsyncAPI document is one by the schema of AsyncAPI, and says what a real node does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from msgnode.core.explanations import ERRORS
from msgnode.core.message_types import TYPES
from msgnode.ops.asyncapi import document
from tests.node import Node

SCHEMA = Path(__file__).parent / "asyncapi" / "3.0.0.json.gz"
ORDER = ("openSession", "allocateAddresses", "releaseAddresses", "subscribe", "unsubscribe",
         "sendMessage", "closeSession")  # fmt: skip


@pytest.fixture(params=[False, True], ids=["runtimes", "devices"])
def described(request: pytest.FixtureRequest, settings: Any) -> dict[str, Any]:
    settings.DEVICE_HTTP = request.param
    plain: dict[str, Any] = json.loads(json.dumps(document()))
    return plain


def resolved(described: dict[str, Any], ref: str) -> Any:
    found: Any = described
    for name in ref.removeprefix("#/").split("/"):
        found = found[name.replace("~1", "/").replace("~0", "~")]
    return resolved(described, found["$ref"]) if "$ref" in found else found


def refs(part: Any) -> set[str]:
    if isinstance(part, list):
        return {ref for each in part for ref in refs(each)}
    if not isinstance(part, dict):
        return set()
    own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
    return own | {ref for each in part.values() for ref in refs(each)}


def validator(schema: Any) -> Any:
    import jsonschema  # takes seconds for the grammar of URIs: not while tests are collected

    return jsonschema.Draft7Validator(schema)


def check(described: dict[str, Any], message: str, said: Any) -> None:
    """Whether what was said is such a message."""
    payload = resolved(described, f"#/components/messages/{message}")["payload"]
    whole = {**payload, "components": described["components"]}
    validator(whole).validate(said)


def test_it_is_an_asyncapi_document(described: dict[str, Any]) -> None:
    schema = json.loads(gzip.decompress(SCHEMA.read_bytes()))
    faults = list(validator(schema).iter_errors(described))
    assert [f"{list(each.path)}: {each.message[:200]}" for each in faults] == []


def test_every_reference_leads_somewhere_and_nothing_stands_unused(
    described: dict[str, Any],
) -> None:
    named = refs(described)
    for ref in named:
        resolved(described, ref)
    kept = described["components"]
    unused = {
        f"#/components/{kind}/{name}" for kind in kept for name in kept[kind]
    } - named  # fmt: skip
    streams = {"#/components/messages/streamGap", "#/components/messages/streamEnd"}
    assert unused <= streams


def test_every_example_is_such_a_message(described: dict[str, Any]) -> None:
    for name, message in described["components"]["messages"].items():
        for example in message.get("examples", ()):
            check(described, name, example["payload"])


def test_every_error_and_every_word_of_type_is_there(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert set(schemas["Refusal"]["properties"]["body"]["properties"]["code"]["enum"]) == set(
        ERRORS
    )
    assert set(schemas["Message"]["properties"]["type"]["examples"]) == TYPES - {"response"}


def test_it_is_served_without_an_account(client: Client) -> None:
    answer = client.get("/api/asyncapi.json")
    assert answer.status_code == 200
    assert answer.json()["asyncapi"] == "3.0.0"


def test_a_page_shows_every_operation_with_an_example(client: Client) -> None:
    text = client.get("/api/messages").content.decode()
    for name, operation in document()["operations"].items():
        assert f'id="{name}"' in text
        assert operation["summary"] in text
    assert "&quot;runtimeToken&quot;" in text


async def test_a_node_takes_each_example_and_answers_as_it_is_described(node: Node) -> None:
    described = json.loads(node.text("/api/asyncapi.json"))
    operations, messages = described["operations"], described["components"]["messages"]
    token = ""
    async with node.ws() as client:
        for number, name in enumerate(ORDER):
            operation = operations[name]
            asked = operation["messages"][0]["$ref"].rpartition("/")[2]
            frame = {**messages[asked]["examples"][0]["payload"], "id": number}
            if name == "closeSession":
                frame["from"] = frame["from"].rpartition("/")[0] + f"/{token}"
            if name == "sendMessage":  # a request, so that it is answered
                frame = {**frame, "type": "read", "from": client.runtime_url,
                         "to": "comm://localhost/nobody"}  # fmt: skip
            check(described, asked, frame)
            await client.send_raw(json.dumps(frame))
            answer = await client.answer(number)
            given = operation["reply"]["messages"]
            expected, refusal = (each["$ref"].rpartition("/")[2] for each in given)
            check(described, refusal if name == "sendMessage" else expected, answer)
            if name == "openSession":
                token, client.runtime_url = answer["body"]["runtimeToken"], frame["from"]
        assert await client.close_code() == 1000
