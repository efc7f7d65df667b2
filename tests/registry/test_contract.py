"""The REST contract, tested from the document the node serves (schemathesis).

Every operation is asked with what its description allows and with what it does not; answers must be
described, of the described shape, and never a fault of the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import one_of
from schemathesis import GenerationMode

from registry import api
from registry.api import Kind

from .conftest import data_object, hyperty
from .test_global import GUID, jwt

pytestmark = [pytest.mark.long, pytest.mark.django_db, pytest.mark.xdist_group("contract")]

document = SchemaGenerator().get_schema(request=None, public=True)
schema = schemathesis.openapi.from_dict(document)
schema.app = get_wsgi_application()
operations = [
    operation
    for found in schema.get_all_operations()
    if (operation := found.ok()).path.startswith("/api/v1/")
]


@pytest.fixture(autouse=True)
def one_connection() -> Iterator[None]:
    """Requests must not close the connection that holds the test's transaction."""
    ends = (request_started, request_finished)
    for signal in ends:
        signal.disconnect(close_old_connections)
    yield
    for signal in ends:
        signal.connect(close_old_connections)


@pytest.mark.parametrize("operation", operations, ids=lambda operation: operation.label)
def test_an_operation_keeps_its_contract(operation: Any) -> None:
    api.register(Kind.HYPERTY, "hyperty://d/1", hyperty(), "user://d/alice@d")
    api.register(Kind.OBJECT, "comm://d/1", data_object())
    api.global_put(GUID, jwt(lastUpdate="2026-01-01T00:00:00Z"))

    @settings(
        max_examples=settings().max_examples // 8,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]))
    def ask(case: Any) -> None:
        with transaction.atomic():
            case.call_and_validate(checks=CHECKS)
            transaction.set_rollback(True)  # an error of PostgreSQL's ends only this one

    ask()


CHECKS = [
    check
    for name in (
        "not_a_server_error", "status_code_conformance", "content_type_conformance",
        "response_headers_conformance", "response_schema_conformance",
    )
    for check in schemathesis.checks.CHECKS.get_by_names([name])
]  # fmt: skip
