"""The requests of devices, asked by their description: no answer is a fault, or not described."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from django.conf import LazySettings
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import one_of
from schemathesis import GenerationMode

from tests.client import runtime
from tests.node import Node

NAMES = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance",
)  # fmt: skip
SESSIONS, MESSAGES = "POST /device/v1/sessions", "POST /device/v1/messages"
RESOURCE = "/device/v1/resources/{address}"
ASKED = [SESSIONS, MESSAGES, "GET /device/v1/poll", "PUT /device/v1/sessions/current"]
ASKED += [f"{method} {RESOURCE}" for method in ("GET", "PUT", "PATCH", "DELETE")]


def test_the_document_has_devices_only_where_they_are_switched_on(settings: LazySettings) -> None:
    settings.DEVICE_HTTP = False
    assert not _paths()
    settings.DEVICE_HTTP = True
    assert _paths() == {
        "/device/v1/events": {"get"},
        "/device/v1/messages": {"post"},
        "/device/v1/poll": {"get"},
        "/device/v1/resources/{address}": {"get", "put", "patch", "delete"},
        "/device/v1/sessions": {"post"},
        "/device/v1/sessions/current": {"put", "delete"},
        "/device/v1/push": {"put", "delete"},
        "/device/v1/push/key": {"get"},
        "/device/v1/webhook": {"get", "put", "delete"},
    }


def _paths() -> dict[str, set[str]]:
    document = SchemaGenerator().get_schema(request=None, public=True)
    found = {path: set(each) for path, each in document["paths"].items()}
    return {path: each for path, each in found.items() if path.startswith("/device/")}


@pytest.fixture(scope="module")
def operations(node: Node) -> dict[str, Any]:
    """The operations that the node describes, by their labels."""
    place = f"http://127.0.0.1:{node.port}/api/schema?format=json"
    schema = schemathesis.openapi.from_dict(httpx.get(place, trust_env=False, timeout=60).json())
    found = [each.ok() for each in schema.get_all_operations()]
    return {each.label: each for each in found}


@pytest.mark.long
@pytest.mark.parametrize("label", ASKED)
def test_a_request_is_answered_as_it_is_described(
    node: Node, operations: dict[str, Any], label: str
) -> None:
    base, operation = f"http://127.0.0.1:{node.port}", operations[label]
    asked = {"runtimeURL": runtime()}
    opened = httpx.post(f"{base}/device/v1/sessions", json=asked, trust_env=False).json()
    known = schemathesis.checks.CHECKS  # filled when a schema is loaded
    checks = [check for name in NAMES for check in known.get_by_names([name])]
    headers = {} if label == SESSIONS else {"Authorization": f"Bearer {opened['token']}"}

    @settings(
        max_examples=settings().max_examples // 4,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]))
    def ask(case: Any) -> None:
        if isinstance(case.query, dict) and isinstance(case.query.get("wait", 25), int):
            case.query["wait"] = 0
        case.call_and_validate(base_url=base, headers=headers, checks=checks)

    ask()
