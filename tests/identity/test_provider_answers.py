"""What the provider answers is what the standards say, and what discovery says is what it takes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from msgnode.core.digest import digest
from msgnode.identity.claims import id_token_name
from msgnode.identity.credentials import unverified_claims
from msgnode.identity.provider import token_claims
from msgnode.identity.provider.validator import is_registered
from msgnode.models import ControlMessage

from .relying_party import BACK, RelyingParty, query

pytestmark = pytest.mark.django_db
ISSUER = settings.PROVIDER["ISSUER"]


def refused(answer: Any, party: RelyingParty) -> str:
    """The error of an answer that goes back to the client, whole."""
    assert answer.status_code == 302, answer.content
    assert answer["Location"].startswith(f"{BACK}?")
    said = query(answer["Location"])
    assert said["state"] == party.state
    assert said["iss"] == ISSUER
    assert "code" not in said
    return said["error"]


# --- prompt=none ----------------------------------------------------------------------------------


def test_prompt_none_without_a_log_in_answers_login_required(party: RelyingParty) -> None:
    party.browser.logout()
    assert refused(party.ask(prompt="none"), party) == "login_required"


def test_prompt_none_with_a_log_in_and_consent_gives_a_code(party: RelyingParty) -> None:
    assert party.redeem(party.code(prompt="none")).status_code == 200


def test_prompt_none_without_consent_answers_consent_required(party: RelyingParty) -> None:
    get_application_model().objects.filter(client_id="party").update(skip_authorization=False)
    assert refused(party.ask(prompt="none"), party) == "consent_required"
    assert not get_grant_model().objects.exists()
    assert party.ask().status_code == 200  # the page that asks


def test_prompt_none_with_another_word_is_refused(party: RelyingParty) -> None:
    assert refused(party.ask(prompt="none login"), party) == "invalid_request"


@pytest.mark.parametrize("logged_in", [True, False])
@pytest.mark.parametrize(
    "changes", [{"redirect_uri": "https://evil.example.org/"}, {"client_id": "nobody"}]
)
def test_prompt_none_leads_to_nobody_who_is_not_registered(
    party: RelyingParty, changes: dict[str, str], logged_in: bool
) -> None:
    if not logged_in:
        party.browser.logout()
    answer = party.ask(prompt="none", **changes)
    assert answer.status_code == 400
    assert "Location" not in answer


def test_a_hint_at_another_user_answers_login_required(
    party: RelyingParty, django_user_model: Any
) -> None:
    hint = party.tokens()["id_token"]
    assert party.redeem(party.code(prompt="none", id_token_hint=hint)).status_code == 200
    party.browser.force_login(django_user_model.objects.create_user("bob"))
    assert refused(party.ask(prompt="none", id_token_hint=hint), party) == "login_required"


def test_prompt_login_asks_for_a_log_in_again(party: RelyingParty) -> None:
    answer = party.ask(prompt="login")
    assert answer.status_code == 302
    assert answer["Location"].startswith("/login/?next=")


# --- codes ----------------------------------------------------------------------------------------


def test_case_82_a_code_shown_again_ends_what_was_issued_from_it(party: RelyingParty) -> None:
    code = party.code()
    tokens = party.redeem(code).json()
    form = {"grant_type": "refresh_token", "client_id": "party"}
    later = party.browser.post("/o/token/", {**form, "refresh_token": tokens["refresh_token"]})
    bystander = party.tokens()
    ControlMessage.objects.all().delete()

    assert party.redeem(code).json()["error"] == "invalid_grant"

    for access in (tokens["access_token"], later.json()["access_token"]):
        assert user_info(party.browser, access) == 401
    again = {**form, "refresh_token": later.json()["refresh_token"]}
    assert party.browser.post("/o/token/", again).status_code == 400
    told = [row.payload["token"] for row in ControlMessage.objects.all()]  # to the workers
    for id_token in (tokens["id_token"], later.json().get("id_token", tokens["id_token"])):
        assert id_token_name(unverified_claims(id_token)["jti"]) in told
        assert token_claims.verified_claims(id_token) is None
    assert token_claims.verified_claims(bystander["id_token"]) is not None
    assert user_info(party.browser, bystander["access_token"]) == 200


def test_case_82_a_refresh_token_shown_again_ends_what_followed_from_its_code(
    party: RelyingParty,
) -> None:
    tokens = party.tokens()
    form = {"grant_type": "refresh_token", "client_id": "party"}
    again = {**form, "refresh_token": tokens["refresh_token"]}
    later = party.browser.post("/o/token/", again).json()
    bystander = party.tokens()
    ControlMessage.objects.all().delete()

    assert party.browser.post("/o/token/", again).json()["error"] == "invalid_grant"

    told = [row.payload["token"] for row in ControlMessage.objects.all()]  # to the workers
    assert digest(later["access_token"]) in told
    for id_token in (tokens["id_token"], later.get("id_token", tokens["id_token"])):
        assert id_token_name(unverified_claims(id_token)["jti"]) in told
        assert token_claims.verified_claims(id_token) is None
    assert token_claims.verified_claims(bystander["id_token"]) is not None
    assert party.browser.post("/o/token/", again).status_code == 400
    assert ControlMessage.objects.count() == len(told)  # there is nothing left to end


@pytest.mark.parametrize("odd", ["http://[", "https://[::1"])
def test_what_is_no_url_is_refused(party: RelyingParty, odd: str) -> None:
    for browser in (party.browser, Client()):
        asked = {"client_id": "party", "post_logout_redirect_uri": odd}
        assert browser.get("/o/logout/", asked).status_code == 400
        assert browser.post("/o/logout/", {**asked, "allow": "on"}).status_code == 400
    assert refused(party.ask(resource=odd), party) == "invalid_target"


def test_a_consent_that_does_not_say_for_what_is_refused(party: RelyingParty) -> None:
    consent = {**party.question(), "allow": "Authorize", "scope": ""}
    answer = party.browser.post("/o/authorize/", consent)
    assert answer.status_code == 400
    assert "The request is incomplete" in answer.content.decode()


def test_of_two_that_use_a_refresh_token_at_once_none_is_given_an_empty_one(
    party: RelyingParty,
) -> None:
    form = {"grant_type": "refresh_token", "client_id": "party"}
    form["refresh_token"] = party.tokens()["refresh_token"]
    others: list[Any] = []

    def let_another_be_first(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("SELECT") and 'refreshtoken"."id" = ' in sql and not others:
            others.append(None)
            others[0] = party.browser.post("/o/token/", form)
        return execute(sql, *rest)

    with connection.execute_wrapper(let_another_be_first):
        answer = party.browser.post("/o/token/", form)
    assert others[0].json()["access_token"]
    assert answer.json()["error"] == "invalid_grant", answer.json()


def test_a_code_shown_by_another_client_ends_nothing(party: RelyingParty) -> None:
    get_application_model().objects.create(
        client_id="other", client_type="public", authorization_grant_type="authorization-code",
        redirect_uris=BACK,
    )  # fmt: skip
    code = party.code()
    tokens = party.redeem(code).json()
    assert party.redeem(code, client_id="other").status_code in (400, 401)
    assert user_info(party.browser, tokens["access_token"]) == 200


def user_info(browser: Client, token: str) -> int:
    answer = browser.get("/o/userinfo/", headers={"Authorization": f"Bearer {token}"})
    return int(answer.status_code)


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "https://CLIENT.example.org/back", "HTTPS://client.example.org/back",
        "http://client.example.org/back", "https://client.example.org:443/back",
        "https://client.example.org:/back", "https://client.example.org:8443/back",
        "https://user@client.example.org/back", "https://user:x@client.example.org/back",
        "https://client.example.org@evil.example/back", "https://client.example.org./back",
        "https://client.example.org.evil.example/back", "https://evil-client.example.org/back",
        "https://client.example.org/Back", "https://client.example.org/back/",
        "https://client.example.org/back?", "https://client.example.org/back#",
        "https://client.example.org/back;x", "https://client.example.org//back",
        "https://client.example.org/x/../back", "https://client.example.org/%62ack",
        "https://client.example.org/ba\tck", " https://client.example.org/back",
        "https:\\\\client.example.org\\back", "//client.example.org/back", "/back",
    ],
)  # fmt: skip
def test_a_redirect_is_the_registered_text_and_nothing_like_it(
    party: RelyingParty, uri: str
) -> None:
    for prompt in ("", "none"):
        answer = party.ask(redirect_uri=uri, prompt=prompt)
        assert answer.status_code == 400
        assert "Location" not in answer
    assert not get_grant_model().objects.exists()


@pytest.mark.parametrize(
    ("registered", "uri", "may"),
    [
        ("http://127.0.0.1/cb", "http://127.0.0.1:51234/cb", True),
        ("http://127.0.0.1:8000/cb", "http://127.0.0.1:51234/cb", True),
        ("http://127.0.0.1:8000/cb", "http://127.0.0.1/cb", True),
        ("http://[::1]/cb?x=1", "http://[::1]:7/cb?x=1", True),
        ("http://127.0.0.1/cb", "http://127.0.0.1:51234/other", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:51234/cb?x=1", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:51234@evil.example/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1.evil.example:1/cb", False),
        ("http://127.0.0.1/cb", "http://[::1]:51234/cb", False),
        ("http://127.0.0.1/cb", "http://localhost:51234/cb", False),
        ("http://127.0.0.1/cb", "http://127.1:51234/cb", False),
        ("http://127.0.0.1/cb", "https://127.0.0.1:51234/cb", False),
        ("http://localhost/cb", "http://localhost:51234/cb", False),
        ("https://127.0.0.1/cb", "https://127.0.0.1:51234/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:0/cb", False),
    ],
)
def test_only_the_port_of_a_loopback_address_is_free(registered: str, uri: str, may: bool) -> None:
    assert is_registered(uri, [registered]) is may


# --- discovery: every entry is what is taken ------------------------------------------------------


@pytest.fixture
def said(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/o/.well-known/openid-configuration").json()
    return found


def test_both_discovery_documents_are_one(client: Client, said: dict[str, Any]) -> None:
    assert client.get("/o/.well-known/oauth-authorization-server").json() == said


def test_every_scope_and_claim_there_is_can_be_had(
    party: RelyingParty, said: dict[str, Any]
) -> None:
    for scope in said["scopes_supported"]:
        assert "code" in query(party.ask(scope=f"openid {scope}")["Location"]), scope
    claims = party.claims(party.tokens()["id_token"])
    assert set(said["claims_supported"]) <= claims.keys()
    assert claims["iss"] == said["issuer"]


@pytest.mark.parametrize("mode", ["query", "fragment", "form_post", "web_message", ""])
def test_the_response_modes_are_those(party: RelyingParty, said: dict[str, Any], mode: str) -> None:
    answer = party.browser.get("/o/authorize/", {**party.question(), "response_mode": mode})
    if mode in said["response_modes_supported"]:
        assert "code" in query(answer["Location"])
    else:
        assert refused(answer, party) == "invalid_request"


@pytest.mark.parametrize(
    "type_", ["code", "token", "id_token", "id_token token", "code token", "code id_token", "none"]
)
def test_the_response_types_are_those(
    party: RelyingParty, said: dict[str, Any], type_: str
) -> None:
    answer = party.ask(response_type=type_)
    has_code = answer.status_code == 302 and "code" in query(answer["Location"])
    assert has_code is (type_ in said["response_types_supported"])


@pytest.mark.parametrize(
    "grant",
    [
        "authorization_code", "refresh_token", "password", "client_credentials", "implicit",
        "urn:ietf:params:oauth:grant-type:device_code",
        "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "urn:ietf:params:oauth:grant-type:token-exchange",
    ],
)  # fmt: skip
def test_the_grant_types_are_those(party: RelyingParty, said: dict[str, Any], grant: str) -> None:
    code = party.code()
    if grant == "refresh_token":
        form = {"refresh_token": party.redeem(code).json()["refresh_token"], "client_id": "party"}
        answer = party.browser.post("/o/token/", {**form, "grant_type": grant})
    else:
        more = {"username": "alice", "password": "wonderland 7"}
        answer = party.redeem(code, grant_type=grant, **more)
    assert (answer.status_code == 200) is (grant in said["grant_types_supported"]), answer.content
    if answer.status_code != 200:
        assert answer.json()["error"] == "unsupported_grant_type"
        assert not get_access_token_model().objects.exists()
        assert not get_refresh_token_model().objects.exists()


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
def test_the_ways_a_client_shows_its_secret_are_those(
    party: RelyingParty, said: dict[str, Any], method: str
) -> None:
    assert method in said["token_endpoint_auth_methods_supported"]
    application = get_application_model().objects.get(client_id="party")
    if method != "none":
        application.client_type, application.client_secret = "confidential", "s3cret"
        application.save()
    code = party.code()
    if method == "client_secret_post":
        assert party.redeem(code, client_secret="wrong").status_code == 401
        assert party.redeem(code, client_secret="s3cret").status_code == 200
    elif method == "client_secret_basic":
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": BACK,
            "code_verifier": party.verifier,
        }  # fmt: skip
        for secret, expected in (("wrong", 401), ("s3cret", 200)):
            pair = base64.b64encode(f"party:{secret}".encode()).decode()
            headers = {"Authorization": f"Basic {pair}"}
            answer = party.browser.post("/o/token/", form, headers=headers)
            assert answer.status_code == expected
    else:
        assert party.redeem(code).status_code == 200


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("request", "request_not_supported"),
        ("request_uri", "request_uri_not_supported"),
        ("registration", "registration_not_supported"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_error(
    party: RelyingParty, said: dict[str, Any], name: str, error: str
) -> None:
    assert said.get(f"{name}_parameter_supported", False) is False
    answer = party.browser.get("/o/authorize/", {**party.question(), name: "x"})
    assert refused(answer, party) == error


def test_the_prompts_are_those(party: RelyingParty, said: dict[str, Any]) -> None:
    assert said["prompt_values_supported"] == ["none", "login"]
    assert party.ask(prompt="create").status_code == 400
