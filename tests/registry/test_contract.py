"""The REST contract, tested from the document the node serves (schemathesis)."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from msgnode.asgi import application
from registry import api
from registry.api import Kind

from .conftest import data_object, hyperty

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

ACCEPTED = (400, 401, 403, 404, 405, 406, 409, 410, 415, 429)


@pytest.fixture
def document() -> Any:
    api.register(Kind.HYPERTY, "hyperty://d/1", hyperty(), "user://d/alice@d")
    api.register(Kind.OBJECT, "comm://d/1", data_object())
    return schemathesis.openapi.from_asgi("/api/schema?format=json", application)


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_keeps_its_contract(case: Any) -> None:
    response = case.call()
    assert response.status_code < 500, response.text
    case.validate_response(
        response,
        excluded_checks=[
            schemathesis.checks.positive_data_acceptance
            if hasattr(schemathesis.checks, "positive_data_acceptance")
            else None
        ],
    )
