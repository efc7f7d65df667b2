"""The AsyncAPI 3 document of the node: what goes over its WebSockets and streams of events.

Made of the code's own types: the words of `type`, the envelope and its limits, the schemes and
limits of this node's settings, the error codes and close codes with their explanations. The node is
the application of the document: what it receives, runtimes send.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from msgnode.allocation.component import NAMES
from msgnode.allocation.rules import DEFAULT_SCHEME, MAX_KEY
from msgnode.core.addresses import MAX_HELD, MAX_LENGTH
from msgnode.core.envelope import MAX_ID_LENGTH, MAX_RECIPIENTS, MAX_TYPE_LENGTH, Envelope
from msgnode.core.explanations import CLOSE_CODES, ERRORS
from msgnode.core.message_types import TYPES
from msgnode.devices.api import ROOT
from msgnode.sessions.handshake import ADDRESS as SESSION

VERSION = "3.0.0"
MEDIA_TYPE = "application/json"
Schema = dict[str, Any]
_EVENTS = ("message", "response", "streamGap", "streamEnd")


@require_safe
def asyncapi(request: HttpRequest) -> HttpResponse:
    """Serve `/api/asyncapi.json`."""
    return HttpResponse(msgspec.json.encode(document()), content_type=MEDIA_TYPE)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Serve `/api/messages`: the document for people."""
    whole = document()
    messages = whole["components"]["messages"]
    shown = [
        {
            "name": name,
            "summary": operation["summary"],
            "is_sent": operation["action"] == "send",
            "address": whole["channels"][_last(operation["channel"])]["address"],
            "said": [_shown(messages[_last(each)]) for each in operation["messages"]],
            "answers": [
                _shown(messages[_last(each)])
                for each in operation.get("reply", {}).get("messages", ())
            ],
        }
        for name, operation in whole["operations"].items()
    ]
    facts = {"operations": shown, "servers": whole["servers"].values()}
    return render(request, "messages.html", facts)


def _last(ref: Schema) -> str:
    return str(ref["$ref"].rpartition("/")[2])


def _shown(message: dict[str, Any]) -> dict[str, str]:
    """The title of a message and its example as text."""
    examples = message.get("examples", ())
    text = msgspec.json.format(msgspec.json.encode(examples[0]["payload"])) if examples else b""
    return {"title": message["title"], "example": text.decode()}


def document() -> dict[str, Any]:
    """The document of this node, as it is set up."""
    messages = _messages()
    channels = _channels(messages)
    return {
        "asyncapi": VERSION,
        "info": {
            "title": "Messaging Node",
            "version": "1",
            "description": (
                "Runtimes exchange JSON messages. After `open` a runtime has a session; what it "
                "asks of the node is addressed to a component of it, everything else to whoever "
                f"holds or has subscribed the address. A frame has {_limits()['MAX_FRAME_BYTES']:,}"
                " bytes at most.\n\n" + _close_codes()
            ),
        },
        "defaultContentType": MEDIA_TYPE,
        "servers": _servers(),
        "channels": channels,
        "operations": _operations(),
        "components": {"schemas": _schemas(), "messages": messages},
    }


# --- servers, channels, operations ----------------------------------------------------------------


def _servers() -> dict[str, Any]:
    parts = urlsplit(settings.PUBLIC_URL)
    is_safe = parts.scheme == "https"
    servers = {
        "runtimes": {
            "host": parts.netloc,
            "protocol": "wss" if is_safe else "ws",
            "description": "Runtimes and their protostubs.",
        }
    }
    if settings.DEVICE_HTTP:
        servers["devices"] = {
            "host": parts.netloc,
            "protocol": "https" if is_safe else "http",
            "description": "Devices without a WebSocket; requests are in the OpenAPI document.",
        }
    return servers


def _channels(messages: dict[str, Any]) -> dict[str, Any]:
    listed = {name: _ref("messages", name) for name in messages}
    spoken = {name: each for name, each in listed.items() if not name.startswith("stream")}
    channels: dict[str, Any] = {
        "session": {
            "address": "/ws",
            "description": "The first frame is `open` or `re-open`; one session a socket.",
            "servers": [{"$ref": "#/servers/runtimes"}],
            "messages": spoken,
            "bindings": {"ws": {"method": "GET"}},
        },
        "connected": {
            "address": "/stub/connect",
            "description": "The upgrade is the handshake: the session is open with the socket.",
            "servers": [{"$ref": "#/servers/runtimes"}],
            "messages": {
                name: each for name, each in spoken.items() if name not in ("open", "reopen")
            },
            "bindings": {
                "ws": {
                    "method": "GET",
                    "query": {
                        "type": "object",
                        "properties": {"runtimeURL": {"type": "string"}},
                        "required": ["runtimeURL"],
                    },
                }
            },
        },
    }
    if settings.DEVICE_HTTP:
        channels["events"] = {
            "address": f"{ROOT}/events",
            "description": "A stream of server-sent events; `Last-Event-ID` confirms what came.",
            "servers": [{"$ref": "#/servers/devices"}],
            "messages": {name: listed[name] for name in _EVENTS},
        }
    return channels


def _operations() -> dict[str, Any]:
    """What the node receives, and what it answers; then what it hands over."""
    asked = {
        "openSession": ("open", "sessionOpened", "Begin a session."),
        "resumeSession": ("reopen", "sessionOpened", "Go on with a session after a lost socket."),
        "closeSession": ("close", "done", "End the session, and free what it holds."),
        "allocateAddresses": ("allocate", "allocated", "Have addresses made, or lent of a pool."),
        "releaseAddresses": ("release", "done", "Give addresses back."),
        "subscribe": ("subscribe", "done", "Hear what is sent to addresses."),
        "unsubscribe": ("unsubscribe", "done", "Hear it no longer."),
        "sendMessage": ("message", "response", "Send a message to whoever has the address."),
    }
    operations: dict[str, Any] = {}
    for name, (message, answer, summary) in asked.items():
        operations[name] = {
            "action": "receive",
            "channel": {"$ref": "#/channels/session"},
            "summary": summary,
            "messages": [_in_channel("session", message)],
            "reply": {
                "channel": {"$ref": "#/channels/session"},
                "messages": [_in_channel("session", each) for each in (answer, "refusal")],
            },
        }
    operations["giveResponse"] = {
        "action": "receive",
        "channel": {"$ref": "#/channels/session"},
        "summary": "Answer a request that was delivered; its `id` is given back.",
        "messages": [_in_channel("session", "response")],
    }
    operations["deliver"] = {
        "action": "send",
        "channel": {"$ref": "#/channels/session"},
        "summary": "What others send to an address that the session holds or has subscribed.",
        "messages": [_in_channel("session", each) for each in ("message", "response", "gap")],
    }
    if settings.DEVICE_HTTP:
        operations["deliverToDevice"] = {
            "action": "send",
            "channel": {"$ref": "#/channels/events"},
            "summary": "The same as events of a stream.",
            "messages": [_in_channel("events", each) for each in _EVENTS],
        }
    return operations


# --- messages -------------------------------------------------------------------------------------


def _messages() -> dict[str, Any]:
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
        "payload": _ref("schemas", schema),
        "examples": [{"payload": example}],
    }


# --- schemas --------------------------------------------------------------------------------------


def _schemas() -> dict[str, Schema]:
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
                        "examples": list(settings.ALLOCATION_SCHEMES),
                        "description": "One of the examples, or one that has an address pool.",
                    },
                    "value": {
                        "type": "object",
                        "properties": {
                            "number": {
                                "type": "integer", "minimum": 0, "default": 1,
                                "maximum": _limits()["MAX_ALLOCATION_BLOCK"],
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
        "id": _ref("schemas", "Id"),
        "type": {"type": "string", "maxLength": MAX_TYPE_LENGTH},
        "from": _ref("schemas", "Address"),
        "to": {
            "oneOf": [
                _ref("schemas", "Address"),
                {
                    "type": "array",
                    "items": _ref("schemas", "Address"),
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


def _close_codes() -> str:
    lines = [f"- {code}: {text.title}" for code, text in CLOSE_CODES.items()]
    return "The node closes a socket with\n\n" + "\n".join(lines)


def _limits() -> dict[str, Any]:
    limits: dict[str, Any] = settings.NODE
    return limits


def _in_channel(channel: str, message: str) -> Schema:
    return {"$ref": f"#/channels/{channel}/messages/{message}"}


def _ref(kind: str, name: str) -> Schema:
    return {"$ref": f"#/components/{kind}/{name}"}
