"""What the OpenAPI document of the node says of `/device/v1`, where that is switched on."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from .api import MAX_WAIT, VERBS
from .calls import MAX_MESSAGES
from .downstream import AT_MOST
from .http import ROOT

_TAG = "devices"
_TEXT = {"type": "string"}
_SECURITY: list[dict[str, list[str]]] = [{"deviceSession": []}]
_REFUSED_ALWAYS = ("401", "403", "429", "503", "504")


def describe_devices(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A hook of drf-spectacular, called with the finished document."""
    if not settings.DEVICE_HTTP:
        return result
    components = result.setdefault("components", {})
    components.setdefault("schemas", {}).update(_SCHEMAS)
    components.setdefault("securitySchemes", {}).update(_SCHEMES)
    result["paths"].update(_paths())
    return result


def _paths() -> dict[str, Any]:
    resources = {method.lower(): _resource(verb) for method, verb in VERBS.items()}
    return {
        **_sessions(),
        **_messages(),
        **_events(),
        **_webhook_and_push(),
        f"{ROOT}/resources/{{address}}": resources,
    }


def _sessions() -> dict[str, Any]:
    return {
        f"{ROOT}/sessions": {
            "post": _operation(
                "openDeviceSession",
                "Open a session. An identity or access token says who the device is.",
                {"201": _json("The session", "DeviceSession")},
                body=_body("DeviceSessionRequest"),
                security=[{"deviceIdentity": []}, {}],
                also=("400", "409", "413"),
            )
        },
        f"{ROOT}/sessions/current": {
            "put": _operation(
                "keepDeviceSession",
                "Keep the session or get it back; one that has ended is replaced by a fresh one.",
                {"200": _json("The session", "DeviceSession")},
                also=("409",),
            ),
            "delete": _operation(
                "closeDeviceSession",
                "Close the session: its addresses are free.",
                {"204": {"description": "Closed"}},
            ),
        },
    }


def _messages() -> dict[str, Any]:
    return {
        f"{ROOT}/messages": {
            "post": _operation(
                "postDeviceMessages",
                f"Send one message, or a list of up to {MAX_MESSAGES}.",
                {
                    "200": _json("The response", "DeviceMessage"),
                    "202": _json("No response yet, or none to come", "DeviceMessageAccepted"),
                    "207": {
                        "description": "What came of each message of a list",
                        **_content(_array("DeviceMessageOutcome")),
                    },
                },
                body={
                    "required": True,
                    **_content({"oneOf": [_ref("DeviceMessage"), _array("DeviceMessage")]}),
                },
                parameters=[
                    _WAIT,
                    _query(
                        "responses",
                        {"type": "string", "enum": ["events"]},
                        "All responses come as events.",
                    ),
                    _header("Idempotency-Key", "Names the request, so that it is carried once."),
                ],
                also=("400", "404", "413", "422"),
            )
        },
    }


def _events() -> dict[str, Any]:
    return {
        f"{ROOT}/events": {
            "get": _operation(
                "streamDeviceEvents",
                "Events `message`, `gap` and `close` as they come.",
                {
                    "200": {
                        "description": "Server-sent events",
                        **_content(_TEXT, "text/event-stream"),
                    }
                },
                parameters=[_header("Last-Event-ID", "Confirms all events up to this one.")],
                also=("400",),
            )
        },
        f"{ROOT}/poll": {
            "get": _operation(
                "pollDeviceEvents",
                "What there is, or what comes within `wait` seconds.",
                {
                    "200": _json("Messages", "DevicePoll"),
                    "204": {"description": "Nothing came"},
                },
                parameters=[
                    _query("after", _TEXT, "Confirms all events up to this one."),
                    _WAIT,
                    _query("max", _number(AT_MOST), "Messages at most."),
                ],
                also=("400",),
            )
        },
    }


def _webhook_and_push() -> dict[str, Any]:
    return {
        f"{ROOT}/webhook": {
            "put": _operation(
                "setDeviceWebhook",
                "Have what comes posted to a URL, which is asked first whether it wants that.",
                {"200": _json("It is, from now on", "DeviceWebhook")},
                body=_body("DeviceWebhookRequest"),
                also=("400", "404", "413"),
            ),
            "get": _operation(
                "readDeviceWebhook",
                "The session's webhook, and whether its server takes what is posted.",
                {"200": _json("The webhook", "DeviceWebhook")},
                also=("404",),
            ),
            "delete": _operation(
                "removeDeviceWebhook",
                "Have nothing posted any more.",
                {"204": {"description": "Removed"}},
                also=("404",),
            ),
        },
        f"{ROOT}/push": {
            "put": _operation(
                "setDevicePush",
                "Have the device woken by a push service when something waits.",
                {"201": _json("It is, from now on", "DevicePushKey")},
                body=_body("DevicePushSubscription"),
                also=("400", "404", "413"),
            ),
            "delete": _operation(
                "removeDevicePush",
                "Wake the device no longer.",
                {"204": {"description": "Removed"}},
                also=("404",),
            ),
        },
        f"{ROOT}/push/key": {
            "get": _operation(
                "readDevicePushKey",
                "The key that a browser subscribes with.",
                {"200": _json("The key", "DevicePushKey")},
                security=[],
                refusals=("403", "404", "503"),
            )
        },
    }


def _resource(verb: str) -> dict[str, Any]:
    any_json: dict[str, Any] = _content({})
    return _operation(
        f"{verb}DeviceResource",
        f"Send `{verb}` to an address.",
        {
            "200": {"description": "The body of the response", **any_json},
            "202": _json("No response in time: it comes as an event", "DeviceMessageAccepted"),
        },
        body={"required": False, **any_json} if verb in ("create", "update") else None,
        parameters=[
            {
                "name": "address",
                "in": "path",
                "required": True,
                "description": "The address, percent-encoded.",
                "schema": _TEXT,
            },
            _query("resource", _TEXT, "`body.resource`; the address if not given."),
            _query("from", _TEXT, "The sender; the runtime if not given."),
            _WAIT,
        ],
        also=("400", "404", "413"),
    )


def _operation(
    name: str,
    description: str,
    responses: dict[str, Any],
    *,
    body: dict[str, Any] | None = None,
    parameters: list[dict[str, Any]] | None = None,
    security: list[dict[str, list[str]]] | None = None,
    also: tuple[str, ...] = (),
    refusals: tuple[str, ...] = _REFUSED_ALWAYS,
) -> dict[str, Any]:
    """An operation and how it may be refused: `refusals`, and `also` some more."""
    problems = {
        code: {
            "description": _REFUSALS[code],
            **_content(_ref("DeviceProblem"), "application/problem+json"),
        }
        for code in sorted((*refusals, *also))
    }
    operation = {
        "operationId": name,
        "description": description,
        "tags": [_TAG],
        "parameters": parameters or [],
        "security": _SECURITY if security is None else security,
        "responses": {**responses, **problems},
    }
    return operation if body is None else {**operation, "requestBody": body}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(name: str) -> dict[str, Any]:
    return {"type": "array", "maxItems": MAX_MESSAGES, "items": _ref(name)}


def _content(schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"content": {kind: {"schema": schema}}}


def _json(description: str, name: str) -> dict[str, Any]:
    return {"description": description, **_content(_ref(name))}


def _body(name: str) -> dict[str, Any]:
    return {"required": True, **_content(_ref(name))}


def _number(most: float) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": int(most)}


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _header(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name, "in": "header", "description": description, "schema": _TEXT
    }  # fmt: skip


_WAIT = _query("wait", _number(MAX_WAIT), "Seconds to wait.")
_REFUSALS = {
    "400": "The request or the message cannot be read",
    "401": "No token, or one that opens nothing",
    "403": "This device may not do this",
    "404": "Nobody has the address",
    "409": "The runtime URL is in use",
    "413": "Too large",
    "422": "The Idempotency-Key was given with another body",
    "429": "Too many, or too fast: see Retry-After",
    "503": "Not now: see Retry-After",
    "504": "Not answered in time; a message may have been carried",
}
_SCHEMES = {
    "deviceSession": {"type": "http", "scheme": "bearer", "bearerFormat": "mns_…"},
    "deviceIdentity": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
}
_ID = {"oneOf": [_TEXT, {"type": "number"}]}
_BODY = {"type": "object"}


def _object(required: str, properties: dict[str, Any]) -> dict[str, Any]:
    named = {"required": required.split()} if required else {}
    return {"type": "object", **named, "properties": properties}


_SCHEMAS: dict[str, Any] = {
    "DeviceSessionRequest": _object("runtimeURL", {"runtimeURL": _TEXT}),
    "DeviceSession": _object("runtimeURL token idle grace links", {
        "runtimeURL": _TEXT,
        "token": _TEXT,
        "idle": {"type": "number", "description": "Seconds without a request until detached."},
        "grace": {"type": "number", "description": "Seconds a detached session is kept."},
        "links": {"type": "object", "additionalProperties": _TEXT},
        "resumed": {"type": "boolean"},
    }),
    "DevicePushSubscription": _object("endpoint", {"endpoint": _TEXT}),
    "DevicePushKey": _object("key", {"key": _TEXT}),
    "DeviceWebhookRequest": _object("url", {"url": _TEXT, "secret": _TEXT}),
    "DeviceWebhook": _object("url", {"url": _TEXT, "secret": _TEXT, "state": _TEXT}),
    "DeviceMessage": _object("type from to", {
        "id": _ID,
        "type": _TEXT,
        "from": _TEXT,
        "to": {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]},
        "body": _BODY,
    }),
    "DeviceMessageAccepted": _object("", {"id": {}}),
    "DeviceMessageOutcome": _object("id code", {
        "id": {},
        "code": {"type": "integer"},
        "detail": _TEXT,
        "message": _ref("DeviceMessage"),
    }),
    "DevicePoll": _object("next gap messages", {
        "next": _TEXT,
        "gap": {"type": "boolean"},
        "messages": _array("DeviceMessage"),
        "close": _object("", {"code": {"type": "integer"}, "reason": _TEXT}),
    }),
    "DeviceProblem": _object("type title status detail", {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "body": _BODY,
        "message": _ref("DeviceMessage"),
    }),
}  # fmt: skip
