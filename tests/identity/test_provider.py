"""Case 82: the OIDC round trip against the embedded provider, and everything it must refuse."""

from __future__ import annotations

import base64
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from joserfc import jwt
from joserfc.jwk import OctKey
from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model

from msgnode.identity.provider import keys as provider_keys
from msgnode.models import ControlMessage, ProviderKey

from .relying_party import BACK, RelyingParty, query

pytestmark = pytest.mark.django_db
ISSUER = settings.PROVIDER["ISSUER"]


def test_case_82_discovery_says_what_there_is_and_nothing_else(client: Client) -> None:
    answer = client.get("/o/.well-known/openid-configuration")
    assert answer["Access-Control-Allow-Origin"] == "*"
    said = answer.json()
    assert said["issuer"] == ISSUER
    assert said["id_token_signing_alg_values_supported"] == ["RS256"]
    assert said["code_challenge_methods_supported"] == ["S256"]
    assert said["response_types_supported"] == ["code"]
    assert {"sub", "email", "email_verified", "preferred_username", "name"} <= set(
        said["claims_supported"]
    )
    for name, url in said.items():
        if name.endswith(("_endpoint", "jwks_uri")):
            assert url.startswith(f"{ISSUER}/"), name
            assert client.get(url.removeprefix(settings.PUBLIC_URL)).status_code != 404, name


def test_case_82_code_with_pkce_gives_an_identity_token(party: RelyingParty, alice: Any) -> None:
    tokens = party.tokens()
    claims = party.claims(tokens["id_token"])
    assert claims["iss"] == ISSUER
    assert claims["aud"] == "party"
    assert claims["sub"] == str(alice.pk)
    assert claims["nonce"] == "1,2,3"
    assert (claims["email"], claims["email_verified"]) == ("alice@example.org", True)
    assert (claims["preferred_username"], claims["name"]) == ("alice", "Alice Liddell")
    assert 0 < claims["exp"] - time.time() <= settings.PROVIDER["ID_TOKEN_SECONDS"]


def test_claims_follow_the_scope(party: RelyingParty) -> None:
    answer = party.redeem(party.code(scope="openid"))
    claims = party.claims(answer.json()["id_token"])
    assert "sub" in claims
    assert not {"email", "name", "preferred_username"} & claims.keys()


def test_case_82_a_wrong_verifier_is_refused(party: RelyingParty) -> None:
    answer = party.redeem(party.code(), code_verifier="x" * 64)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


def test_case_82_no_verifier_is_refused(party: RelyingParty) -> None:
    assert party.redeem(party.code(), code_verifier="").status_code == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"code_challenge": "", "code_challenge_method": ""},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": ""},
        {"response_type": "token"},
        {"response_type": "id_token token"},
        {"scope": "openid everything"},
    ],
)
def test_case_82_a_request_that_is_not_s256_code_goes_back_as_an_error(
    party: RelyingParty, changes: dict[str, str]
) -> None:
    answer = party.ask(**changes)
    assert answer.status_code in (302, 400)
    if answer.status_code == 302:
        assert "error" in query(answer["Location"]) or "error=" in answer["Location"]
    assert not get_grant_model().objects.exists()


def test_case_82_a_code_expires(party: RelyingParty) -> None:
    code = party.code()
    get_grant_model().objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert party.redeem(code).status_code == 400


def test_case_82_user_info_for_a_token_and_for_no_other(party: RelyingParty, alice: Any) -> None:
    tokens = party.tokens()
    asked = party.browser.get(
        "/o/userinfo/", headers={"authorization": f"Bearer {tokens['access_token']}"}
    )
    assert asked.json()["email"] == "alice@example.org"
    assert asked.json()["sub"] == str(alice.pk)
    wrong = party.browser.get("/o/userinfo/", headers={"authorization": "Bearer nothing"})
    assert wrong.status_code == 401
    in_the_url = party.browser.get("/o/userinfo/", {"access_token": tokens["access_token"]})
    assert in_the_url.status_code == 400


def test_no_code_and_no_token_is_good_once_its_user_is_switched_off(
    party: RelyingParty, alice: Any
) -> None:
    tokens, code = party.tokens(), party.code()
    alice.is_active = False
    alice.save()
    assert party.redeem(code).json()["error"] == "invalid_grant"
    bearer = {"authorization": f"Bearer {tokens['access_token']}"}
    assert party.browser.get("/o/userinfo/", headers=bearer).status_code == 401
    form = {"grant_type": "refresh_token", "client_id": "party"}
    refreshed = party.browser.post("/o/token/", {**form, "refresh_token": tokens["refresh_token"]})
    assert refreshed.json()["error"] == "invalid_grant"


def test_tokens_are_not_kept_readable(party: RelyingParty) -> None:
    tokens = party.tokens()
    kept = [
        *get_access_token_model().objects.values_list("token", flat=True),
        *get_refresh_token_model().objects.values_list("token", flat=True),
    ]
    assert tokens["access_token"] not in kept
    assert tokens["refresh_token"] not in kept


def test_a_revoked_token_ends_and_the_workers_are_told(party: RelyingParty) -> None:
    tokens = party.tokens()
    answer = party.browser.post(
        "/o/revoke/", {"token": tokens["access_token"], "client_id": "party"}
    )
    assert answer.status_code == 200
    asked = party.browser.get(
        "/o/userinfo/", headers={"authorization": f"Bearer {tokens['access_token']}"}
    )
    assert asked.status_code == 401
    told = ControlMessage.objects.get(kind="identity.revoked").payload
    assert told["close"] is False
    assert len(told["token"]) == 64
    unknown = party.browser.post("/o/revoke/", {"token": "nothing", "client_id": "party"})
    assert unknown.status_code == 200  # RFC 7009 2.2
    assert ControlMessage.objects.count() == 1


def test_introspection_is_for_clients_only(party: RelyingParty) -> None:
    tokens = party.tokens()
    asked = party.browser.post("/o/introspect/", {"token": tokens["access_token"]})
    assert asked.status_code in (401, 403)


def test_log_out_ends_the_login_and_its_tokens(party: RelyingParty, alice: Any) -> None:
    tokens = party.tokens()
    answer = party.browser.get(
        "/o/logout/",
        {"id_token_hint": tokens["id_token"], "post_logout_redirect_uri": BACK, "state": "s"},
    )
    assert answer.status_code == 302
    assert answer["Location"] == f"{BACK}?state=s"
    assert "_auth_user_id" not in party.browser.session
    assert not get_access_token_model().objects.exists()
    told = ControlMessage.objects.get(kind="identity.revoked").payload
    assert (told["issuer"], told["subject"], told["close"]) == (ISSUER, str(alice.pk), False)


def test_nobody_logs_out_a_user_whose_identity_token_he_was_sent(
    party: RelyingParty, alice: Any, django_user_model: Any
) -> None:
    tokens = party.tokens()
    peer = Client()  # of nobody, then of another user
    hint = {"id_token_hint": tokens["id_token"]}
    for is_another in (False, True):
        if is_another:
            peer.force_login(django_user_model.objects.create_user("mallory"))
        peer.get("/o/logout/", hint)
        peer.post("/o/logout/", {**hint, "allow": "on"})
        assert get_access_token_model().objects.filter(user=alice).exists()
        assert not ControlMessage.objects.filter(payload__subject=str(alice.pk)).exists()
    assert "_auth_user_id" not in peer.session  # his own browser is logged out, as he has said


@pytest.mark.parametrize(
    "asked",
    [
        {"client_id": "nobody"},
        {"id_token_hint": "not.a.token"},
        {"id_token_hint": "nothing"},
        {"post_logout_redirect_uri": "https://evil.example.org/"},
        {"client_id": "party", "post_logout_redirect_uri": "https://evil.example.org/"},
    ],
)
def test_log_out_leads_nowhere_else(party: RelyingParty, asked: dict[str, str]) -> None:
    answer = party.browser.get("/o/logout/", asked)
    assert answer.status_code in (400, 401, 403)
    assert "_auth_user_id" in party.browser.session


def test_log_out_without_a_token_asks_first(party: RelyingParty) -> None:
    answer = party.browser.get("/o/logout/")
    assert answer.status_code == 200
    assert "Log out?" in answer.content.decode()
    assert "_auth_user_id" in party.browser.session


def test_token_information_has_the_claims_as_text(party: RelyingParty) -> None:
    tokens = party.tokens()
    answer = party.browser.get("/o/tokeninfo", {"id_token": tokens["id_token"]})
    said = answer.json()
    assert answer["Access-Control-Allow-Origin"] == "*"
    assert all(isinstance(value, str) for value in said.values())
    assert (said["email"], said["email_verified"], said["nonce"]) == (
        "alice@example.org", "true", "1,2,3",
    )  # fmt: skip
    assert said["exp"].isdecimal()


def forged(id_token: str, kind: str) -> str:
    header, payload, signature = id_token.split(".")
    public = provider_keys.jwk_set()["keys"][0]

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    if kind == "tampered":
        return f"{header}.{part({**claims, 'sub': '1000'})}.{signature}"
    if kind == "none":
        return f"{part({'alg': 'none', 'kid': public['kid']})}.{payload}."
    if kind == "hs256":
        key = OctKey.import_key(json.dumps(public))
        return jwt.encode({"alg": "HS256", "kid": public["kid"]}, claims, key, ["HS256"])
    if kind == "kid":
        return f"{part({'alg': 'RS256', 'kid': 'other'})}.{payload}.{signature}"
    return {"empty": "", "text": "nothing", "long": "a" * 100_000, "array": "W10.W10.W10"}[kind]


@pytest.mark.parametrize(
    "kind", ["tampered", "none", "hs256", "kid", "empty", "text", "long", "array"]
)
def test_token_information_of_anything_else_is_an_error(party: RelyingParty, kind: str) -> None:
    token = forged(party.tokens()["id_token"], kind)
    answer = party.browser.post("/o/tokeninfo", {"id_token": token})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_token")


def test_case_78_two_keys_during_a_rotation(party: RelyingParty) -> None:
    old = party.tokens()["id_token"]
    made = provider_keys.rotate()
    keys = party.browser.get("/o/.well-known/jwks.json").json()["keys"]
    assert [key["use"] for key in keys] == ["sig", "sig"]
    assert all("d" not in key for key in keys)
    assert party.claims(party.tokens()["id_token"])
    kid, _ = provider_keys.signer()
    assert kid != made.kid  # published, but not signing before everybody can know it
    ProviderKey.objects.filter(pk=made.pk).update(signs_from=timezone.now())
    new = party.tokens()["id_token"]
    assert provider_keys.signer()[0] == made.kid
    assert party.claims(old)
    assert party.claims(new)


def test_a_key_is_published_until_what_it_signed_has_expired(db: None) -> None:
    first = provider_keys.rotate()
    second = provider_keys.rotate()
    now = second.signs_from
    rows = [first, second]
    lasts = timedelta(seconds=settings.PROVIDER["ID_TOKEN_SECONDS"])
    assert provider_keys.published(rows, now + lasts) == rows
    assert provider_keys.published(rows, now + lasts + timedelta(minutes=6)) == [second]


def test_a_key_that_leaked_is_replaced_at_once(party: RelyingParty) -> None:
    old = party.tokens()["id_token"]
    provider_keys.replace_now()
    assert len(provider_keys.jwk_set()["keys"]) == 1
    assert party.browser.get("/o/tokeninfo", {"id_token": old}).status_code == 400
    assert party.claims(party.tokens()["id_token"])


def test_private_keys_are_sealed_in_the_database(party: RelyingParty, settings: Any) -> None:
    party.tokens()
    sealed = ProviderKey.objects.get().sealed
    assert "PRIVATE" not in sealed
    assert "PRIVATE" not in base64.urlsafe_b64decode(sealed).decode("latin1")
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another"
    provider_keys._opened.cache_clear()
    assert party.tokens()  # the old secret still opens it
    settings.SECRET_KEY_FALLBACKS = []
    provider_keys._opened.cache_clear()
    with pytest.raises(provider_keys.CannotSign, match="SECRET_KEY_FALLBACKS"):
        provider_keys.signer()


@pytest.mark.parametrize(
    ("path", "method"), [("/o/token/", "post"), ("/o/userinfo/", "get"), ("/o/revoke/", "post")]
)
def test_browsers_of_registered_clients_may_call(
    party: RelyingParty, path: str, method: str
) -> None:
    good, bad = "https://client.example.org", "https://evil.example.org"
    asked = party.browser.options(path, headers={"origin": good})
    assert asked.status_code == 204
    assert asked["Access-Control-Allow-Origin"] == good
    assert "Access-Control-Allow-Credentials" not in asked
    assert "Access-Control-Allow-Origin" not in party.browser.options(path, headers={"origin": bad})
    answer = getattr(party.browser, method)(path, headers={"origin": good})
    assert answer["Access-Control-Allow-Origin"] == good


def test_who_is_not_logged_in_logs_in_and_comes_back(client: Client, party: RelyingParty) -> None:
    stranger = Client()
    party.browser = stranger
    answer = party.ask()
    assert answer["Location"].startswith("/login/?next=/o/authorize/")
    page = stranger.get(answer["Location"])
    text = page.content.decode()
    assert "<script" not in text
    assert "style=" not in text
    policy = page["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "form-action 'self' https://client.example.org" in policy
    form = {"username": "alice", "password": "wonderland 7", "next": page.context["next"]}
    gone_on = stranger.post("/login/", form)
    assert gone_on["Location"].startswith("/o/authorize/")
    back = stranger.get(gone_on["Location"])
    assert back["Location"].startswith(BACK)
    assert party.redeem(query(back["Location"])["code"]).status_code == 200


def test_the_login_leads_to_no_other_site(client: Client, alice: Any) -> None:
    form = {"username": "alice", "password": "wonderland 7", "next": "https://evil.example.org/"}
    assert client.post("/login/", form)["Location"] == "/"


def test_a_client_that_is_not_trusted_asks_the_user(party: RelyingParty) -> None:
    from oauth2_provider.models import get_application_model

    get_application_model().objects.filter(client_id="party").update(skip_authorization=False)
    page = party.ask()
    assert page.status_code == 200
    assert "Allow A party?" in page.content.decode()
    assert "form-action 'self' https://client.example.org" in page["Content-Security-Policy"]
    form = {name: value for name, value in page.context["form"].initial.items() if value}
    refused = party.browser.post("/o/authorize/", form)
    assert "error=access_denied" in refused["Location"]
    allowed = party.browser.post("/o/authorize/", {**form, "allow": "yes"})
    assert party.redeem(query(allowed["Location"])["code"]).status_code == 200
