"""The messages and schemas of the AsyncAPI document, made of the types that frames are read by."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from django.conf import settings

from msgnode.allocation.component import NAMES
from msgnode.allocation.rules import DEFAULT_SCHEME, MAX_KEY, SCHEMES
from msgnode.core.addresses import MAX_HELD, MAX_LENGTH
from msgnode.core.envelope import MAX_ID_LENGTH, MAX_RECIPIENTS, MAX_TYPE_LENGTH, Envelope
from msgnode.core.explanations import CLOSE_CODES, ERRORS
from msgnode.core.message_types import TYPES
from msgnode.sessions.handshake import ADDRESS as SESSION

MEDIA_TYPE = "application/json"
Schema = dict[str, Any]

_DONE = {"code": 200}
_TEXT: Schema = {"type": "string"}
_HELD: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_HELD}
_HELD_OR_LIST: Schema = {"oneOf": [_HELD, {"type": "array", "items": _HELD}]}


class _Example(NamedTuple):
    """Who is who in the examples."""

    runtime: str
    node: str
    hyperty: str
    changes: str
    token: str = "0f3c7e52b1"  # noqa: S105 (of an example)

    @property
    def session(self) -> str:
        """The URL of the runtime's session."""
        return f"{self.runtime}/{self.token}"


def message_components() -> dict[str, Any]:
    """Every message, with an example of this node's domain."""
    domain = settings.DOMAIN
    example = _Example(
        runtime=f"runtime://{domain}/r1",
        node=f"domain://msg-node.{domain}",
        hyperty=f"hyperty://{domain}/h1",
        changes=f"comm://{domain}/o1/changes",
    )
    return {
        **_of_sessions(example),
        **_of_addresses(example),
        **_of_runtimes(example),
        **_of_streams(),
    }


def _of_sessions(example: _Example) -> dict[str, Any]:
    runtime, session = example.runtime, example.session
    opened = {**_DONE, "runtimeToken": example.token}
    return {
        "open": _message("Begin", "SessionFrame", _said("open", runtime, SESSION, {})),
        "reopen": _message(
            "Go on; `from` is the session URL, <runtime URL>/<runtimeToken>", "SessionFrame",
            _said("re-open", session, SESSION, {}),
        ),
        "close": _message("End", "SessionFrame", _said("close", session, SESSION, {})),
        "sessionOpened": _message(
            "The session is open", "SessionOpened", _told(SESSION, runtime, opened)
        ),
        "gap": _message(
            "Messages to the session were lost", "Gap",
            _said("update", example.node, f"{runtime}/status", {"value": "gap"}),
        ),
    }  # fmt: skip


def _of_addresses(example: _Example) -> dict[str, Any]:
    runtime, hyperty, changes = example.runtime, example.hyperty, example.changes
    allocation, manager = f"{example.node}/{NAMES[0]}", f"{example.node}/sm"
    block = {"scheme": "hyperty", "value": {"number": 1}}
    made = {**_DONE, "value": {"allocated": [hyperty]}}
    return {
        "allocate": _message(
            "Addresses are asked for", "AllocationRequest",
            _said("create", runtime, allocation, block),
        ),
        "allocated": _message(
            "The addresses", "AllocationAnswer", _told(allocation, runtime, made)
        ),
        "release": _message(
            "Addresses are given back", "ReleaseRequest",
            _said("delete", runtime, allocation, {"resource": hyperty}),
        ),
        "subscribe": _message(
            "Addresses to hear", "SubscriptionRequest",
            _said("subscribe", runtime, manager, {"resources": [changes]}),
        ),
        "unsubscribe": _message(
            "Addresses to hear no longer", "SubscriptionRequest",
            _said("unsubscribe", runtime, manager, {"resources": [changes]}),
        ),
        "done": _message("Done", "Done", _told(manager, runtime, _DONE)),
    }  # fmt: skip


def _of_runtimes(example: _Example) -> dict[str, Any]:
    runtime, hyperty, changes = example.runtime, example.hyperty, example.changes
    refused = {"code": 404, "desc": "Nobody listens.", "description": "Nobody listens."}
    return {
        "message": _message(
            "Any message of a runtime", "Message",
            _said("update", changes.removesuffix("/changes"), changes, {"value": "hello"}),
        ),
        "response": _message(
            "An answer of a runtime", "Response", _told(hyperty, runtime, {**_DONE, "value": 1})
        ),
        "refusal": _message("It was refused", "Refusal", _told(hyperty, runtime, refused)),
    }  # fmt: skip


def _of_streams() -> dict[str, Any]:
    end = {"code": {"enum": sorted(CLOSE_CODES)}, "reason": {"type": "string"}}
    return {
        "streamGap": {
            "name": "gap",
            "title": "Messages to the device were lost",
            "payload": {"type": "object"},
        },
        "streamEnd": {
            "name": "close",
            "title": "The last event, as a WebSocket is closed",
            "payload": {"type": "object", "required": ["code"], "properties": end},
        },
    }


def _said(type_: str, sender: str, to: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"id": 1, "type": type_, "from": sender, "to": to, "body": body}


def _told(sender: str, to: str, body: dict[str, Any]) -> dict[str, Any]:
    return _said("response", sender, to, body)


def _message(title: str, schema: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": title,
        "contentType": MEDIA_TYPE,
        "correlationId": {"location": "$message.payload#/id"},
        "payload": ref("schemas", schema),
        "examples": [{"payload": example}],
    }


# --- schemas --------------------------------------------------------------------------------------


def schemas() -> dict[str, Schema]:
    """What is in the messages."""
    node = f"domain://msg-node.{settings.DOMAIN}"
    return {
        **_envelope_schemas(),
        **_session_schemas(node),
        **_allocation_schemas([f"{node}/{name}" for name in NAMES]),
        **_subscription_schemas(f"{node}/sm"),
    }


def _envelope_schemas() -> dict[str, Schema]:
    titles = "; ".join(f"{code}: {error.explanation.title}" for code, error in ERRORS.items())
    return {
        "Id": {
            "description": "Given back in the answer exactly as it was written.",
            "oneOf": [
                {"type": "string", "maxLength": MAX_ID_LENGTH},
                {"type": "number"},
                {"type": "boolean"},
            ],
        },
        "Address": {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH},
        "Message": _envelope({
            "type": {
                "type": "string",
                "maxLength": MAX_TYPE_LENGTH,
                "description": "In any case. Others than these are passed on unread.",
                "examples": sorted(TYPES - {"response"}),
            },
        }),
        "Response": _envelope({"type": {"const": "response"}}, body={
            "type": "object", "properties": {"code": {"type": ["integer", "string"]}},
        }),
        "Done": _answer({}),
        "Refusal": _envelope({"type": {"const": "response"}}, body={
            "type": "object",
            "required": ["code"],
            "properties": {
                "code": {"enum": sorted(ERRORS), "description": titles},
                "desc": _TEXT,
                "description": _TEXT,
            },
        }),
    }  # fmt: skip


def _session_schemas(node: str) -> dict[str, Schema]:
    return {
        "SessionFrame": _envelope({
            "type": {"enum": ["open", "re-open", "close"]}, "to": {"const": SESSION},
        }),
        "SessionOpened": _answer({"runtimeToken": _TEXT}),
        "Gap": _envelope(
            {"type": {"const": "update"}, "from": {"const": node}},
            body={
                "type": "object", "required": ["value"], "properties": {"value": {"const": "gap"}},
            },
        ),
    }  # fmt: skip


def _allocation_schemas(addresses: list[str]) -> dict[str, Schema]:
    number = {
        "type": "integer",
        "minimum": 0,
        "default": 1,
        "maximum": limits()["MAX_ADDRESSES_PER_REQUEST"],
    }
    scheme = {
        "type": "string",
        "default": DEFAULT_SCHEME,
        "examples": list(SCHEMES),
        "description": "One of the examples, or one that has an address pool.",
    }
    key = {"type": "string", "maxLength": MAX_KEY}
    value = {"type": "object", "properties": {"number": number, "allocationKey": key}}
    return {
        "AllocationRequest": _envelope(
            {"type": {"const": "create"}, "to": {"enum": addresses}},
            body={"type": "object", "properties": {"scheme": scheme, "value": value}},
        ),
        "AllocationAnswer": _answer({
            "value": {
                "type": "object",
                "required": ["allocated"],
                "properties": {"allocated": {"type": "array", "items": _HELD}},
            },
        }),
        "ReleaseRequest": _envelope(
            {"type": {"const": "delete"}, "to": {"enum": addresses}},
            body={
                "type": "object",
                "properties": {"resource": _HELD_OR_LIST, "childrenResources": _HELD_OR_LIST},
                "anyOf": [{"required": ["resource"]}, {"required": ["childrenResources"]}],
            },
        ),
    }  # fmt: skip


def _subscription_schemas(manager: str) -> dict[str, Schema]:
    named = {"resources": _HELD_OR_LIST, "resource": _HELD, "childrenResources": _HELD_OR_LIST}
    return {
        "SubscriptionRequest": _envelope(
            {"type": {"enum": ["subscribe", "unsubscribe"]}, "to": {"const": manager}},
            body={
                "type": "object",
                "properties": named,
                "anyOf": [{"required": ["resources"]}, {"required": ["resource"]}],
            },
        ),
    }


def _envelope(narrowed: Schema, body: Schema | None = None) -> Schema:
    """The envelope of every frame, its fields taken from the type that frames are read by."""
    known: Schema = {
        "id": ref("schemas", "Id"),
        "type": {"type": "string", "maxLength": MAX_TYPE_LENGTH},
        "from": ref("schemas", "Address"),
        "to": {
            "oneOf": [
                ref("schemas", "Address"),
                {
                    "type": "array",
                    "items": ref("schemas", "Address"),
                    "minItems": 1,
                    "maxItems": MAX_RECIPIENTS,
                },
            ]
        },
        "body": {"type": "object"},
    }
    names = [field.encode_name for field in msgspec.structs.fields(Envelope)]
    properties = {name: known[name] for name in names} | narrowed
    if body is not None:
        properties["body"] = body
    return {
        "type": "object",
        "required": [name for name in names if name not in ("body", "id")],
        "properties": properties,
    }


def _answer(fields: Schema) -> Schema:
    body = {
        "type": "object",
        "required": ["code", *fields],
        "properties": {"code": {"const": 200}, **fields},
    }
    return _envelope({"type": {"const": "response"}}, body)


def limits() -> dict[str, Any]:
    """The node's limits."""
    limits: dict[str, Any] = settings.NODE
    return limits


def ref(kind: str, name: str) -> Schema:
    """A reference to a component of the document."""
    return {"$ref": f"#/components/{kind}/{name}"}
