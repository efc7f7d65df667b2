"""The provider as a worker asks it: assertions and tokens for a grant (cases 81 and 86)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from oauth2_provider.models import get_application_model, get_grant_model

from msgnode.identity.ports import AssertionRequest
from msgnode.identity.provider.backend import EmbeddedProvider
from msgnode.identity.provider.clients import CONNECTOR, OWN_PAGE, ensure_own_clients
from msgnode.identity.provider.revocation import end_logins
from msgnode.models import ControlMessage

from .relying_party import RelyingParty

pytestmark = pytest.mark.django_db(transaction=True)
provider = EmbeddedProvider()
ISSUER = settings.PROVIDER["ISSUER"]


def ask(name: str, *words: Any, **fields: Any) -> Any:
    """What a coroutine of the provider returns."""
    given = words or (AssertionRequest(**fields),)
    return async_to_sync(getattr(provider, name))(*given)


@pytest.fixture
def own(party: RelyingParty) -> RelyingParty:
    ensure_own_clients()
    ensure_own_clients()
    return party


def test_the_own_clients_have_no_secret_and_none_is_hashed(own: RelyingParty) -> None:
    clients = get_application_model().objects.filter(client_id__in=(OWN_PAGE, CONNECTOR))
    assert list(clients.values_list("client_secret", flat=True)) == ["", ""]


def returned(own: RelyingParty, contents: str) -> str:
    """The URL with which a log-in that the provider asked for comes back."""
    url = ask("login_url", contents=contents)
    assert url.startswith(f"{ISSUER}/authorize/?")
    answer = own.browser.get(url.removeprefix(settings.PUBLIC_URL))
    assert answer["Location"].startswith(f"{ISSUER}/done?")
    return str(answer["Location"])


def test_case_81_without_a_grant_there_is_no_assertion(own: RelyingParty) -> None:
    assert ask("assertion", contents="1,2") is None
    assert ask("assertion", username_hint="alice") is None
    assert ask("assertion", username_hint=f"{ISSUER}/done?code=x&state=y") is None
    assert ask("assertion", subject=("https://elsewhere.example.org", "1")) is None
    assert ask("access_token") is None


def test_case_81_the_login_that_came_back_is_a_grant_once(own: RelyingParty, alice: Any) -> None:
    url = returned(own, "9,8,7")
    identity = ask("assertion", contents="9,8,7", username_hint=url)
    wrapped = json.loads(base64.b64decode(identity["assertion"]))
    claims = own.claims(wrapped["tokenID"])
    assert (claims["iss"], claims["aud"], claims["nonce"]) == (ISSUER, CONNECTOR, "9,8,7")
    assert claims["sub"] == str(alice.pk)
    assert all(isinstance(value, str) for value in wrapped["tokenIDJSON"].values())
    assert identity["idp"] == {"domain": settings.DOMAIN, "protocol": "OIDC"}
    assert identity["userProfile"]["userURL"] == f"user://{settings.DOMAIN}/alice@example.org"
    assert identity["expires"] == claims["exp"]
    assert ask("assertion", contents="9,8,7", username_hint=url) is None


def test_a_key_that_is_a_nonce_comes_back_whole_and_fits_its_columns(own: RelyingParty) -> None:
    key = ",".join(str(200 + number % 56) for number in range(294))  # as that of RSA-2048
    url = returned(own, key)
    own.nonce = key
    code = own.code()
    for grant in get_grant_model().objects.all():
        for field in grant._meta.fields:
            length = getattr(field, "max_length", None)
            assert length is None or len(str(getattr(grant, field.name))) <= length, field.name
    assert own.claims(own.redeem(code).json()["id_token"])["nonce"] == key
    identity = ask("assertion", contents=key, username_hint=url)
    token = json.loads(base64.b64decode(identity["assertion"]))["tokenID"]
    assert own.claims(token)["nonce"] == key
    assert "error=invalid_request" in own.ask(nonce="n" * 4097)["Location"]


def test_a_hint_that_is_no_url_is_no_grant(own: RelyingParty) -> None:
    for hint in ("http://[", "[alice]", "//["):
        assert ask("assertion", username_hint=hint) is None


def test_a_code_of_another_state_or_client_is_no_grant(own: RelyingParty) -> None:
    url = returned(own, "9")
    assert ask("assertion", username_hint=url.replace("state=", "state=x")) is None
    foreign = f"{ISSUER}/done?code={own.code()}&state={own.state}"
    assert ask("assertion", username_hint=foreign) is None


def test_a_session_that_is_logged_in_has_its_grant(own: RelyingParty, alice: Any) -> None:
    subject = (ISSUER, str(alice.pk))
    identity = ask("assertion", contents="5", subject=subject)
    token = json.loads(base64.b64decode(identity["assertion"]))["tokenID"]
    assert own.claims(token)["nonce"] == "5"
    again = ask("assertion", contents="5", token=token)
    assert json.loads(base64.b64decode(again["assertion"]))["tokenID"] == token
    assert ask("assertion", contents="6", token=token) is None


def test_a_user_who_was_switched_off_has_none(own: RelyingParty, alice: Any) -> None:
    url = returned(own, "9")
    token = ask("access_token", subject=(ISSUER, str(alice.pk)))["accessToken"]
    alice.is_active = False
    alice.save()
    assert ask("assertion", username_hint=url) is None
    assert ask("assertion", subject=(ISSUER, str(alice.pk))) is None
    assert ask("introspect", token) is None


def test_case_86_access_tokens_are_introspected_refreshed_and_revoked(
    own: RelyingParty, alice: Any
) -> None:
    first = ask("access_token", subject=(ISSUER, str(alice.pk)), resources=("calendar",))
    assert (first["domain"], first["resources"]) == (settings.DOMAIN, ["calendar"])
    claims = ask("introspect", first["accessToken"])
    assert (claims["iss"], claims["sub"]) == (ISSUER, str(alice.pk))
    assert (claims["email"], claims["client_id"]) == ("alice@example.org", CONNECTOR)
    assert claims["exp"] == first["expires"]
    second = ask("access_token", token=first["accessToken"])
    assert ask("introspect", first["accessToken"]) is None
    assert ask("introspect", second["accessToken"])
    assert ask("revoke", second["accessToken"]) is True
    assert ask("introspect", second["accessToken"]) is None
    assert ask("revoke", second["accessToken"]) is False
    assert ControlMessage.objects.filter(kind="identity.revoked").count() == 1


def test_a_token_of_the_browsers_client_is_introspected_too(own: RelyingParty) -> None:
    claims = ask("introspect", own.tokens()["access_token"])
    assert (claims["client_id"], claims["preferred_username"]) == ("party", "alice")


def test_all_logins_of_a_user_end_at_once(own: RelyingParty, alice: Any) -> None:
    tokens = own.tokens()
    end_logins(alice, close=True)
    assert ask("introspect", tokens["access_token"]) is None
    form = {"grant_type": "refresh_token", "client_id": "party"}
    refreshed = own.browser.post("/o/token/", {**form, "refresh_token": tokens["refresh_token"]})
    assert refreshed.status_code == 400
    told = ControlMessage.objects.get(kind="identity.revoked").payload
    assert (told["issuer"], told["subject"], told["close"]) == (ISSUER, str(alice.pk), True)


def test_the_keys_and_clients_are_those_of_the_pages(own: RelyingParty) -> None:
    keys = async_to_sync(provider.keys)()
    assert keys == own.browser.get("/o/.well-known/jwks.json").json()
    assert async_to_sync(provider.client_ids)() >= {CONNECTOR, "party", "newcomer"}
    assert provider.issuer == ISSUER
