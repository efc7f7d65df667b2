"""A user who may be invited, and what callers send."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pytest_django import Settings

from msgnode import models
from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.core.rates import LockedRates
from msgnode.invitations import endpoints

BOB = "user://localhost/bob@example.org"
RUNTIME = "runtime://localhost/bob"
Message = dict[str, Any]


@pytest.fixture(autouse=True)
def _switched_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.INVITATIONS = {"ON": True, "PER_MINUTE": 100}
    monkeypatch.setattr(HTTP_LIMITS, "_own", LockedRates(lambda: 0.0))  # all in one moment


@pytest.fixture
def bob(db: None, django_user_model: Any) -> Any:
    return django_user_model.objects.create_user("bob", "bob@example.org", "wonderland 7")


@pytest.fixture
def endpoint(bob: Any) -> models.PushEndpoint:
    return endpoints.open_for(str(bob.pk), BOB, RUNTIME, f"{RUNTIME}/invitations", "")


def invitation(name: str = "i1", **value: Any) -> Message:
    """A good one, but for what of its value is given."""
    return {
        "type": "create",
        "id": 1,
        "from": "hyperty://a.example/alice",
        "to": BOB,
        "body": {
            "value": {"invitation": name, "expires": int(time.time()) + 60, **value},
            "identity": {"assertion": "x.y.z", "idp": {"domain": "a.example"}},
            "protostub": "https://a.example/.well-known/protocolstub/default",
        },
    }
