"""A user of the domain, a registered client, and a browser in which the user is logged in."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_application_model

from msgnode.identity.provider import keys as provider_keys
from msgnode.models import ProviderKey
from tests.identity.relying_party import BACK, RelyingParty


@pytest.fixture
def alice(django_user_model: Any) -> Any:
    return django_user_model.objects.create_user(
        "alice", "alice@example.org", "wonderland 7", first_name="Alice", last_name="Liddell"
    )


@pytest.fixture(scope="session")
def made_key(django_db_setup: None, django_db_blocker: Any) -> dict[str, Any]:
    """The fields of a key: making one takes a while, so it is made once."""
    with django_db_blocker.unblock():
        row = provider_keys.replace_now()
        row.delete()
    return {"kid": row.kid, "public": row.public, "sealed": row.sealed}


@pytest.fixture
def party(client: Client, alice: Any, made_key: dict[str, Any]) -> RelyingParty:
    ProviderKey.objects.create(**made_key, signs_from=timezone.now())
    get_application_model().objects.create(
        client_id="party",
        name="A party",
        client_type="public",
        authorization_grant_type="authorization-code",
        redirect_uris=BACK,
        post_logout_redirect_uris=BACK,
        skip_authorization=True,
        algorithm="RS256",
    )
    client.force_login(alice)
    return RelyingParty(client, "party")
