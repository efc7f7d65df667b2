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

from msgnode.core.explanations import CLOSE_CODES
from msgnode.devices.http import ROOT

from .asyncapi_messages import MEDIA_TYPE, Schema, limits, message_components, ref, schemas

VERSION = "3.0.0"
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
    messages = message_components()
    channels = _channels(messages)
    return {
        "asyncapi": VERSION,
        "info": {
            "title": "Messaging Node",
            "version": "1",
            "description": (
                "Runtimes exchange JSON messages. After `open` a runtime has a session; what it "
                "asks of the node is addressed to a component of it, everything else to whoever "
                f"holds or has subscribed the address. A frame has {limits()['MAX_FRAME_BYTES']:,}"
                " bytes at most.\n\n" + _close_codes()
            ),
        },
        "defaultContentType": MEDIA_TYPE,
        "servers": _servers(),
        "channels": channels,
        "operations": _operations(),
        "components": {"schemas": schemas(), "messages": messages},
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
    listed = {name: ref("messages", name) for name in messages}
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
        "summary": "Answer a request that was delivered, with its id.",
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


def _close_codes() -> str:
    lines = [f"- {code}: {text.title}" for code, text in CLOSE_CODES.items()]
    return "The node closes a socket with\n\n" + "\n".join(lines)


def _in_channel(channel: str, message: str) -> Schema:
    return {"$ref": f"#/channels/{channel}/messages/{message}"}
