"""The messages and schemas of the AsyncAPI document, made of the types that frames are read by."""

from __future__ import annotations

from typing import Any

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


def message_components() -> dict[str, Any]:
    """Every message, with an example of this node's domain."""
    domain = settings.DOMAIN
    runtime, node = f"runtime://{domain}/r1", f"domain://msg-node.{domain}"
    token = "0f3c7e52b1"  # noqa: S105 (of an example)
    allocation, manager = f"{node}/{NAMES[0]}", f"{node}/sm"
    hyperty, changes = f"hyperty://{domain}/h1", f"comm://{domain}/o1/changes"

    def said(type_: str, sender: str, to: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"id": 1, "type": type_, "from": sender, "to": to, "body": body}

    def told(sender: str, to: str, body: dict[str, Any]) -> dict[str, Any]:
        return said("response", sender, to, body)

    well = {"code": 200}
    refused = {"code": 404, "desc": "Nobody listens.", "description": "Nobody listens."}
    opened = {**well, "runtimeToken": token}
    block = {"scheme": "hyperty", "value": {"number": 1}}
    made = {**well, "value": {"allocated": [hyperty]}}
    return {
        "open": _message("Begin", "SessionFrame", said("open", runtime, SESSION, {})),
        "reopen": _message(
            "Go on; `from` is the session URL, <runtime URL>/<runtimeToken>", "SessionFrame",
            said("re-open", f"{runtime}/{token}", SESSION, {}),
        ),
        "close": _message(
            "End", "SessionFrame", said("close", f"{runtime}/{token}", SESSION, {})
        ),
        "sessionOpened": _message(
            "The session is open", "SessionOpened", told(SESSION, runtime, opened)
        ),
        "allocate": _message(
            "Addresses are asked for", "AllocationRequest",
            said("create", runtime, allocation, block),
        ),
        "allocated": _message(
            "The addresses", "AllocationAnswer", told(allocation, runtime, made)
        ),
        "release": _message(
            "Addresses are given back", "ReleaseRequest",
            said("delete", runtime, allocation, {"resource": hyperty}),
        ),
        "subscribe": _message(
            "Addresses to hear", "SubscriptionRequest",
            said("subscribe", runtime, manager, {"resources": [changes]}),
        ),
        "unsubscribe": _message(
            "Addresses to hear no longer", "SubscriptionRequest",
            said("unsubscribe", runtime, manager, {"resources": [changes]}),
        ),
        "done": _message("Done", "Done", told(manager, runtime, well)),
        "refusal": _message("It was refused", "Refusal", told(hyperty, runtime, refused)),
        "message": _message(
            "Any message of a runtime", "Message",
            said("update", changes.removesuffix("/changes"), changes, {"value": "hello"}),
        ),
        "response": _message(
            "An answer of a runtime", "Response", told(hyperty, runtime, {**well, "value": 1})
        ),
        "gap": _message(
            "Messages to the session were lost", "Gap",
            said("update", node, f"{runtime}/status", {"value": "gap"}),
        ),
        "streamGap": {
            "name": "gap",
            "title": "Messages to the device were lost",
            "payload": {"type": "object"},
        },
        "streamEnd": {
            "name": "close",
            "title": "The last event, as a WebSocket is closed",
            "payload": {
                "type": "object",
                "required": ["code"],
                "properties": {"code": {"enum": sorted(CLOSE_CODES)}, "reason": {"type": "string"}},
            },
        },
    }  # fmt: skip


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
    address = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}
    held = {"type": "string", "minLength": 1, "maxLength": MAX_HELD}
    texts = {"oneOf": [held, {"type": "array", "items": held}]}
    node = f"domain://msg-node.{settings.DOMAIN}"
    allocation = [f"{node}/{name}" for name in NAMES]
    return {
        "Id": {
            "description": "Given back in the answer exactly as it was written.",
            "oneOf": [
                {"type": "string", "maxLength": MAX_ID_LENGTH},
                {"type": "number"},
                {"type": "boolean"},
            ],
        },
        "Address": address,
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
        "SessionFrame": _envelope({
            "type": {"enum": ["open", "re-open", "close"]}, "to": {"const": SESSION},
        }),
        "SessionOpened": _answer({"runtimeToken": {"type": "string"}}),
        "Done": _answer({}),
        "Refusal": _envelope({"type": {"const": "response"}}, body={
            "type": "object",
            "required": ["code"],
            "properties": {
                "code": {
                    "enum": sorted(ERRORS),
                    "description": "; ".join(
                        f"{code}: {error.explanation.title}" for code, error in ERRORS.items()
                    ),
                },
                "desc": {"type": "string"},
                "description": {"type": "string"},
            },
        }),
        "AllocationRequest": _envelope(
            {"type": {"const": "create"}, "to": {"enum": allocation}},
            body={
                "type": "object",
                "properties": {
                    "scheme": {
                        "type": "string",
                        "default": DEFAULT_SCHEME,
                        "examples": list(SCHEMES),
                        "description": "One of the examples, or one that has an address pool.",
                    },
                    "value": {
                        "type": "object",
                        "properties": {
                            "number": {
                                "type": "integer", "minimum": 0, "default": 1,
                                "maximum": limits()["MAX_ADDRESSES_PER_REQUEST"],
                            },
                            "allocationKey": {"type": "string", "maxLength": MAX_KEY},
                        },
                    },
                },
            },
        ),
        "AllocationAnswer": _answer({
            "value": {
                "type": "object",
                "required": ["allocated"],
                "properties": {"allocated": {"type": "array", "items": held}},
            },
        }),
        "ReleaseRequest": _envelope(
            {"type": {"const": "delete"}, "to": {"enum": allocation}},
            body={
                "type": "object",
                "properties": {"resource": texts, "childrenResources": texts},
                "anyOf": [{"required": ["resource"]}, {"required": ["childrenResources"]}],
            },
        ),
        "SubscriptionRequest": _envelope(
            {"type": {"enum": ["subscribe", "unsubscribe"]}, "to": {"const": f"{node}/sm"}},
            body={
                "type": "object",
                "properties": {
                    "resources": texts,
                    "resource": held,
                    "childrenResources": texts,
                },
                "anyOf": [{"required": ["resources"]}, {"required": ["resource"]}],
            },
        ),
        "Gap": _envelope(
            {"type": {"const": "update"}, "from": {"const": node}},
            body={
                "type": "object", "required": ["value"], "properties": {"value": {"const": "gap"}},
            },
        ),
    }  # fmt: skip


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
